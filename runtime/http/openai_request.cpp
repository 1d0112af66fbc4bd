#include "runtime/http/openai_request.hpp"

#include <algorithm>
#include <array>
#include <limits>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/base/quoted.hpp"
#include "runtime/base/template_kwargs.hpp"
#include "runtime/http/refused_fields.hpp"
#include "runtime/http/request_body.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t most_logprobs = 20;
constexpr std::ptrdiff_t longest_name = 512;  ///< in characters, as JSON Schema counts

/// What the engine's own reader of chats knows, sampling included: so that the node's policy sees
/// what the client has asked for. Beside these: `chat_switches`.
constexpr std::array<std::string_view, 22> chat_fields{"messages",
                                                       "tools",
                                                       "tool_choice",
                                                       "response_format",
                                                       "temperature",
                                                       "top_p",
                                                       "top_k",
                                                       "min_p",
                                                       "presence_penalty",
                                                       "frequency_penalty",
                                                       "repetition_penalty",
                                                       "seed",
                                                       "max_tokens",
                                                       "max_completion_tokens",
                                                       "min_tokens",
                                                       "stop",
                                                       "stop_token_ids",
                                                       "logit_bias",
                                                       "logprobs",
                                                       "top_logprobs",
                                                       "ignore_eos",
                                                       "cache_salt"};

/// Of UTF-8: the bytes that begin one.
std::ptrdiff_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; });
}

/// `name` where it is given and not empty.
result<std::string> short_text(json_fields& body, std::string_view name) {
  DI_TRY(auto text, body.text(name));
  if (const auto found = text ? count_characters(*text) : 0; found > longest_name)
    return body.failure(
      name, fmt::format("found {} characters, expected at most {}", found, longest_name));
  return std::move(text).value_or("");
}

/// Who asks, and in which order his requests come.
result<void> read_client(json_fields& body, generate_request& request) {
  DI_TRY(const auto user, short_text(body, "user"));
  DI_TRY(const auto user_id, short_text(body, "user_id"));
  request.session = user_id.empty() ? user : user_id;
  DI_TRY(const auto salt, body.text("cache_salt"));
  if (salt && salt->empty())
    return body.failure("cache_salt", "found an empty string, expected at least one byte");
  request.cache_salt = salt;
  DI_TRY(const auto priority, body.integer("priority", std::numeric_limits<std::int32_t>::min(),
                                           std::numeric_limits<std::int32_t>::max()));
  request.priority = static_cast<std::int32_t>(priority.value_or(0));
  return {};
}

result<void> read_stream_options(json_fields& body, openai_job& job) {
  DI_TRY(job.stream, body.flag("stream", false));
  DI_TRY(job.timings, body.flag("timings", false));
  DI_TRY(auto options, body.object("stream_options"));
  if (!options) return {};
  DI_TRY(job.include_usage, options->flag("include_usage", false));
  const auto others = options->unknown();
  job.ignored.insert(job.ignored.end(), others.begin(), others.end());
  if (!job.stream) return body.failure("stream_options", "needs \"stream\": true");
  return {};
}

result<void> read_common(json_fields& body, const openai_limits& limits, openai_job& job,
                         generate_request& request) {
  DI_TRY(auto model, body.text("model"));
  job.model = std::move(model).value_or("");
  DI_TRY(const auto n, body.integer("n", 1, limits.max_n));
  job.n = static_cast<std::int32_t>(n.value_or(1));
  DI_TRY_VOID(read_stream_options(body, job));
  DI_TRY_VOID(read_client(body, request));
  DI_TRY_VOID(read_sampling(body, request.sampling));
  DI_TRY(job.lengths, read_lengths(body, request.sampling));
  DI_TRY_VOID(read_response_format(body, request.sampling));
  request.sampling.n = job.n;
  return refuse_fields(body);
}

result<void> refuse_unless_false(json_fields& body, std::string_view name,
                                 std::string_view instead) {
  DI_TRY(const auto is_on, body.flag(name, false));
  if (is_on) return body.failure(name, fmt::format("true is not supported yet{}", instead));
  return {};
}

/// Of vLLM: a prompt that does not end where an answer begins. Arguments of a template may say the
/// same.
result<void> refuse_other_ends(json_fields& body) {
  DI_TRY(auto arguments, body.object("chat_template_kwargs"));
  if (arguments) DI_TRY_VOID(refuse_other_ends(*arguments));
  DI_TRY_VOID(refuse_unless_false(body, "continue_final_message",
                                  ": \"prefix\": true in the last message does it"));
  DI_TRY(const auto has_end, body.flag("add_generation_prompt", true));
  if (!has_end)
    return body.failure("add_generation_prompt",
                        "false is not supported: a prompt ends where the answer begins");
  return {};
}

