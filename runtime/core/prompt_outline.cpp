#include "runtime/core/prompt_outline.hpp"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "runtime/base/random.hpp"
#include "runtime/core/prefix_key.hpp"

namespace deepinfer {
namespace {

/// Bytes of a token, as text goes.
constexpr std::int64_t bytes_per_token = 4;

std::uint64_t mix_bytes(std::uint64_t state, std::string_view bytes) {
  while (!bytes.empty()) {
    std::uint64_t word = 0;
    const auto taken = std::min(bytes.size(), sizeof(word));
    std::memcpy(&word, bytes.data(), taken);
    state = split_mix64(state ^ word);
    bytes.remove_prefix(taken);
  }
  return state;
}

/// `stride` bytes at a time, from a state that says what the bytes are and of whom.
std::vector<std::uint64_t> fingerprints(std::uint64_t state, std::string_view bytes,
                                        std::size_t stride) {
  std::vector<std::uint64_t> out;
  const auto strides = std::min(bytes.size() / stride, strides_most);
  out.reserve(strides);
  for (std::size_t i = 0; i < strides; ++i) {
    state = mix_bytes(state, bytes.substr(i * stride, stride));
    out.push_back(state);
  }
  return out;
}

}  // namespace

std::int64_t about_tokens(const generate_request& request) {
  if (request.ids) return static_cast<std::int64_t>(request.ids->size());
  const auto& text = request.text ? request.text : request.chat;
  return text ? static_cast<std::int64_t>(text->size()) / bytes_per_token + 1 : 0;
}

prompt_outline outline_of(const generate_request& request) {
  const auto salt = request.cache_salt ? prefix_salt(*request.cache_salt) : 0;
  prompt_outline out;
  out.tokens = about_tokens(request);
  if (request.ids) {
    const auto& ids = *request.ids;
    const std::string_view bytes(reinterpret_cast<const char*>(ids.data()),
                                 ids.size() * sizeof(token_id));
    out.prefix = fingerprints(split_mix64(salt), bytes, stride_ids * sizeof(token_id));
  } else if (request.text || request.chat) {
    const std::string_view bytes = request.text ? *request.text : *request.chat;
    const std::uint64_t kind = request.text ? 1 : 2;
    out.prefix = fingerprints(split_mix64(salt + kind), bytes, stride_bytes);
  }
  return out;
}

}  // namespace deepinfer
