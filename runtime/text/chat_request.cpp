#include "runtime/text/chat_request.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/base/quoted.hpp"
#include "runtime/base/template_kwargs.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_request_messages.hpp"
#include "runtime/text/chat_schema.hpp"
#include "runtime/text/python_json.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t deepest_body = 128;
constexpr std::size_t most_tools = 4096;
constexpr std::size_t longest_tool_name = 128;
constexpr std::size_t most_stops = 16;
constexpr std::size_t most_stop_ids = 256;

struct effort_row {
  std::string_view name;
  effort_level level;
  bool thinking;
};
constexpr std::array effort_rows{
  effort_row{"none", effort_level::high, false}, effort_row{"minimal", effort_level::low, true},
  effort_row{"low", effort_level::low, true},    effort_row{"medium", effort_level::high, true},
  effort_row{"high", effort_level::high, true},  effort_row{"xhigh", effort_level::xhigh, true},
  effort_row{"ultra", effort_level::max, true},  effort_row{"max", effort_level::max, true}};

constexpr std::int64_t least_effort = 1;
constexpr std::int64_t most_effort = 100;

const effort_row* row_of(std::string_view name) {
  const auto* row = std::find_if(effort_rows.begin(), effort_rows.end(),
                                 [&](const auto& it) { return it.name == name; });
  return row == effort_rows.end() ? nullptr : row;
}

/// `thinking` decides where it is given; else `reasoning_effort: none` turns thinking off.
/// Both may be arguments of a template, see template_kwargs.hpp.
result<void> read_thinking(json_fields& body, chat_conversation& c) {
  DI_TRY(const auto switches, read_chat_switches(body));
  json_fields given(switches.fields);
  if (const auto* effort = given.find("reasoning_effort")) {
    const auto* place =
      body.find("reasoning_effort") ? "reasoning_effort" : "chat_template_kwargs.reasoning_effort";
    if (!is_effort(*effort)) return body.wrong(place, *effort, efforts_text());
    const auto* row = effort->is_string() ? row_of(effort->get_string()) : nullptr;
    if (row)
      c.effort = row->level;
    else
      c.effort_number = static_cast<int>(effort->get_int64());
    c.thinking = !row || row->thinking;
  }
  DI_TRY(auto thinking, given.object("thinking"));
  if (!thinking) return {};
  DI_TRY(const auto type, thinking->required_text("type"));
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    return thinking->wrong("type", *thinking->find("type"), "adaptive, enabled or disabled");
  c.thinking = type != "disabled";
  return {};
}

bool is_tool_name(std::string_view name) {
  return std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  });
}

/// The schema of a tool's parameters: {} where there is none, closed where strict.
result<json::value> read_parameters(json_fields& function, bool strict) {
  const auto* given = function.find("parameters");
  if (!given && !strict) return json::value(json::object{});
  json::value schema = given ? *given : json::value{{"type", "object"}};
  const auto placed = [&](error failure) {
    failure.param = function.path("parameters");
    return tl::unexpected<error>(std::move(failure).within(failure.param));
  };
  if (auto valid = check_schema(schema); !valid) return placed(std::move(valid).error());
  const auto* type = schema.is_object() ? schema.get_object().if_contains("type") : nullptr;
  if (!type || *type != "object")
    return function.wrong("parameters", schema, "a schema of \"type\": \"object\"");
  if (!strict) return schema;
  auto closed = strict_schema(schema, true);
  if (!closed) return placed(std::move(closed).error());
  return closed;
}

result<tool_definition> read_tool(json_fields& tool, json_numbers numbers) {
  DI_TRY(const auto type, tool.required_text("type"));
  if (type != "function") return tool.wrong("type", *tool.find("type"), "\"function\"");
  DI_TRY(auto function, tool.required_object("function"));
  tool_definition read;
  DI_TRY(read.name, function.required_text("name"));
  if (read.name.empty() || read.name.size() > longest_tool_name || !is_tool_name(read.name))
    return function.wrong("name", *function.find("name"),
                          "1 to 128 characters of a-z, A-Z, 0-9, _ and -");
  DI_TRY(const auto description, function.text("description"));
  read.description = description.value_or("");
  DI_TRY(read.strict, function.flag("strict", false));
  DI_TRY(const auto schema, read_parameters(function, read.strict));
  read.parameters = python_json(schema, numbers);
  return read;
}