/// Whether the engine lets the answer begin with reasoning. What it refuses is its own affair.
bool is_thinking(const json::object& chat) {
  bool thinks = false;
  if (const auto* effort = chat.if_contains("reasoning_effort"))
    thinks = !effort->is_string() || effort->get_string() != "none";
  if (const auto* thinking = chat.if_contains("thinking"); thinking && thinking->is_object()) {
    const auto* type = thinking->get_object().if_contains("type");
    thinks = type && type->is_string() && type->get_string() != "disabled";
  }
  return thinks;
}

result<void> read_tool_choice(json_fields& body) {
  const auto* choice = body.find("tool_choice");
  const bool is_named = choice && choice->is_object();
  if (choice && !is_named && !choice->is_string())
    return body.wrong("tool_choice", *choice, "auto or none");
  if (is_named || (choice && choice->get_string() == "required"))
    return body.failure("tool_choice",
                        "a required call is not supported yet, \"auto\" and \"none\" are");
  if (choice && choice->get_string() != "auto" && choice->get_string() != "none")
    return body.wrong("tool_choice", *choice, "auto or none");
  DI_TRY(const auto parallel, body.flag("parallel_tool_calls", true));
  if (!parallel)
    return body.failure("parallel_tool_calls",
                        "false is not supported yet: an answer may hold several calls");
  return {};
}

result<void> read_chat_logprobs(json_fields& body, openai_job& job) {
  DI_TRY(job.logprobs, body.flag("logprobs", false));
  DI_TRY(const auto top, body.integer("top_logprobs", 0, most_logprobs));
  if (top.value_or(0) > 0 && !job.logprobs)
    return body.failure("top_logprobs", "needs \"logprobs\": true");
  return {};
}

/// The fields that the engine's reader knows. `top_k` -1 is vLLM's word for off. What has no effect
/// is noted in `ignored`.
result<json::object> engine_chat(json_fields& body, std::vector<std::string>& ignored) {
  json::object out;
  for (const auto name : chat_fields)
    if (const auto* value = body.find(name)) out[name] = *value;
  const auto* top_k = out.if_contains("top_k");
  if (top_k && *top_k == -1) out["top_k"] = 0;
  const auto* logprobs = out.if_contains("logprobs");
  if (!logprobs || *logprobs == false) out.erase("top_logprobs");
  DI_TRY(const auto switches, read_chat_switches(body));
  for (const auto& [name, value] : switches.fields) out[name] = value;
  ignored.insert(ignored.end(), switches.meaningless.begin(), switches.meaningless.end());
  return out;
}

result<void> read_chat(json_fields& body, openai_job& job, generate_request& request) {
  if (!body.find("messages")) return body.failure("messages", "is missing");
  if (!body.find("messages")->is_array())
    return body.wrong("messages", *body.find("messages"), "a list of messages");
  DI_TRY_VOID(read_tool_choice(body));
  DI_TRY_VOID(read_chat_logprobs(body, job));
  DI_TRY_VOID(refuse_other_ends(body));
  if (request.sampling.include_stop)
    return body.failure("include_stop_str_in_output",
                        "a chat answer never includes its stop string");
  DI_TRY(const auto engine, engine_chat(body, job.ignored));
  job.thinking = is_thinking(engine);
  request.chat = to_text(engine);
  // The engine reads these from the chat, where its policy sees them.
  sampling_request kept;
  kept.n = request.sampling.n;
  kept.skip_special_tokens = request.sampling.skip_special_tokens;
  request.sampling = kept;
  job.requests = {std::move(request)};
  return {};
}

result<std::vector<token_id>> read_ids(const json_fields& body, const json::array& items,
                                       const std::string& place) {
  if (items.empty()) return body.failure(place, "found an empty list, expected token ids");
  return body.ids_of(items, place);
}

/// A text, ids, or a list of either: one request each, alike but for the prompt.
result<void> read_prompts(json_fields& body, const openai_limits& limits, openai_job& job,
                          const generate_request& like) {
  const auto* prompt = body.find("prompt");
  if (!prompt) return body.failure("prompt", "is missing");
  const auto add = [&] { return job.requests.emplace_back(like), &job.requests.back(); };
  if (prompt->is_string()) {
    add()->text = std::string(prompt->get_string());
    return {};
  }
  if (!prompt->is_array())
    return body.wrong("prompt", *prompt, "a string, token ids, or a list of either");
  const auto& items = prompt->get_array();
  if (items.empty()) return body.failure("prompt", "found an empty list");
  if (items[0].is_number()) {
    DI_TRY(add()->ids, read_ids(body, items, "prompt"));
    return {};
  }
  const auto answers = static_cast<std::int64_t>(items.size()) * job.n;
  if (answers > limits.max_answers)
    return body.failure("prompt", fmt::format("found {} prompts, {} answers in all, expected at "
                                              "most {}",
                                              items.size(), answers, limits.max_answers));
  const bool is_text = items[0].is_string();
  for (std::size_t i = 0; i < items.size(); ++i) {
    const auto place = fmt::format("prompt[{}]", i);
    if (is_text != items[i].is_string() || (!is_text && !items[i].is_array()))
      return body.wrong(place, items[i], is_text ? "a string as before" : "a list of token ids");
    if (is_text) {
      add()->text = std::string(items[i].get_string());
    } else {
      DI_TRY(auto ids, read_ids(body, items[i].get_array(), place));
      add()->ids = std::move(ids);
    }
  }
  return {};
}

