#include "actors/scripted_model.hpp"

#include <algorithm>
#include <limits>
#include <mutex>
#include <thread>
#include <unordered_map>

#include <fmt/format.h>

#include "actors/request_intake.hpp"
#include "actors/tokenizer_texts.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/fingerprint.hpp"
#include "runtime/base/json.hpp"
#include "runtime/base/log.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/json_grammar.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/model/hash_runner.hpp"

namespace deepinfer {
namespace {

using std::chrono::milliseconds;

constexpr std::int32_t model_len_by_default = 8192;
constexpr std::int32_t most_kv_tokens_by_default = 1 << 20;
constexpr std::int64_t longest_ms = 3'600'000;

tl::unexpected<error> bad(const std::string& place, const std::string& what) {
  return fail(errc::bad_config, place + ": " + what);
}

result<milliseconds> read_ms(const json::value& value, const std::string& place) {
  const auto* number = value.if_int64();
  if (!number || *number < 0 || *number > longest_ms)
    return bad(place,
               fmt::format("found {}, expected milliseconds, 0 to {}", to_text(value), longest_ms));
  return milliseconds(*number);
}

result<std::string> read_text(const json::value& value, const std::string& place) {
  const auto* text = value.if_string();
  if (!text) return bad(place, fmt::format("found {}, expected a text", to_text(value)));
  return std::string(text->data(), text->size());
}

result<std::vector<token_id>> read_ids(const json::value& value, const std::string& place,
                                       std::int32_t vocab) {
  const auto* list = value.if_array();
  if (!list) return bad(place, fmt::format("found {}, expected a list of ids", to_text(value)));
  std::vector<token_id> out;
  for (const auto& entry : *list) {
    const auto* id = entry.if_int64();
    if (!id || *id < 0 || *id >= vocab)
      return bad(fmt::format("{}[{}]", place, out.size()),
                 fmt::format("found {}, expected an id, 0 to {}", to_text(entry), vocab - 1));
    out.push_back(static_cast<token_id>(*id));
  }
  return out;
}

result<answer_script::ending> read_ending(const json::value& value, const std::string& place) {
  using ending = answer_script::ending;
  DI_TRY(const auto text, read_text(value, place));
  if (text == "stop") return ending::stop;
  if (text == "go on") return ending::go_on;
  if (text == "any") return ending::any;
  return bad(place, fmt::format("found {}, expected stop, go on or any", text));
}

result<answer_script::answer> read_answer(const json::value& value, const std::string& place,
                                          const tokenizer& words, bool may_have_when) {
  const auto* entry = value.if_object();
  if (!entry) return bad(place, fmt::format("found {}, expected an object", to_text(value)));
  if (entry->contains("say") && entry->contains("ids"))
    return bad(place, "found say and ids, expected one of them");
  answer_script::answer out;
  for (const auto& [key, it] : *entry) {
    const auto where = fmt::format("{}.{}", place, std::string_view(key));
    if (key == "when" && may_have_when) {
      DI_TRY(out.when, read_text(it, where));
    } else if (key == "say") {
      DI_TRY(const auto text, read_text(it, where));
      out.ids = words.encode(text, specials::on);
    } else if (key == "ids") {
      DI_TRY(out.ids, read_ids(it, where, words.vocab_size()));
    } else if (key == "then") {
      DI_TRY(out.then, read_ending(it, where));
    } else if (key == "first_ms") {
      DI_TRY(out.first, read_ms(it, where));
    } else {
      return bad(where, fmt::format("found an unknown key, expected {}say, ids, then or first_ms",
                                    may_have_when ? "when, " : ""));
    }
  }
  return out;
}

/// Work of the hash model that takes as long as the script says.
class paced_work final : public device_work {
public:
  paced_work(std::shared_ptr<device_work> inner, milliseconds takes)
    : inner_(std::move(inner)),
      takes_(takes) {}

  step_id step() const override { return inner_->step(); }
  bool is_gated() const override { return inner_->is_gated(); }
  void begin(step_phase phase) override { inner_->begin(phase); }
  device_status run(step_phase phase, const stream_ref& stream) override {
    // The thread is the simulated device's own: it is busy while it waits.
    if (phase == step_phase::forward && takes_ > milliseconds(0))
      std::this_thread::sleep_for(takes_);
    return inner_->run(phase, stream);
  }

  const device_work& inner() const { return *inner_; }
  device_work& inner() { return *inner_; }

private:
  std::shared_ptr<device_work> inner_;
  milliseconds takes_;
};

/// The hash model at the script's pace.
class scripted_runner final : public step_runner {
public:
  scripted_runner(const runner_config& sizes, const hash_model_config& model, milliseconds step)
    : inner_(sizes, model),
      step_(step) {}

