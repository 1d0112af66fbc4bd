/// A conversation ready to be rendered: plain data, checked, with every JSON value already spelled
/// as the prompt wants it (see python_json.hpp).
///
/// Made by `read_chat_request` (chat_request.hpp) from a client's body, or by hand. Message content
/// is one text: parts are joined with a blank line when they are read.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

/// Which prompt language a model was trained on.
enum class chat_variant : std::uint8_t { v4, v41 };

/// `developer` is read as `system`: neither variant has a marker of its own for it.
enum class chat_role : std::uint8_t { system, user, assistant, tool, latest_reminder };

/// How long the model is asked to think. `number` is used where it is set (V4.1 only, 1 to 100).
enum class effort_level : std::uint8_t { low, high, xhigh, max };

/// What the prompt says about the form of the answer (a regex says nothing).
enum class response_shape : std::uint8_t { free, json_object, schema };

struct tool_call {
  std::string id;
  std::string name;
  std::string arguments;  ///< as the client sent it: usually a JSON object, not checked
};

struct tool_definition {
  std::string name;
  std::string description;
  std::string parameters = "null";  ///< JSON text of the schema
  bool strict = false;              ///< arguments should be held to the schema
  bool deferred = false;            ///< known to the server, not shown to the model
};

struct chat_message {
  chat_role role = chat_role::user;
  std::string content;
  std::string reasoning;               ///< assistant only
  std::vector<tool_call> calls;        ///< assistant only
  std::string call_id;                 ///< tool only: the call this answers
  bool prefix = false;                 ///< assistant only: to be continued, so not closed
  std::vector<tool_definition> tools;  ///< system only: tools that become known here
};

struct chat_conversation {
  std::vector<chat_message> messages;
  std::vector<tool_definition> tools;
  response_shape response = response_shape::free;
  std::string response_schema;  ///< JSON text, for `response_shape::schema`
  bool thinking = true;
  effort_level effort = effort_level::high;
  std::optional<int> effort_number;  ///< 1 to 100; wins over `effort`
  bool calls_required = false;       ///< the answer starts inside a calls block; needs tools
};

/// What the parser of the model's output must expect right after a prompt.
enum class parse_start : std::uint8_t {
  reasoning,               ///< a new thought: leading line breaks are not part of it
  reasoning_continuation,  ///< a thought the prompt began
  content_continuation,    ///< an answer the prompt began, in thinking mode
  content,                 ///< an answer, in chat mode
  tool_calls,              ///< inside a calls block the prompt opened
};

/// "reasoning", "content_continuation", ...
std::string_view name_of(parse_start start);

/// Where a conversation leaves the output parser.
parse_start parse_start_of(const chat_conversation& conversation);

}  // namespace deepinfer
