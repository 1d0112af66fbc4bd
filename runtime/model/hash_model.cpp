#include "runtime/model/hash_model.hpp"

#include <algorithm>

#include "runtime/base/check.hpp"

namespace deepinfer {

namespace {

token_id word(const hash_model_config& model, std::uint64_t draw) {
  const auto words = static_cast<std::uint64_t>(model.vocab - hash_first_word);
  return hash_first_word + static_cast<token_id>(draw % words);
}

}  // namespace

std::string hash_text(token_id id) {
  if (id >= hash_first_word) return std::to_string(id) + ' ';
  if (id >= hash_first_letter) return {static_cast<char>('a' + id - hash_first_letter)};
  return {};
}

std::uint64_t hash_key(std::string_view text) {
  std::uint64_t key = 0;
  for (const char c : text)
    key = hash_mix(key ^ (static_cast<unsigned char>(c) + std::uint64_t{1}));
  return key;
}

std::vector<token_id> hash_prompt(const hash_model_config& model, std::string_view text,
                                  std::int32_t count) {
  const auto key = hash_key(text);
  std::vector<token_id> out;
  for (std::int32_t i = 0; i < count; ++i)
    out.push_back(word(model, hash_mix(key + static_cast<std::uint64_t>(i) + 1)));
  return out;
}

hash_sampling hash_sampling::of(const sampling_params& params) {
  hash_sampling out;
  out.is_greedy = params.temperature < 1e-5f;
  out.seed = out.is_greedy ? 0 : params.seed;
  out.has_penalty = params.presence_penalty != 0.0f || params.frequency_penalty != 0.0f ||
                    params.repetition_penalty != 1.0f;
  out.min_tokens = params.min_tokens;
  out.has_logprobs = params.logprobs >= 0;
  out.has_reasoning = params.reasoning;
  out.ignores_eos = params.ignore_eos;
  out.stop_ids = params.stop_token_ids;
  return out;
}

bool hash_sampling::is_stop(token_id id, std::int32_t output) const {
  if (output < min_tokens) return false;
  if (id == hash_stop_id && !ignores_eos) return true;
  return std::find(stop_ids.begin(), stop_ids.end(), id) != stop_ids.end();
}

token_id hash_script::at(std::int32_t output) const {
  const auto place = static_cast<std::size_t>(output - 1);  // where every output is scripted
  if (place < tokens.size() && tokens[place].first == output) return tokens[place].second;
  for (const auto& [number, id] : tokens)
    if (number == output) return id;
  return stop_after > 0 && output == stop_after ? hash_stop_id : -1;
}

void hash_history::add(token_id output) {
  penalty_sum += hash_mix(static_cast<std::uint64_t>(output));
  grammar.add(output);
}

token_id hash_choice(const hash_model_config& model, const hash_sampling& sampling,
                     const hash_script* script, std::uint64_t chain, std::int32_t position,
                     std::int32_t output, std::uint64_t penalty_sum) {
  const auto scripted = script ? script->at(output) : -1;
  const bool is_early_stop = scripted == hash_stop_id && output <= sampling.min_tokens;
  if (scripted >= 0 && !is_early_stop) return scripted;
  std::uint64_t s = 0;
  if (!sampling.is_greedy)
    s = hash_mix(sampling.seed * hash_factor + static_cast<std::uint64_t>(position));
  if (sampling.has_penalty) s ^= penalty_sum;
  const auto draw = hash_mix(chain ^ s);
  if (script && script->words) return (*script->words)[draw % script->words->size()];
  return word(model, draw);
}

token_id hash_true_token(const hash_model_config& model, const hash_sampling& sampling,
                         const hash_script* script, std::uint64_t chain, std::int32_t position,
                         std::int32_t output, const hash_history& history, bool* is_dead_end) {
  const auto choice =
    hash_choice(model, sampling, script, chain, position, output, history.penalty_sum);
  if (!script || !script->grammar) return choice;
  const auto allowed = hash_first_allowed(*script->grammar, history.grammar, model.vocab, choice);
  if (allowed >= 0) return allowed;
  if (is_dead_end) *is_dead_end = true;
  return choice;
}

hash_sequence::hash_sequence(hash_model_config model, hash_script script, hash_sampling sampling)
  : model_(std::move(model)),
    script_(std::move(script)),
    sampling_(std::move(sampling)),
    ids_(script_.prompt),
    chains_{hash_chain_start(model_)},
    history_(hash_history::at_start(sampling_)) {
  DI_CHECK(!script_.prompt.empty(), "a sequence needs a prompt");
  for (std::size_t p = 0; p < ids_.size(); ++p)
    chains_.push_back(
      hash_chain_at(model_, {}, chains_.back(), static_cast<std::int32_t>(p), ids_[p]));
}

void hash_sequence::grow_to(std::int32_t position) {
  while (static_cast<std::int32_t>(ids_.size()) <= position) {
    const auto next = static_cast<std::int32_t>(ids_.size());
    const auto number = next - static_cast<std::int32_t>(script_.prompt.size()) + 1;
    bool is_dead_end = false;
    const auto id = hash_true_token(model_, sampling_, &script_, chains_.back(), next, number,
                                    history_, &is_dead_end);
    if (is_dead_end && dead_end_ == 0) dead_end_ = number;
    ids_.push_back(id);
    chains_.push_back(hash_chain_at(model_, {}, chains_.back(), next, id));
    history_.add(id);
  }
}

token_id hash_sequence::id(std::int32_t position) {
  grow_to(position);
  return ids_[static_cast<std::size_t>(position)];
}

std::uint64_t hash_sequence::chain(std::int32_t position) {
  grow_to(position);
  return chains_[static_cast<std::size_t>(position + 1)];
}

token_id hash_sequence::output(std::int32_t number) {
  return id(static_cast<std::int32_t>(script_.prompt.size()) + number - 1);
}

std::vector<token_id> hash_sequence::outputs(std::int32_t most) {
  std::vector<token_id> out;
  for (std::int32_t number = 1; number <= most; ++number) {
    const auto id = output(number);
    if (dead_end_ == number) break;
    out.push_back(id);
    if (id == hash_stop_id) break;
  }
  return out;
}

}  // namespace deepinfer