result<void> read_completion(json_fields& body, const openai_limits& limits, openai_job& job,
                             generate_request& request) {
  DI_TRY_VOID(refuse_unless_false(body, "echo", ""));
  DI_TRY(const auto suffix, body.text("suffix"));
  if (suffix && !suffix->empty()) return body.failure("suffix", "is not supported yet");
  DI_TRY(const auto best_of, body.integer("best_of", 1, limits.max_n));
  if (best_of && *best_of != 1 && *best_of != job.n)
    return body.failure("best_of",
                        fmt::format("found {}, expected 1 or n = {}: choosing among more "
                                    "answers is not supported",
                                    *best_of, job.n));
  DI_TRY(const auto logprobs, body.integer("logprobs", 0, most_logprobs));
  if (logprobs) request.sampling.logprobs = static_cast<std::int32_t>(*logprobs);
  job.logprobs = logprobs.has_value();
  return read_prompts(body, limits, job, request);
}

result<void> check_lengths(const openai_job& job, const model_info& served) {
  for (const auto& it : job.lengths)
    if (served.max_model_len > 0 && it.tokens > served.max_model_len)
      return fail(errc::context_length_exceeded,
                  fmt::format("{}: found {}, expected at most {}, the context length of the served "
                              "model (max_model_len)",
                              it.field, it.tokens, served.max_model_len),
                  it.field);
  return {};
}

}  // namespace

result<openai_job> read_openai_request(openai_endpoint endpoint, std::string_view body,
                                       const openai_limits& limits) {
  DI_TRY(const auto parsed, parse_body(body, limits.max_depth));
  json_fields fields(parsed.get_object());
  openai_job job;
  job.endpoint = endpoint;
  generate_request request;
  DI_TRY_VOID(read_common(fields, limits, job, request));
  if (endpoint == openai_endpoint::chat)
    DI_TRY_VOID(read_chat(fields, job, request));
  else
    DI_TRY_VOID(read_completion(fields, limits, job, request));
  const auto unknown = fields.unknown();
  job.ignored.insert(job.ignored.end(), unknown.begin(), unknown.end());
  DI_TRY_VOID(check_ignored(job.ignored, limits));
  return job;
}

result<void> check_model_name(const std::string& asked, const model_info& served) {
  const auto& names = served.names;
  if (asked.empty() || std::find(names.begin(), names.end(), asked) != names.end()) return {};
  return fail(
    errc::model_not_found,
    fmt::format("model: {} is not served here, only {}", quoted(asked), fmt::join(names, ", ")),
    "model");
}

result<void> check_served(const openai_job& job, const model_info& served) {
  DI_TRY_VOID(check_model_name(job.model, served));
  DI_TRY_VOID(check_lengths(job, served));
  if (served.vocab_size <= 0) return {};
  for (std::size_t p = 0; p < job.requests.size(); ++p) {
    const auto& ids = job.requests[p].ids;
    if (!ids) continue;
    const auto bad =
      std::find_if(ids->begin(), ids->end(), [&](token_id id) { return id >= served.vocab_size; });
    if (bad == ids->end()) continue;
    const auto at = bad - ids->begin();
    const auto place = job.requests.size() > 1 ? fmt::format("prompt[{}][{}]", p, at)
                                               : fmt::format("prompt[{}]", at);
    return fail(errc::invalid_argument,
                fmt::format("{}: found {}, expected 0 to {}", place, *bad, served.vocab_size - 1),
                "prompt");
  }
  return {};
}

result<void> check_ignored(const std::vector<std::string>& ignored, const openai_limits& limits) {
  if (!limits.strict_fields || ignored.empty()) return {};
  const auto& name = ignored.front();
  return fail(errc::invalid_argument, fmt::format("{}: is not known here", quoted(name)), name);
}

result<std::string> read_chat_body(json_fields& body, std::vector<std::string>& ignored) {
  if (!body.find("messages")) return body.failure("messages", "is missing");
  DI_TRY_VOID(refuse_other_ends(body));
  DI_TRY(const auto engine, engine_chat(body, ignored));
  return to_text(engine);
}

}  // namespace deepinfer
