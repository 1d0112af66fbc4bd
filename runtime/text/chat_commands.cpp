#include "runtime/text/chat_commands.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "runtime/text/chat_request_messages.hpp"
#include "runtime/text/output_parser.hpp"
#include "runtime/text/python_json.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t longest_error = 4096;
constexpr std::size_t most_stops = 16;

/// {model, messages, tools, ...options} of a request object; options win.
json::object merged_body(const json::object& request, const field_reader* options) {
  json::object body = request;
  body.erase("options");
  if (!options) return body;
  for (const auto& [key, value] : options->whole()) body[key] = value;
  return body;
}

result<effort_level> effort_named(const field_reader& options) {
  DI_TRY(const auto name, options.string("reasoning_effort"));
  constexpr std::array<std::string_view, 4> names{"low", "high", "xhigh", "max"};
  if (!name) return effort_level::high;
  const auto found = std::find(names.begin(), names.end(), *name);
  if (found == names.end())
    return options.wrong("reasoning_effort", options.at("reasoning_effort"),
                         "low, high, xhigh or max");
  return static_cast<effort_level>(found - names.begin());
}

/// A conversation as it stands, see chat_commands.hpp.
result<chat_request> read_conversation(const field_reader& fields, const field_reader* options,
                                       const chat_request_options& limits) {
  chat_request request;
  DI_TRY(request.model, fields.required_string("model"));
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
  DI_TRY(const auto thinking, options->boolean("thinking_mode"));
  c.thinking = thinking.value_or(true);
  DI_TRY(c.effort, effort_named(*options));
  if (!options->has("response_schema")) return request;
  c.response = response_shape::schema;
  c.response_schema = python_json(options->at("response_schema"), json_numbers_of(request.variant));
  return request;
}

result<chat_request> read_request(const json::object& request, const chat_request_options& limits) {
  const field_reader fields(request, "");
  DI_TRY(const auto options, fields.object("options"));
  DI_TRY(const auto via, fields.string("via"));
  const auto* given = options ? &*options : nullptr;
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

result<parse_start> start_named(const field_reader& mode) {
  DI_TRY(const auto name, mode.required_string("start"));
  for (const auto start :
       {parse_start::reasoning, parse_start::reasoning_continuation,
        parse_start::content_continuation, parse_start::content, parse_start::tool_calls})
    if (name == name_of(start)) return start;
  return mode.wrong(
    "start", mode.at("start"),
    "reasoning, reasoning_continuation, content_continuation, content or tool_calls");
}

result<output_mode> read_mode(const field_reader& fields) {
  DI_TRY(const auto given, fields.required_object("mode"));
  output_mode mode;
  DI_TRY(mode.start, start_named(given));
  DI_TRY(const auto tools, given.boolean("tools"));
  mode.parse_tool_calls = tools.value_or(false) || mode.start == parse_start::tool_calls;
  DI_TRY(const auto json_output, given.boolean("json"));
  mode.json_output = json_output.value_or(false);
  DI_TRY(mode.stop, given.strings("stop", most_stops));
  for (const auto& stop : mode.stop)
    if (stop.empty()) return given.failure("stop", "an empty string stops nothing");
  DI_TRY(const auto in_reasoning, given.boolean("stop_in_reasoning"));
  mode.stop_in_reasoning = in_reasoning.value_or(false);
  return mode;
}

result<std::vector<token_id>> read_ids(const field_reader& fields) {
  std::vector<token_id> ids;
  const auto& given = fields.at("ids");
  if (!given.is_array()) return fields.wrong("ids", given, "a list of token ids");
  for (const auto& item : given.get_array()) {
    if (!item.is_int64() || item.get_int64() < 0 || item.get_int64() > 2147483647)
      return fields.wrong(fmt::format("ids[{}]", ids.size()), item, "a token id from 0");
    ids.push_back(static_cast<token_id>(item.get_int64()));
  }
  return ids;
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
  const field_reader fields(request.get_object(), "");
  DI_TRY(auto mode, read_mode(fields));
  DI_TRY(const auto finish, fields.string("finish"));
  const auto reported = finish.value_or("stop");
  parsed_output output;
  output_deltas deltas;
  if (!fields.find("ids")) {
    DI_TRY(const auto text, fields.required_string("text"));
    output_parser parser(std::move(mode));
    parser.feed(text, deltas);
    parser.finish(deltas);
    for (const auto& delta : deltas) output.add(delta);
    return output_object(output, finish_name(parser, reported));
  }
  if (!vocabulary)
    return fail(errc::invalid_argument, "ids: a tokenizer is needed to read them", "ids");
  DI_TRY(const auto ids, read_ids(fields));
  token_output_parser parser(std::move(mode), *vocabulary);
  for (const auto id : ids) parser.feed(id, deltas);
  parser.finish(deltas);
  for (const auto& delta : deltas) output.add(delta);
  return output_object(output, finish_name(parser.parser(), reported));
}

json::object error_object(const error& failure) {
  auto message = failure.message;
  if (message.size() > longest_error) {
    auto end = longest_error - 3;  // at the start of a character
    while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;
    message = message.substr(0, end) + "...";
  }
  const bool is_request = http_status_of(failure.code) < 500;
  json::value param = nullptr;
  if (!failure.param.empty()) param = failure.param;
  return {{"error", json::object{{"code", name_of(failure.code)},
                                 {"message", message},
                                 {"param", std::move(param)},
                                 {"type", is_request ? "invalid_request_error" : "server_error"}}}};
}

}  // namespace deepinfer
