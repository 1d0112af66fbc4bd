#include "actors/model_match.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer {

std::optional<std::string> mismatch_of(const model_info& here, const model_info& there) {
  const auto is_known = [&there](const std::string& name) {
    return std::find(there.names.begin(), there.names.end(), name) != there.names.end();
  };
  if (!std::all_of(here.names.begin(), here.names.end(), is_known))
    return fmt::format("it serves {}, expected {}", fmt::join(there.names, ", "),
                       fmt::join(here.names, ", "));
  if (there.max_model_len < here.max_model_len)
    return fmt::format("its context holds {} tokens, expected at least {}", there.max_model_len,
                       here.max_model_len);
  if (!here.identity.empty() && !there.identity.empty() && here.identity != there.identity)
    return fmt::format(
      "it has other weights, another config or another tokenizer: its model is {}, "
      "expected {}",
      there.identity, here.identity);
  return std::nullopt;
}

}  // namespace deepinfer