result<std::vector<tool_definition>> read_tools(json_fields& body, json_numbers numbers) {
  std::vector<tool_definition> tools;
  DI_TRY(auto list, body.objects("tools", most_tools));
  for (auto& item : list) {
    DI_TRY(auto tool, read_tool(item, numbers));
    for (const auto& other : tools)
      if (other.name == tool.name)
        return item.failure("function.name", fmt::format("tool {} comes twice", tool.name));
    tools.push_back(std::move(tool));
  }
  return tools;
}

/// Applies tool_choice to the tools; true where calls are required. Without tools it says nothing.
result<bool> choose_tools(json_fields& body, std::vector<tool_definition>& tools) {
  const auto* choice = body.find("tool_choice");
  if (!choice) return false;
  if (choice->is_string()) {
    const auto& name = choice->get_string();
    if (name == "none") tools.clear();
    if (name == "required") return !tools.empty();
    if (name == "none" || name == "auto") return false;
    return body.wrong("tool_choice", *choice, "none, auto, required or a tool");
  }
  DI_TRY(auto named, body.required_object("tool_choice"));
  DI_TRY(const auto type, named.required_text("type"));
  if (type != "function") return named.wrong("type", *named.find("type"), "\"function\"");
  DI_TRY(auto function, named.required_object("function"));
  DI_TRY(const auto name, function.required_text("name"));
  if (tools.empty()) return false;
  const auto chosen =
    std::find_if(tools.begin(), tools.end(), [&](const auto& tool) { return tool.name == name; });
  if (chosen == tools.end())
    return function.failure("name", fmt::format("no tool {} is among `tools`", quoted(name)));
  tools = std::vector<tool_definition>{*chosen};
  return true;
}

bool continues(const std::vector<chat_message>& messages) {
  return !messages.empty() && messages.back().prefix;
}

bool mentions_json(const std::vector<chat_message>& messages) {
  constexpr std::string_view word = "json";
  const auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  return std::any_of(messages.begin(), messages.end(), [&](const chat_message& message) {
    const auto& text = message.content;
    return std::search(text.begin(), text.end(), word.begin(), word.end(), same) != text.end();
  });
}

result<void> read_schema_format(json_fields& format, json_numbers numbers, chat_request& request) {
  DI_TRY(auto wrapper, format.required_object("json_schema"));
  const auto* given = wrapper.given("schema");
  if (!given) return wrapper.failure("schema", "is missing");
  const auto& schema = *given;
  DI_TRY(const auto strict, wrapper.flag("strict", false));
  const auto placed = [&](error failure) {
    failure.param = wrapper.path("schema");
    return tl::unexpected<error>(std::move(failure).within(failure.param));
  };
  if (auto valid = check_schema(schema); !valid) return placed(std::move(valid).error());
  request.conversation.response = response_shape::schema;
  request.conversation.response_schema = python_json(schema, numbers);
  request.constraint = {constraint_kind::json, request.conversation.response_schema};
  if (!strict) return {};
  auto closed = strict_schema(schema, false);
  if (!closed) return placed(std::move(closed).error());
  request.constraint.schema = python_json(*closed, numbers);
  return {};
}

