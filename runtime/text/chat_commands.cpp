#include "runtime/text/chat_commands.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/base/quoted.hpp"
#include "runtime/text/chat_request_messages.hpp"
#include "runtime/text/output_parser.hpp"
#include "runtime/text/python_json.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t longest_error = 4096;
constexpr std::size_t most_stops = 16;

/// {model, messages, tools, ...options} of a request object; options win.
json::object merged_body(const json::object& request, json_fields* options) {
  json::object body = request;
  body.erase("options");
  if (!options) return body;
  for (const auto& [key, value] : options->entries()) body[key] = value;
  return body;
}

result<effort_level> effort_named(json_fields& options) {
  DI_TRY(const auto name, options.text("reasoning_effort"));
  constexpr std::array<std::string_view, 4> names{"low", "high", "xhigh", "max"};
  if (!name) return effort_level::high;
  const auto found = std::find(names.begin(), names.end(), *name);
  if (found == names.end())
    return options.wrong("reasoning_effort", *options.find("reasoning_effort"),
                         "low, high, xhigh or max");
  return static_cast<effort_level>(found - names.begin());
}

/// A conversation as it stands, see chat_commands.hpp.
result<chat_request> read_conversation(json_fields& fields, json_fields* options,
                                       const chat_request_options& limits) {
  chat_request request;
  DI_TRY(request.model, fields.required_text("model"));
  const auto served = std::find_if(limits.models.begin(), limits.models.end(),
                                   [&](const auto& model) { return model.name == request.model; });
  if (served == limits.models.end())
    return fail(errc::model_not_found,
                fmt::format("model {} is not served here", quoted(request.model)), "model");
  request.variant = served->variant;
  auto& c = request.conversation;
  DI_TRY(c.messages, read_loose_messages(fields, request.variant, limits.most_messages));
  DI_TRY(c.tools, read_loose_tools(fields, request.variant));
  request.parse_tool_calls = !c.tools.empty();
  if (!options) return request;
  DI_TRY(c.thinking, options->flag("thinking_mode", true));
  DI_TRY(c.effort, effort_named(*options));
  const auto* schema = options->given("response_schema");
  if (!schema) return request;
  c.response = response_shape::schema;
  c.response_schema = python_json(*schema, json_numbers_of(request.variant));
  return request;
}

result<chat_request> read_request(const json::object& request, const chat_request_options& limits) {
  json_fields fields(request);
  DI_TRY(auto options, fields.object("options"));
  DI_TRY(const auto via, fields.text("via"));
  auto* given = options ? &*options : nullptr;
  if (via == "conversation") return read_conversation(fields, given, limits);
  return read_chat_request(json::value(merged_body(request, given)), limits);
}

result<json::value> constraint_object(const output_constraint& constraint) {
  if (constraint.kind == constraint_kind::none) return json::value(nullptr);
  json::value schema = nullptr;
  if (constraint.schema && constraint.kind == constraint_kind::regex) {
    schema = *constraint.schema;
  } else if (constraint.schema) {
    DI_TRY(schema, parse_json(*constraint.schema, 256));
  }
  return json::value{{"kind", name_of(constraint.kind)}, {"schema", schema}};
}

result<parse_start> start_named(json_fields& mode) {
  DI_TRY(const auto name, mode.required_text("start"));
  for (const auto start :
       {parse_start::reasoning, parse_start::reasoning_continuation,
        parse_start::content_continuation, parse_start::content, parse_start::tool_calls})
    if (name == name_of(start)) return start;
  return mode.wrong(
    "start", *mode.find("start"),
    "reasoning, reasoning_continuation, content_continuation, content or tool_calls");
}

