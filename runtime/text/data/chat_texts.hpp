/// Fixed texts of the V4 and V4.1 prompt formats, byte for byte as the models were trained on them.
///
/// They are text of DeepSeek's recipe 0.2.0 (MIT, see NOTICE). In the preambles `｜DSML｜`, `<think>`
/// and `</think>` stand for special tokens.
#pragma once

#include <string_view>

namespace deepinfer::chat_texts {

extern const std::string_view tool_preamble_v41;  ///< before the schemas, one JSON object a line
extern const std::string_view tool_preamble_v4;
extern const std::string_view tool_closing;    ///< after them
extern const std::string_view effort_v4_high;  ///< right after the first token
extern const std::string_view effort_v4_max;
extern const std::string_view effort_v41_before;  ///< the number follows
extern const std::string_view effort_v41_after;
extern const std::string_view response_schema;   ///< the schema follows
extern const std::string_view response_json_v4;  ///< the whole text of json_object in V4
extern const std::string_view updated_tools;     ///< before tools that a later message brings

}  // namespace deepinfer::chat_texts