result<void> read_response_format(json_fields& body, json_numbers numbers, chat_request& request) {
  DI_TRY(auto format, body.object("response_format"));
  if (!format) return {};
  DI_TRY(const auto type, format->required_text("type"));
  if (type == "text") return {};
  if (type == "json_schema") return read_schema_format(*format, numbers, request);
  if (type == "regex") {
    DI_TRY(auto regex, format->required_text("regex"));
    request.constraint = {constraint_kind::regex, std::move(regex)};
    return {};
  }
  if (type != "json_object")
    return format->wrong("type", *format->find("type"), "json_object, json_schema, regex or text");
  const auto& messages = request.conversation.messages;
  if (!mentions_json(messages))
    return body.failure("response_format", "json_object needs the word json in some message");
  if (continues(messages))
    return body.failure("response_format", "json_object cannot continue a prefix");
  request.conversation.response = response_shape::json_object;
  request.constraint = {constraint_kind::json, std::nullopt};
  request.json_output = true;
  return {};
}

result<std::vector<std::string>> read_stop(json_fields& body) {
  std::vector<std::string> stops;
  const auto* given = body.find("stop");
  if (!given) return stops;
  if (given->is_string()) {
    DI_TRY(auto stop, body.required_text("stop"));
    stops.push_back(std::move(stop));
  } else {
    DI_TRY(stops, body.texts("stop", most_stops));
  }
  for (std::size_t i = 0; i < stops.size(); ++i)
    if (stops[i].empty()) return body.failure("stop", "an empty string stops nothing");
  return stops;
}

/// {"id": bias}: ids as decimal text, biases from -100 to 100.
result<std::vector<std::pair<token_id, float>>> read_bias(json_fields& body) {
  std::vector<std::pair<token_id, float>> biases;
  DI_TRY(auto map, body.object("logit_bias"));
  if (!map) return biases;
  for (const auto& [key, value] : map->entries()) {
    const auto id = token_id_of(key);
    if (!id) return map->failure(quoted(key), "expected a token id as key");
    DI_TRY(const auto bias, map->number(key, -100.0, 100.0));
    if (bias) biases.emplace_back(*id, static_cast<float>(*bias));
  }
  return biases;
}

result<void> read_sampling(json_fields& body, const chat_request_options& options,
                           sampling_wishes& s) {
  constexpr auto most_id = std::int64_t{2147483647};
  DI_TRY(s.temperature, body.number("temperature", 0.0, 2.0));
  DI_TRY(s.top_p, body.positive("top_p", 1.0));
  DI_TRY(s.top_k, body.integer("top_k", 0, most_id));
  DI_TRY(s.min_p, body.number("min_p", 0.0, 1.0));
  DI_TRY(s.presence_penalty, body.number("presence_penalty", -2.0, 2.0));
  DI_TRY(s.frequency_penalty, body.number("frequency_penalty", -2.0, 2.0));
  DI_TRY(s.repetition_penalty, body.positive("repetition_penalty", 10.0));
  DI_TRY(const auto seed, body.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  if (seed) s.seed = static_cast<std::uint64_t>(*seed);
  DI_TRY(s.max_tokens, body.integer("max_tokens", 1, options.most_output_tokens));
  DI_TRY(s.max_completion_tokens,
         body.integer("max_completion_tokens", 1, options.most_output_tokens));
  DI_TRY(s.min_tokens, body.integer("min_tokens", 0, options.most_output_tokens));
  DI_TRY(s.stop, read_stop(body));
  DI_TRY(s.stop_token_ids, body.ids("stop_token_ids", most_stop_ids));
  DI_TRY(s.logit_bias, read_bias(body));
  DI_TRY(s.logprobs, body.flag("logprobs", false));
  DI_TRY(const auto top, body.integer("top_logprobs", 0, 20));
  if (top && !s.logprobs) return body.failure("top_logprobs", "needs \"logprobs\": true");
  s.top_logprobs = top.value_or(0);
  DI_TRY(s.ignore_eos, body.flag("ignore_eos", false));
  DI_TRY_VOID(body.integer("n", 1, 1));
  return {};
}

result<void> read_stream(json_fields& body, chat_request& request) {
  DI_TRY(request.stream, body.flag("stream", false));
  DI_TRY(auto options, body.object("stream_options"));
  if (!options) return {};
  DI_TRY(const auto usage, options->flag("include_usage", false));
  if (!request.stream) return body.failure("stream_options", "needs \"stream\": true");
  request.stream_usage = usage;
  return {};
}

/// What does not go together, and the constraint that tools put on the output.
result<void> read_tool_use(json_fields& body, json_numbers numbers, chat_request& request) {
  auto& c = request.conversation;
  DI_TRY(c.tools, read_tools(body, numbers));
  DI_TRY(c.calls_required, choose_tools(body, c.tools));
  if (c.calls_required && c.thinking)
    return body.failure("tool_choice", "a required call is not possible while thinking");
  if (!c.tools.empty() && continues(c.messages))
    return body.failure("tools", "a prefix cannot be continued where tools may be called");
  const auto strict =
    std::count_if(c.tools.begin(), c.tools.end(), [](const auto& tool) { return tool.strict; });
  if (strict > 0 && static_cast<std::size_t>(strict) < c.tools.size())
    return body.failure("tools", "strict and other tools cannot be in one request");
  if (strict > 0 && request.constraint.kind != constraint_kind::none)
    return body.failure("response_format", "cannot be held to together with strict tools");
  request.parse_tool_calls = !c.tools.empty();
  if (c.tools.empty()) return {};
  const auto kind =
    c.calls_required ? constraint_kind::tool_call_required : constraint_kind::tool_call;
  request.constraint = {kind, std::nullopt};
  return {};
}

}  // namespace

