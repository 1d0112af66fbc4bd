#include <bit>
#include <functional>

#include <fmt/format.h>

#include "runtime/text/bpe.hpp"
#include "runtime/text/bpe_alphabet.hpp"

namespace deepinfer {

namespace {

/// Ids are dense in every file we know; a sparse one would cost memory for nothing.
constexpr std::int64_t max_id_over_count = 65'536;

}  // namespace

bpe_vocabulary::bpe_vocabulary(std::size_t token_count)
  : table_(std::bit_ceil(2 * token_count + 2), -1) {}

std::size_t bpe_vocabulary::home_of(std::string_view bytes) const {
  return std::hash<std::string_view>{}(bytes) & (table_.size() - 1);
}

result<void> bpe_vocabulary::add(std::string_view name, std::int64_t id) {
  const auto limit = static_cast<std::int64_t>(table_.size() / 2) + max_id_over_count;
  if (id < 0 || id >= limit)
    return fail(errc::bad_checkpoint, fmt::format("id {}, expected 0 to {}", id, limit - 1));
  const auto place = static_cast<std::size_t>(id);
  if (place >= tokens_.size()) tokens_.resize(place + 1);
  if (tokens_[place].is_known)
    return fail(errc::bad_checkpoint,
                fmt::format("id {} is also that of `{}`", id, name_of(static_cast<token_id>(id))));
  auto bytes = bytes_of_name(name);
  const bool is_raw = !bytes.has_value();
  if (is_raw) bytes = name;
  tokens_[place] = {static_cast<std::uint32_t>(blob_.size()),
                    static_cast<std::uint32_t>(bytes->size()), true, is_raw};
  blob_ += *bytes;
  if (is_raw) {
    raw_.emplace(name, static_cast<token_id>(id));
    return {};
  }
  auto at = home_of(*bytes);
  while (table_[at] >= 0) at = (at + 1) & (table_.size() - 1);
  table_[at] = static_cast<token_id>(id);
  return {};
}

std::optional<token_id> bpe_vocabulary::find(std::string_view name) const {
  if (const auto bytes = bytes_of_name(name)) return find_bytes(*bytes);
  const auto found = raw_.find(std::string(name));
  return found == raw_.end() ? std::nullopt : std::optional(found->second);
}

std::optional<token_id> bpe_vocabulary::find_bytes(std::string_view bytes) const {
  for (auto at = home_of(bytes); table_[at] >= 0; at = (at + 1) & (table_.size() - 1))
    if (bytes_of(table_[at]) == bytes) return table_[at];
  return {};
}

bool bpe_vocabulary::is_known(token_id id) const {
  return id >= 0 && id < size() && tokens_[static_cast<std::size_t>(id)].is_known;
}

std::string_view bpe_vocabulary::bytes_of(token_id id) const {
  if (!is_known(id)) return {};
  const auto& found = tokens_[static_cast<std::size_t>(id)];
  return std::string_view(blob_).substr(found.begin, found.size);
}

std::string bpe_vocabulary::name_of(token_id id) const {
  if (!is_known(id)) return {};
  const auto bytes = bytes_of(id);
  return tokens_[static_cast<std::size_t>(id)].is_raw ? std::string(bytes) : name_of_bytes(bytes);
}

}  // namespace deepinfer
