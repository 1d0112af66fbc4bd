#include "actors/scenario/oracle.hpp"

#include <algorithm>

#include "runtime/model/hash_model.hpp"

namespace deepinfer {

namespace {

hash_model_config config_of(const scenario_model& model) {
  hash_model_config out;
  out.vocab = model.vocab;
  out.seed = model.seed;
  if (!model.experts) return out;
  out.experts.layers = model.experts->layers;
  out.experts.experts = model.experts->experts;
  out.experts.top_k = model.experts->top_k;
  out.experts.picks = model.experts->picks;
  return out;
}

hash_script script_of(const scenario_request& request, std::vector<token_id> prompt) {
  hash_script out;
  out.prompt = std::move(prompt);
  out.tokens.assign(request.tokens.begin(), request.tokens.end());
  out.stop_after = request.stop_after;
  if (!request.grammar) return out;
  auto& grammar = out.grammar.emplace();
  grammar.ends_after = request.grammar->ends_after;
  grammar.dead_end_at = request.grammar->dead_end_at;
  return out;
}

hash_sampling sampling_of(const scenario_request& request) {
  hash_sampling out;
  out.is_greedy = !request.sample_seed;
  out.seed = request.sample_seed.value_or(0);
  out.has_penalty = request.penalty;
  out.min_tokens = request.min_tokens;
  out.has_reasoning = request.reasoning;
  return out;
}

std::vector<token_id> prompt_of(const scenario_request& request, const scenario_model& model,
                                const std::vector<oracle_answer>& earlier) {
  if (request.prompt_ids) return *request.prompt_ids;
  std::vector<token_id> out;
  if (request.continues >= 0) {
    const auto& before = earlier[static_cast<std::size_t>(request.continues)];
    out = before.prompt;
    out.insert(out.end(), before.tokens.begin(), before.tokens.end());
  }
  const auto text = hash_prompt(config_of(model), request.prompt, request.prompt_tokens);
  out.insert(out.end(), text.begin(), text.end());
  return out;
}

/// Does an output complete a stop string?
class stop_texts {
public:
  explicit stop_texts(const std::vector<std::string>& stops) : stops_(stops) {}

  bool add(std::string_view bytes, bool is_armed) {
    const auto before = text_.size();
    text_ += bytes;
    if (!is_armed) return false;
    for (const auto& stop : stops_) {
      if (stop.empty()) continue;
      const auto from = before + 1 > stop.size() ? before + 1 - stop.size() : 0;
      if (text_.find(stop, from) != std::string::npos) return true;
    }
    return false;
  }

private:
  const std::vector<std::string>& stops_;
  std::string text_;
};

/// Why the request does not start, in `out`; false: it does.
bool is_refused(const scenario_request& request, const scenario_case& it, oracle_answer& out) {
  const auto refuse = [&out](scenario_finish finish, errc code) {
    out.finish = finish;
    out.code = code;
    return true;
  };
  const auto tokens = static_cast<std::int64_t>(out.prompt.size());
  const bool is_legal =
    tokens > 0 && std::all_of(out.prompt.begin(), out.prompt.end(),
                              [&](token_id id) { return id >= 1 && id < it.model.vocab; });
  if (!is_legal) return refuse(scenario_finish::rejected, errc::invalid_argument);
  if (tokens >= it.engine.max_model_len)
    return refuse(scenario_finish::rejected, errc::context_length_exceeded);
  std::int64_t largest = 0;
  for (std::int32_t rank = 0; rank < it.engine.ranks; ++rank)
    if (request.rank < 0 || request.rank == rank)
      largest = std::max<std::int64_t>(largest, it.engine.blocks_of(rank));
  if (tokens > largest * it.engine.block_size)
    return refuse(scenario_finish::resource, errc::no_blocks);
  return false;
}

void say(const scenario_request& request, const scenario_case& it, oracle_answer& out) {
  const auto prompt_tokens = static_cast<std::int32_t>(out.prompt.size());
  const auto limit = std::min(request.max_tokens, it.engine.max_model_len - prompt_tokens);
  hash_sequence sequence(config_of(it.model), script_of(request, out.prompt), sampling_of(request));
  stop_texts texts(request.stop);
  bool is_reasoning = request.reasoning;
  for (std::int32_t number = 1; out.finish == scenario_finish::none; ++number) {
    const auto id = sequence.output(number);
    if (sequence.dead_end() == number) {
      out.finish = scenario_finish::error;
      out.code = errc::grammar_failed;
      return;
    }
    out.tokens.push_back(id);
    out.logprobs.push_back(hash_logprob(sequence.chain(prompt_tokens + number - 2)));
    const bool may_stop = number >= request.min_tokens;
    const bool is_stop_id =
      id == hash_stop_id ||
      std::find(request.stop_ids.begin(), request.stop_ids.end(), id) != request.stop_ids.end();
    const bool is_armed = may_stop && (it.engine.policy.stop_in_reasoning || !is_reasoning);
    const bool is_stop_text = texts.add(hash_text(id), is_armed);
    if ((may_stop && is_stop_id) || is_stop_text)
      out.finish = scenario_finish::stop;
    else if (number >= limit)
      out.finish = scenario_finish::length;
    is_reasoning &= id != hash_end_of_reasoning_id;
  }
}

}  // namespace

std::int32_t reasoning_tokens_of(const std::vector<token_id>& outputs) {
  const auto end = std::find(outputs.begin(), outputs.end(), hash_end_of_reasoning_id);
  return static_cast<std::int32_t>(end - outputs.begin()) + (end == outputs.end() ? 0 : 1);
}

std::vector<oracle_answer> ask_oracle(const scenario& of, const scenario_case& it) {
  std::vector<oracle_answer> out;
  for (const auto& request : of.requests) {
    oracle_answer answer;
    answer.prompt = prompt_of(request, it.model, out);
    if (!is_refused(request, it, answer)) say(request, it, answer);
    if (request.reasoning) answer.reasoning_tokens = reasoning_tokens_of(answer.tokens);
    out.push_back(std::move(answer));
  }
  return out;
}

}  // namespace deepinfer
