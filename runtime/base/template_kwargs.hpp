/// `chat_template_kwargs` of vLLM and SGLang: arguments of a chat template. The encoder here is no
/// template, but the switches that clients of DeepSeek models set in this way have fields of their
/// own in a chat request: `thinking` (or `enable_thinking`) and `reasoning_effort`.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/base/json_fields.hpp"

namespace deepinfer {

struct chat_switches {
  /// `thinking` and `reasoning_effort` as in the body of a chat request, where it has them or an
  /// argument of the same meaning. The body's own field wins. Not checked.
  json::object fields;
  std::vector<std::string> meaningless;  ///< arguments that say nothing here, by their paths
};

/// Errors: invalid_argument where the arguments are no object, or a flag among them is none.
result<chat_switches> read_chat_switches(json_fields& body);

}  // namespace deepinfer
