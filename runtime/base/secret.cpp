#include "runtime/base/secret.hpp"

#include <algorithm>
#include <cstdint>

#include "runtime/base/trim.hpp"

namespace deepinfer {
listed_key split_key(std::string_view entry) {
  const auto at = entry.find('=');
  if (at == std::string_view::npos || at == 0 || at + 1 == entry.size()) return {{}, entry};
  const auto name = entry.substr(0, at);
  for (const char c : name) {
    const bool is_plain = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                          (c >= 'A' && c <= 'Z') || c == '-' || c == '_' || c == '.';
    if (!is_plain) return {{}, entry};
  }
  const auto key = entry.substr(at + 1);
  if (key.find_first_not_of('=') == std::string_view::npos) return {{}, entry};
  return {name, key};
}

bool same_secret(std::string_view kept, std::string_view offered) {
  volatile std::uint8_t difference = kept.size() == offered.size() ? 0 : 1;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    const char wanted = kept.empty() ? '\0' : kept[i % kept.size()];
    difference = static_cast<std::uint8_t>(difference | (wanted ^ offered[i]));
  }
  return difference == 0;
}

std::vector<std::string> key_entries(std::string_view file_text) {
  std::vector<std::string> out;
  while (!file_text.empty()) {
    const auto end = std::min(file_text.find('\n'), file_text.size());
    const auto line = trimmed(file_text.substr(0, end));
    if (!line.empty() && line.front() != '#') out.emplace_back(line);
    file_text.remove_prefix(std::min(end + 1, file_text.size()));
  }
  return out;
}

std::optional<std::string> holder_of(std::span<const std::string> keys, std::string_view offered) {
  std::optional<std::string> out;
  for (const auto& entry : keys) {
    const auto it = split_key(entry);
    if (same_secret(it.key, offered) && !it.key.empty() && !out) out.emplace(it.name);
  }
  return out;
}

}  // namespace deepinfer