  void add(seq_id sequence, hash_script script, milliseconds first) {
    inner_.register_script(sequence, std::move(script));
    if (first == milliseconds(0)) return;
    const std::lock_guard lock(mutex_);
    first_[sequence] = first;
  }
  void forget(seq_id sequence) {
    inner_.forget_script(sequence);
    const std::lock_guard lock(mutex_);
    first_.erase(sequence);
  }

  const runner_config& config() const override { return inner_.config(); }
  std::int32_t vocab_size() const override { return inner_.vocab_size(); }
  std::shared_ptr<device_work> stage(std::shared_ptr<const step_plan> plan) override {
    const auto takes = step_ + first_of(*plan);
    return std::make_shared<paced_work>(inner_.stage(std::move(plan)), takes);
  }
  void set_masks(device_work& work, std::shared_ptr<const sample_gate> masks) override {
    inner_.set_masks(static_cast<paced_work&>(work).inner(), std::move(masks));
  }
  void collect(const device_work& work, step_result& out) override {
    inner_.collect(static_cast<const paced_work&>(work).inner(), out);
    report();
  }
  void reset() override { inner_.reset(); }
  void poison(std::span<const block_id> blocks, std::span<const slot_id> slots) override {
    inner_.poison(blocks, slots);
  }

private:
  milliseconds first_of(const step_plan& plan) const {
    milliseconds out{0};
    const std::lock_guard lock(mutex_);
    for (const auto& start : plan.starts)
      if (const auto found = first_.find(start.sequence); found != first_.end())
        out = std::max(out, found->second);
    return out;
  }

  void report() {
    const auto count = inner_.canary().count();
    if (count == reported_) return;
    const auto errors = inner_.canary().errors();
    for (auto i = static_cast<std::size_t>(reported_); i < errors.size(); ++i)
      log(severity::error, "scripted model: {}: {}", errors[i].name, errors[i].text);
    reported_ = count;
  }

  hash_runner inner_;
  const milliseconds step_;
  std::uint64_t reported_ = 0;  // host thread
  mutable std::mutex mutex_;
  std::unordered_map<seq_id, milliseconds> first_;
};

runner_config sizes_of(const engine_settings& settings) {
  const auto& engine = settings.engine;
  runner_config out;
  out.depth = engine.depth;
  out.num_drafts = engine.num_drafts;
  out.max_num_seqs = engine.max_num_seqs;
  out.state_slots = engine.max_num_seqs * engine.depth;
  out.max_num_batched_tokens = engine.max_num_batched_tokens;
  out.max_model_len = settings.model.max_model_len.value_or(model_len_by_default);
  out.block_size = engine.block_size;
  out.stop_mask = engine.stop_mask;
  out.prefix_cache = engine.prefix_cache;
  out.resume_stride = engine.resume_stride;
  const pipeline_shape shape{engine.depth, engine.num_drafts, 0};
  const auto of_one = std::int64_t{blocks_for(out.max_model_len + shape.margin(), out.block_size)};
  const auto fitting =
    std::max<std::int64_t>(of_one, most_kv_tokens_by_default / std::max(1, out.block_size));
  out.num_kv_blocks = engine.num_kv_blocks.value_or(
    static_cast<std::int32_t>(std::min(fitting, of_one * engine.max_num_seqs)));
  return out;
}

/// What turns accepted requests into what the hash model is told.
struct script_teller {
  answer_script script;
  tokenizer words;
  std::shared_ptr<const std::vector<token_id>> harmless;
  std::shared_ptr<scripted_runner> runner;

