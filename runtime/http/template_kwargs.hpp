/// `chat_template_kwargs` of vLLM and SGLang: arguments of a chat template. The encoder here is no
/// template, but the switches that clients of DeepSeek models set in this way have fields of their
/// own: `thinking` (or `enable_thinking`) and `reasoning_effort`.
#pragma once

#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/base/json_fields.hpp"

namespace deepinfer {

/// Puts the switches into `chat`, the engine's request, but where it has the field of the same
/// meaning; returns the arguments that mean nothing here. Errors: invalid_argument.
result<std::vector<std::string>> apply_template_kwargs(json_fields& body, json::object& chat);

}  // namespace deepinfer
