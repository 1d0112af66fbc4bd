#include "actors/request_intake.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "actors/request_input.hpp"
#include "runtime/core/prefix_key.hpp"
#include "runtime/text/chat_encoding.hpp"
#include "runtime/text/chat_request.hpp"

namespace deepinfer {
namespace {

constexpr const char* json_object_grammar = "json_object";
constexpr std::size_t max_stop_strings = 16;
constexpr std::int32_t max_logprobs = 20;
// OpenAI's API has this bias; penalties in use lie between 0.5 and 2. Within these bounds a logit
// comes to at most 100 * (its own + 100), which no model's makes infinite.
constexpr float max_bias = 100.0f;
constexpr float least_repetition_penalty = 0.01f;
constexpr float most_repetition_penalty = 100.0f;
// An answer names its seed: a request over HTTP, whose numbers are signed, must be able to bring
// it.
constexpr std::uint64_t most_seed = std::numeric_limits<std::int64_t>::max();

tl::unexpected<error> bad(const std::string& param, const std::string& message) {
  return fail(errc::invalid_argument, param + ": " + message, param);
}

result<void> in_range(const char* param, float value, float least, float most) {
  if (value >= least && value <= most) return {};
  return bad(param, fmt::format("found {}, expected {} to {}", value, least, most));
}

result<void> above_zero(const char* param, float value, float most) {
  if (value > 0.0f && value <= most) return {};
  return bad(param, fmt::format("found {}, expected a number above 0, at most {}", value, most));
}

/// Fields that plain and chat requests share: those the client set win.
void overlay(const sampling_request& asked, sampling_params& params) {
  if (asked.temperature) params.temperature = *asked.temperature;
  if (asked.top_p) params.top_p = *asked.top_p;
  if (asked.top_k) params.top_k = *asked.top_k < 0 ? 0 : *asked.top_k;
  if (asked.min_p) params.min_p = *asked.min_p;
  if (asked.presence_penalty) params.presence_penalty = *asked.presence_penalty;
  if (asked.frequency_penalty) params.frequency_penalty = *asked.frequency_penalty;
  if (asked.repetition_penalty) params.repetition_penalty = *asked.repetition_penalty;
  if (asked.seed) params.seed = *asked.seed;
  if (asked.max_tokens) params.max_tokens = *asked.max_tokens;
  if (asked.min_tokens > 0) params.min_tokens = asked.min_tokens;
  if (asked.logprobs) params.logprobs = *asked.logprobs;
  if (asked.ignore_eos) params.ignore_eos = true;
  params.include_stop = asked.include_stop;
  params.skip_special_tokens = asked.skip_special_tokens;
  if (!asked.grammar.empty()) params.grammar = asked.grammar;
  if (!asked.stop_token_ids.empty()) params.stop_token_ids = asked.stop_token_ids;
  if (!asked.stop.empty()) params.stop = asked.stop;
  if (!asked.logit_bias.empty()) params.logit_bias = asked.logit_bias;
}

/// What the answer is to be held to must be built, and go together: a grammar lets no call through,
/// and calls without one would leave an answer that is JSON to chance.
result<void> check_constraint(const chat_request& chat, const sampling_request& asked) {
  const auto without_tools = "without tools, or with tool_choice none, it is";
  if (chat.parse_tool_calls && chat.json_output)
    return bad(
      "response_format",
      fmt::format("json_object together with tools is not supported yet; {}", without_tools));
  if (chat.parse_tool_calls && !asked.grammar.empty())
    return bad("grammar", fmt::format("{} together with tools is not supported yet; {}",
                                      asked.grammar, without_tools));
  for (const auto kind : {chat.response_format, chat.constraint.kind}) {
    const bool is_built = kind == constraint_kind::none || kind == constraint_kind::tool_call ||
                          (kind == constraint_kind::json && chat.json_output);
    if (!is_built)
      return bad("response_format",
                 fmt::format("{} needs structured output, which is not built yet", name_of(kind)));
  }
  return {};
}

/// An empty salt is refused: a tenant whose name got lost must not share with everyone.
result<std::uint64_t> salt_of(const std::optional<std::string>& text) {
  if (!text) return 0;
  if (text->empty())
    return bad("cache_salt", "found an empty text, expected at least one byte, or no salt");
  return prefix_salt(*text);
}

output_stream_options output_of(const sampling_params& params) {
  output_stream_options output;
  output.skip_special = params.skip_special_tokens;
  output.include_stop = params.include_stop;
  output.stop = params.stop;
  return output;
}

std::vector<std::string> names_of(const intake_facts& facts) {
  if (!facts.served_names.empty()) return facts.served_names;
  return {facts.model_name};
}

/// A model that runs on must not forge the next turn: whoever speaks, the answer ends there.
void end_at_turns(const tokenizer& words, sampling_params& params) {
  if (params.ignore_eos) return;
  auto& ids = params.stop_token_ids;
  for (const auto* name :
       {"<｜User｜>", "<｜Assistant｜>", "<｜System｜>", "<｜latest_reminder｜>"}) {
    const auto id = words.id_of(name);
    if (id && std::find(ids.begin(), ids.end(), *id) == ids.end()) ids.push_back(*id);
  }
}

}  // namespace

intake_facts intake_facts_of(const engine_settings& settings, std::string model_name,
                             std::int32_t max_model_len) {
  intake_facts out;
  out.model_name = std::move(model_name);
  out.served_names = settings.model.served_names;
  out.max_model_len = max_model_len;
  out.policy = settings.engine.sampling_policy == sampling_rule::deepseek
                 ? sampling_policy::deepseek
                 : sampling_policy::as_requested;
  out.stop_in_reasoning = settings.engine.stop_in_reasoning;
  return out;
}

result<chat_request> request_intake::read_chat(const std::string& text) const {
  DI_TRY(json::value body, parse_json(text));
  if (auto* object = body.if_object(); object && !object->contains("model"))
    object->emplace("model", facts_.model_name);
  chat_request_options options;
  options.models.clear();
  for (auto& name : names_of(facts_)) options.models.push_back({std::move(name), facts_.variant});
  options.thinking_by_default = false;
  options.most_output_tokens = facts_.max_model_len;
  return read_chat_request(body, options);
}

result<accepted_request> request_intake::accept(const generate_request& request,
                                                std::uint64_t drawn_seed) const {
  DI_TRY_VOID(check_input(request));
  DI_TRY_VOID(check_model(request.model));
  if (request.sampling.n < 1 || request.sampling.n > most_answers)
    return bad("n", fmt::format("found {}, expected 1 to {}", request.sampling.n, most_answers));
  if (request.chat) return accept_chat(request, drawn_seed);
  DI_TRY(auto prompt, plain_prompt(request));
  DI_TRY_VOID(check_prompt(prompt));
  auto params = std::make_shared<sampling_params>();
  params->seed = drawn_seed;
  overlay(request.sampling, *params);
  DI_TRY_VOID(check(*params));
  DI_TRY_VOID(check_limit(prompt.size(), request.sampling.max_tokens));
  accepted_request accepted;
  accepted.prompt = std::make_shared<const std::vector<token_id>>(std::move(prompt));
  accepted.output = output_of(*params);
  accepted.params = std::move(params);
  accepted.asked_max_tokens = request.sampling.max_tokens;
  DI_TRY(accepted.cache_salt, salt_of(request.cache_salt));
  return accepted;
}

result<accepted_request> request_intake::accept_chat(const generate_request& request,
                                                     std::uint64_t drawn_seed) const {
  DI_TRY(auto chat, read_chat(*request.chat));
  const auto& asked = request.sampling;
  DI_TRY_VOID(check_constraint(chat, asked));
  if (asked.temperature) chat.sampling.temperature = *asked.temperature;
  if (asked.top_p) chat.sampling.top_p = *asked.top_p;
  if (asked.max_tokens) chat.sampling.max_tokens = chat.sampling.max_completion_tokens = {};
  DI_TRY(auto prompt, encode_prompt(render_chat(chat.conversation, facts_.variant), words_));
  DI_TRY_VOID(check_prompt(prompt));
  DI_TRY_VOID(check_limit(prompt.size(), asked.max_tokens));
  DI_TRY(auto resolved,
         resolve_sampling(chat, facts_.policy, static_cast<std::int64_t>(prompt.size()),
                          facts_.max_model_len, drawn_seed));
  auto rest = asked;  // temperature and top_p were resolved by policy above
  rest.temperature.reset();
  rest.top_p.reset();
  if (asked.include_stop)
    return bad("include_stop", "a chat answer never includes its stop string");
  auto params = std::make_shared<sampling_params>(std::move(resolved));
  overlay(rest, *params);
  if (chat.json_output) params->grammar = json_object_grammar;
  // A grammar is of the answer: it begins behind the end of the reasoning.
  const auto begins = parse_start_of(chat.conversation);
  params->reasoning =
    begins == parse_start::reasoning || begins == parse_start::reasoning_continuation;
  DI_TRY_VOID(check(*params));
  end_at_turns(words_, *params);
  accepted_request accepted;
  accepted.output = output_of(*params);
  // In a chat, stop strings are looked for in the content, and in the reasoning if the node wants
  // it, but not in calls, so the parser does it: the scheduler does not tell the parts apart.
  output_mode mode;
  mode.stop = asked.stop.empty() ? chat.sampling.stop : asked.stop;
  mode.stop_in_reasoning = facts_.stop_in_reasoning;
  params->stop.clear();
  accepted.output.stop.clear();
  mode.start = parse_start_of(chat.conversation);
  mode.parse_tool_calls = chat.parse_tool_calls;
  // The parser blanks what is not JSON: only where the grammar lets nothing else come.
  mode.json_output = chat.json_output && params->grammar == json_object_grammar;
  accepted.output.chat = std::move(mode);
  accepted.prompt = std::make_shared<const std::vector<token_id>>(std::move(prompt));
  const auto& wished = chat.sampling;
  const bool has_limit = asked.max_tokens || wished.max_tokens || wished.max_completion_tokens;
  if (has_limit) accepted.asked_max_tokens = params->max_tokens;
  accepted.params = std::move(params);
  DI_TRY(accepted.cache_salt, salt_of(request.cache_salt ? request.cache_salt : chat.cache_salt));
  return accepted;
}

result<void> request_intake::check_model(const std::string& name) const {
  const auto names = names_of(facts_);
  if (name.empty() || std::find(names.begin(), names.end(), name) != names.end()) return {};
  return fail(errc::model_not_found,
              fmt::format("model: found {}, served are {}", name, fmt::join(names, ", ")), "model");
}

result<std::vector<token_id>> request_intake::plain_prompt(const generate_request& request) const {
  if (request.ids) return *request.ids;
  std::vector<token_id> prompt{facts_.bos};
  words_.encode_into(prompt, *request.text, specials::on);
  return prompt;
}

result<void> request_intake::check_prompt(const std::vector<token_id>& prompt) const {
  if (prompt.empty()) return bad("ids", "the prompt is empty, at least one token id is needed");
  for (std::size_t i = 0; i < prompt.size(); ++i) {
    if (prompt[i] < 0 || prompt[i] >= facts_.vocab_size)
      return bad(
        "ids", fmt::format("entry {} is {}, expected 0..{}", i, prompt[i], facts_.vocab_size - 1));
  }
  if (static_cast<std::int64_t>(prompt.size()) >= facts_.max_model_len)
    return fail(
      errc::context_length_exceeded,
      fmt::format("the prompt has {} tokens, the context holds {} with at least one output",
                  prompt.size(), facts_.max_model_len),
      "prompt");
  return {};
}

/// Where the client says how long the answer may get, that must fit; else it ends with the context.
result<void> request_intake::check_limit(std::size_t prompt_tokens,
                                         std::optional<std::int32_t> wanted) const {
  const auto prompt = static_cast<std::int64_t>(prompt_tokens);
  if (!wanted || *wanted <= facts_.max_model_len - prompt) return {};
  return fail(errc::context_length_exceeded,
              fmt::format("the prompt has {} tokens and {} more are asked for, {} in all, but the "
                          "context holds {}: shorten the prompt or lower max_tokens",
                          prompt, *wanted, prompt + *wanted, facts_.max_model_len),
              "max_tokens");
}

result<void> request_intake::check_stop_ids(const sampling_params& params) const {
  for (const auto id : params.stop_token_ids)
    if (id < 0 || id >= facts_.vocab_size)
      return bad("stop_token_ids",
                 fmt::format("found {}, expected 0 to {}", id, facts_.vocab_size - 1));
  // Before min_tokens outputs none of them may come: somebody must be left.
  const auto vocab = static_cast<std::size_t>(facts_.vocab_size);
  if (params.min_tokens == 0 || params.stop_token_ids.size() + facts_.eos_ids.size() < vocab)
    return {};
  std::set<token_id> masked(params.stop_token_ids.begin(), params.stop_token_ids.end());
  if (!params.ignore_eos) masked.insert(facts_.eos_ids.begin(), facts_.eos_ids.end());
  if (masked.size() >= vocab)
    return bad("stop_token_ids",
               fmt::format("found all {} ids of the vocabulary beside min_tokens = {}, expected "
                           "some that may come first",
                           vocab, params.min_tokens));
  return {};
}

result<void> request_intake::check(const sampling_params& params) const {
  constexpr float huge = 1e6f;
  DI_TRY_VOID(in_range("temperature", params.temperature, 0.0f, huge));
  DI_TRY_VOID(above_zero("top_p", params.top_p, 1.0f));
  DI_TRY_VOID(in_range("min_p", params.min_p, 0.0f, 1.0f));
  DI_TRY_VOID(in_range("presence_penalty", params.presence_penalty, -2.0f, 2.0f));
  DI_TRY_VOID(in_range("frequency_penalty", params.frequency_penalty, -2.0f, 2.0f));
  DI_TRY_VOID(in_range("repetition_penalty", params.repetition_penalty, least_repetition_penalty,
                       most_repetition_penalty));
  if (params.seed > most_seed)
    return bad("seed", fmt::format("found {}, expected 0 to {}", params.seed, most_seed));
  if (params.max_tokens == 0 || params.max_tokens < -1)
    return bad("max_tokens", fmt::format("found {}, expected at least 1", params.max_tokens));
  if (params.min_tokens < 0 || (params.max_tokens > 0 && params.min_tokens > params.max_tokens))
    return bad("min_tokens", fmt::format("found {}, expected 0 to max_tokens = {}",
                                         params.min_tokens, params.max_tokens));
  if (params.logprobs < -1 || params.logprobs > max_logprobs)
    return bad("logprobs",
               fmt::format("found {}, expected 0 to {}", params.logprobs, max_logprobs));
  if (!params.grammar.empty() && params.grammar != json_object_grammar)
    return bad("grammar",
               fmt::format("found {}, expected {}", params.grammar, json_object_grammar));
  if (!params.grammar.empty() && params.min_tokens > 0)
    return bad("min_tokens", "with a grammar the text ends where the grammar does");
  if (params.stop.size() > max_stop_strings)
    return bad("stop", fmt::format("{} strings, at most {} are allowed", params.stop.size(),
                                   max_stop_strings));
  for (const auto& stop : params.stop)
    if (stop.empty()) return bad("stop", "an empty stop string");
  DI_TRY_VOID(check_stop_ids(params));
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= facts_.vocab_size)
      return bad("logit_bias", fmt::format("id {} is not in 0..{}", id, facts_.vocab_size - 1));
    if (!(std::abs(bias) <= max_bias))
      return bad("logit_bias", fmt::format("found {} for id {}, expected {} to {}", bias, id,
                                           -max_bias, max_bias));
  }
  return {};
}

}  // namespace deepinfer