result<output_mode> read_mode(json_fields& fields) {
  DI_TRY(auto given, fields.required_object("mode"));
  output_mode mode;
  DI_TRY(mode.start, start_named(given));
  DI_TRY(const auto tools, given.flag("tools", false));
  mode.parse_tool_calls = tools || mode.start == parse_start::tool_calls;
  DI_TRY(mode.json_output, given.flag("json", false));
  DI_TRY(mode.stop, given.texts("stop", most_stops));
  for (const auto& stop : mode.stop)
    if (stop.empty()) return given.failure("stop", "an empty string stops nothing");
  DI_TRY(mode.stop_in_reasoning, given.flag("stop_in_reasoning", false));
  return mode;
}

json::object output_object(const parsed_output& output, std::string_view finish) {
  json::array calls;
  for (const auto& call : output.calls)
    calls.push_back(json::value{{"name", call.name}, {"arguments", call.arguments}});
  return {{"reasoning", output.reasoning},
          {"content", output.content},
          {"tool_calls", std::move(calls)},
          {"finish_reason", finish}};
}

/// The reason to answer with: what the output says about "stop", else what was reported.
std::string finish_name(const output_parser& parser, std::string_view reported) {
  if (parser.stopped()) return "stop";
  if (reported != "stop") return std::string(reported);
  return std::string(name_of(parser.finish_of(finish_reason::stop)));
}

}  // namespace

result<json::object> render_command(const json::value& request, const tokenizer* vocabulary,
                                    const chat_request_options& options,
                                    const effort_scale& scale) {
  if (!request.is_object()) return fail(errc::invalid_argument, "a request must be a JSON object");
  DI_TRY(const auto read, read_request(request.get_object(), options));
  const auto prompt = render_chat(read.conversation, read.variant, scale);
  json::array ranges;
  for (const auto& range : prompt.special) ranges.push_back(json::array{range.begin, range.end});
  json::value ids = nullptr;
  if (vocabulary) {
    DI_TRY(const auto encoded, encode_prompt(prompt, *vocabulary));
    ids = json::array(encoded.begin(), encoded.end());
  }
  DI_TRY(auto constraint, constraint_object(read.constraint));
  return json::object{{"prompt", prompt.text},
                      {"ids", std::move(ids)},
                      {"special_ranges", std::move(ranges)},
                      {"parse_start", name_of(parse_start_of(read.conversation))},
                      {"parse_tool_calls", read.parse_tool_calls},
                      {"constraint", std::move(constraint)}};
}

result<json::object> parse_command(const json::value& request, const tokenizer* vocabulary) {
  if (!request.is_object()) return fail(errc::invalid_argument, "a request must be a JSON object");
  json_fields fields(request.get_object());
  DI_TRY(auto mode, read_mode(fields));
  DI_TRY(const auto finish, fields.text("finish"));
  const auto reported = finish.value_or("stop");
  parsed_output output;
  output_deltas deltas;
  if (!fields.find("ids")) {
    DI_TRY(const auto text, fields.required_text("text"));
    output_parser parser(std::move(mode));
    parser.feed(text, deltas);
    parser.finish(deltas);
    for (const auto& delta : deltas) output.add(delta);
    return output_object(output, finish_name(parser, reported));
  }
  if (!vocabulary)
    return fail(errc::invalid_argument, "ids: a tokenizer is needed to read them", "ids");
  DI_TRY(const auto ids, fields.ids("ids", std::numeric_limits<std::size_t>::max()));
  token_output_parser parser(std::move(mode), *vocabulary);
  for (const auto id : ids) parser.feed(id, deltas);
  parser.finish(deltas);
  for (const auto& delta : deltas) output.add(delta);
  return output_object(output, finish_name(parser.parser(), reported));
}

json::object error_object(const error& failure) {
  const auto& message = failure.message;
  const auto shown =
    message.size() > longest_error ? shortened(message, longest_error - 3) : message;
  const bool is_request = http_status_of(failure.code) < 500;
  json::value param = nullptr;
  if (!failure.param.empty()) param = failure.param;
  return {{"error", json::object{{"code", name_of(failure.code)},
                                 {"message", shown},
                                 {"param", std::move(param)},
                                 {"type", is_request ? "invalid_request_error" : "server_error"}}}};
}

}  // namespace deepinfer