std::string efforts_text() {
  std::string names;
  for (const auto& row : effort_rows)
    names += fmt::format("{}{}", names.empty() ? "" : ", ", row.name);
  return fmt::format("{} or {} to {}", names, least_effort, most_effort);
}

bool is_effort(const json::value& value) {
  if (value.is_string()) return row_of(value.get_string()) != nullptr;
  return value.is_int64() && value.get_int64() >= least_effort && value.get_int64() <= most_effort;
}

std::string_view name_of(constraint_kind kind) {
  constexpr std::array<std::string_view, 5> names{"none", "json", "regex", "tool_call",
                                                  "tool_call_required"};
  return names[static_cast<std::size_t>(kind)];
}

result<chat_request> read_chat_request(const json::value& body,
                                       const chat_request_options& options) {
  if (!body.is_object())
    return fail(errc::invalid_argument, "the request body must be a JSON object");
  json_fields fields(body.get_object());
  chat_request request;
  DI_TRY(request.model, fields.required_text("model"));
  const auto served = std::find_if(options.models.begin(), options.models.end(),
                                   [&](const auto& model) { return model.name == request.model; });
  if (served == options.models.end()) {
    std::string names;
    for (const auto& model : options.models) names += (names.empty() ? "" : ", ") + model.name;
    return fail(errc::model_not_found,
                fmt::format("model {} is not served here, only {}", quoted(request.model), names),
                "model");
  }
  request.variant = served->variant;
  const auto numbers = json_numbers_of(request.variant);
  request.conversation.thinking = options.thinking_by_default;
  DI_TRY_VOID(read_thinking(fields, request.conversation));
  DI_TRY(
    request.conversation.messages,
    read_messages(fields, request.variant, request.conversation.thinking, options.most_messages));
  DI_TRY_VOID(read_response_format(fields, numbers, request));
  request.response_format = request.constraint.kind;
  DI_TRY_VOID(read_tool_use(fields, numbers, request));
  DI_TRY_VOID(read_sampling(fields, options, request.sampling));
  DI_TRY_VOID(read_stream(fields, request));
  DI_TRY(request.cache_salt, fields.text("cache_salt"));
  return request;
}

result<chat_request> parse_chat_request(std::string_view body,
                                        const chat_request_options& options) {
  for (std::size_t at = 0; at < body.size();) {
    const auto step = read_utf8(body.substr(at));
    if (step.what != utf8_step::kind::valid)
      return fail(errc::invalid_utf8, fmt::format("the request body is not UTF-8 at byte {}", at));
    at += step.size;
  }
  DI_TRY(const auto value, parse_json(body, deepest_body), "request body");
  return read_chat_request(value, options);
}

}  // namespace deepinfer
