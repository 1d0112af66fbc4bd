#include "runtime/base/secret.hpp"

#include <cstdint>

namespace deepinfer {
namespace {

struct listed_key {
  std::string_view name;
  std::string_view key;
};

/// Names hold letters, digits, '-', '_' and '.': a key may have '=' in it, as base64 does at its
/// end, without becoming a name.
listed_key split(std::string_view entry) {
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

}  // namespace

bool same_secret(std::string_view kept, std::string_view offered) {
  volatile std::uint8_t difference = kept.size() == offered.size() ? 0 : 1;
  for (std::size_t i = 0; i < offered.size(); ++i) {
    const char wanted = kept.empty() ? '\0' : kept[i % kept.size()];
    difference = static_cast<std::uint8_t>(difference | (wanted ^ offered[i]));
  }
  return difference == 0;
}

std::optional<std::string> holder_of(std::span<const std::string> keys, std::string_view offered) {
  std::optional<std::string> out;
  for (const auto& entry : keys) {
    const auto it = split(entry);
    if (same_secret(it.key, offered) && !it.key.empty() && !out) out.emplace(it.name);
  }
  return out;
}

}  // namespace deepinfer
