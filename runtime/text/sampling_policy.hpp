/// From what a client wished to what the sampler is told.
///
/// `as_requested` (the default) honours every wish. `deepseek` does as DeepSeek's service does:
///   thinking, V4.1      temperature 1, top_p the wish but at least 0.95, else 1
///   thinking, V4        temperature 1, top_p 0.95 with tools, else 1
///   chat mode, V4.1     temperature as wished, top_p 1
///   chat mode, V4       both as wished
/// and it does not know `max_completion_tokens`. Penalties and the rest pass under both.
/// An answer without a limit gets the service's: 8192 tokens in chat mode, 65536 while thinking,
/// 131072 with the deepest effort (max or 100), at most what the context leaves and at least 1.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "messages/request.hpp"
#include "runtime/base/error.hpp"
#include "runtime/text/chat_request.hpp"

namespace deepinfer {

enum class sampling_policy : std::uint8_t { as_requested, deepseek };

/// "as_requested" or "deepseek". Error: invalid_argument with both names.
result<sampling_policy> sampling_policy_named(std::string_view name);
std::string_view name_of(sampling_policy policy);

/// Temperature, top_p and limit a request runs with under a policy; the limit is absent where the
/// client gave none (or the policy ignores it).
struct effective_sampling {
  double temperature = 1.0;
  double top_p = 1.0;
  std::optional<std::int64_t> max_tokens;
};
effective_sampling effective_sampling_of(const chat_request& request, sampling_policy policy);

/// Output tokens a request may have. Errors: context_length_exceeded, with both numbers, when the
/// prompt alone is longer than the context, or prompt and `wanted` together are.
result<std::int64_t> resolve_max_tokens(const chat_request& request,
                                        std::optional<std::int64_t> wanted,
                                        std::int64_t prompt_tokens, std::int64_t context_tokens);

/// The whole translation but for `stop`: stop strings of a chat are the output parser's, which
/// looks for them in content only, not in thoughts or calls. `seed` is used where the client gave
/// none.
result<sampling_params> resolve_sampling(const chat_request& request, sampling_policy policy,
                                         std::int64_t prompt_tokens, std::int64_t context_tokens,
                                         std::uint64_t seed);

}  // namespace deepinfer
