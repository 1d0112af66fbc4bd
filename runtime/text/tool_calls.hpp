/// Tool calls as the models write them: the markup of an assistant turn of the past.
///
///   V4.1: `\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name="NAME">\n<｜DSML｜ parameter name="K"
///         string="true">V</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>`
///   V4:   the same without the spaces and with `tool_calls` for `calls`; a call without arguments
///         has no empty line there.
/// A string argument is written raw (`string="true"`), anything else as JSON (`string="false"`).
/// Arguments that are not a JSON object become one string parameter named `arguments`. Of keys that
/// come twice, the first place and the last value count.
#pragma once

#include <vector>

#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

class prompt_writer;

/// The block with the two line breaks before it.
void write_tool_calls(const std::vector<tool_call>& calls, chat_variant variant,
                      prompt_writer& prompt);

/// The two line breaks and the opening tag: what a prompt ends with when a call is required.
void write_calls_opening(chat_variant variant, prompt_writer& prompt);

}  // namespace deepinfer