  void tell(const sequence_request& request) const {
    std::string text;
    for (const auto id : *request.prompt) text += words.bytes_of(id);
    const auto& answer = script.answer_to(text);
    hash_script out;
    // A grammar's masks come from the scheduler: what they leave is not the canary's to know.
    if (request.params->grammar.empty()) out.prompt = *request.prompt;
    std::int32_t number = 0;
    for (const auto id : answer.ids) out.tokens.emplace_back(++number, id);
    if (answer.then == answer_script::ending::stop)
      out.stop_after = std::max(number, request.params->min_tokens) + 1;
    if (answer.then != answer_script::ending::any) out.words = harmless;
    runner->add(request.sequence, std::move(out), answer.first);
  }
};

std::shared_ptr<grammar_source> grammars_of(const tokenizer& words, const token_texts& texts) {
  return std::make_shared<json_grammar_source>(trie_of(words, texts, words.vocab_size()), -1,
                                               std::vector<token_id>{hash_stop_id});
}

intake_facts intake_of(const engine_settings& settings, const tokenizer& words,
                       const std::string& name, std::int32_t max_model_len) {
  auto out = intake_facts_of(settings, name, max_model_len);
  out.vocab_size = words.vocab_size();
  out.bos = words.id_of("<｜begin▁of▁sentence｜>").value_or(0);
  out.eos_ids = {hash_stop_id};
  return out;
}

}  // namespace

result<answer_script> answer_script::parse(std::string_view json_text, const tokenizer& words) {
  DI_TRY(const auto value, parse_json(json_text));
  const auto* file = value.if_object();
  if (!file) return bad("script", "expected an object");
  answer_script out;
  out.otherwise_.ids = words.encode("OK.", specials::off);
  for (const auto& [key, it] : *file) {
    const std::string name(key);
    if (name == "step_ms") {
      DI_TRY(out.step_, read_ms(it, name));
    } else if (name == "otherwise") {
      DI_TRY(out.otherwise_, read_answer(it, name, words, false));
    } else if (name == "answers") {
      const auto* list = it.if_array();
      if (!list) return bad(name, fmt::format("found {}, expected a list", to_text(it)));
      for (const auto& entry : *list) {
        DI_TRY(auto answer,
               read_answer(entry, fmt::format("answers[{}]", out.answers_.size()), words, true));
        out.answers_.push_back(std::move(answer));
      }
    } else {
      return bad(name, "found an unknown key, expected step_ms, answers or otherwise");
    }
  }
  return out;
}

const answer_script::answer& answer_script::answer_to(std::string_view prompt_text) const {
  const auto found = std::find_if(answers_.begin(), answers_.end(), [&](const answer& it) {
    return prompt_text.find(it.when) != std::string_view::npos;
  });
  return found == answers_.end() ? otherwise_ : *found;
}

std::vector<token_id> harmless_words(const tokenizer& words) {
  std::vector<token_id> out;
  for (token_id id = hash_first_word; id < words.vocab_size(); ++id) {
    const auto bytes = words.bytes_of(id);
    const bool is_text = std::all_of(bytes.begin(), bytes.end(),
                                     [](char c) { return c >= ' ' && c <= '~' && c != '<'; });
    if (!bytes.empty() && is_text && !words.is_added(id)) out.push_back(id);
  }
  return out;
}

result<scripted_model> load_script(const engine_settings& settings, const std::string& model_path) {
  const auto& path = settings.model.script;
  DI_TRY(const auto text, read_file(path));
  DI_TRY(auto words, tokenizer::open(model_path));
  DI_TRY(const auto words_text, read_file(model_path + "/tokenizer.json"));
  if (words.id_of("<｜end▁of▁sentence｜>").value_or(-1) != hash_stop_id)
    return bad(model_path, fmt::format("a scripted model needs a tokenizer whose end of sequence "
                                       "has id {}",
                                       hash_stop_id));
  DI_TRY(auto script, answer_script::parse(text, words), path);
  auto harmless = std::make_shared<const std::vector<token_id>>(harmless_words(words));
  if (harmless->empty()) return bad(model_path, "no token of the tokenizer is plain text");

  const auto sizes = sizes_of(settings);
  hash_model_config model;
  model.vocab = words.vocab_size();
  model.first_id = 0;
  model.check = hash_check::last_block;
  model.keeps_written_ends = false;
  auto runner = std::make_shared<scripted_runner>(sizes, model, script.step());
  scripted_model out;
  const auto& names = settings.model.served_names;
  out.facts.model_name = names.empty() ? "scripted" : names.front();
  out.facts.model_path = path;
  out.facts.identity = fingerprint().add("script").add(text).add(words_text).text();
  out.facts.max_model_len = sizes.max_model_len;
  out.facts.num_kv_blocks = sizes.num_kv_blocks;
  out.facts.block_size = sizes.block_size;
  out.facts.threads = 1;
  out.facts.kernels = "none";
  auto& machines = out.machines;
  machines.on = std::make_unique<cpu_device>(cpu_device_config{1, 64});
  out.facts.device_name = machines.on->name();
  machines.runner = runner;
  machines.texts = std::make_shared<tokenizer_texts>(words);
  machines.intake = std::make_shared<request_intake>(
    words, intake_of(settings, words, out.facts.model_name, sizes.max_model_len));
  machines.eos_ids = {hash_stop_id};
  machines.think_end = words.id_of("</think>").value_or(-1);
  machines.grammars = grammars_of(words, *machines.texts);
  auto teller = std::make_shared<const script_teller>(
    script_teller{std::move(script), std::move(words), std::move(harmless), runner});
  machines.on_accepted = [teller](const sequence_request& request) { teller->tell(request); };
  machines.on_forgotten = [runner](seq_id sequence) { runner->forget(sequence); };
  return out;
}

}  // namespace deepinfer
