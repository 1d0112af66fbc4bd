#include "runner_fixture.hpp"

#include <algorithm>
#include <deque>
#include <future>
#include <map>
#include <numeric>
#include <optional>

#include "forced_drafter.hpp"
#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"
#include "runtime/device/step_launch.hpp"

namespace deepinfer::test {

namespace {

struct sequence {
  const drive_request* request = nullptr;
  std::int32_t slot = -1;
  std::vector<std::int32_t> blocks;
  std::int32_t length = 0;            ///< true positions of settled rows
  std::int32_t widths_in_flight = 0;  ///< query tokens of launched rows that have not settled
  std::int32_t in_flight = 0;         ///< these rows
  std::int32_t yields_in_flight = 0;  ///< of these, the ones that give at least a token
  std::int32_t last_step = -1;        ///< step and row that named it last
  std::int32_t last_row = -1;
  std::int32_t outputs = 0;  ///< settled ones, over-run included
  token_id newest = -1;      ///< the last of them
  ids drafts;                ///< what the drafter made behind it
  bool waits_for_masks = false;
  bool is_ended = false;
  driven_output out;

  std::int32_t prompt() const { return static_cast<std::int32_t>(request->prompt.size()); }
  /// The row's first position: exact unless decode rows are in flight.
  std::int32_t planned() const { return length + widths_in_flight; }
  bool is_prefill() const { return planned() < prompt(); }
};

/// A staged step. What the fixture still has to run of it in place, or waits for.
struct open_step {
  std::shared_ptr<device_work> work;
  std::shared_ptr<const step_plan> plan;
  bool masks_are_due = false;
  bool is_launched_behind = false;  ///< a later step was, before the masks came
  bool has_run = false;             ///< in place
  held_step* held = nullptr;
  std::promise<device_status>* done = nullptr;
};

class driver {
public:
  driver(step_runner& runner, const std::vector<drive_request>& requests,
         const drive_options& options, token_id stop, drive_counts& counts)
    : runner_(runner),
      options_(options),
      stop_(stop),
      counts_(counts),
      team_(options.threads) {
    for (const auto& request : requests) sequences_.emplace_back().request = &request;
    for (std::int32_t i = options.slots; i-- > 0;) free_slots_.push_back(i);
    for (std::int32_t i = options.blocks; i-- > 0;) free_blocks_.push_back(i);
  }

  std::vector<driven_output> run() {
    constexpr std::int32_t steps_max = 4000;
    for (step_ = 1; step_ < steps_max; ++step_) {
      auto plan = std::make_shared<step_plan>(make_plan());
      const bool has_rows = plan->rows() > 0;
      if (has_rows) stage(std::move(plan));
      if (!options_.delays_masks) send_masks();
      if (!open_.empty() && (std::ssize(open_) == options_.depth || !has_rows)) settle();
      if (open_.empty() && all_ended()) break;
    }
    DI_CHECK(step_ < steps_max, "{} steps did not suffice", steps_max);
    std::vector<driven_output> outputs;
    for (auto& it : sequences_) outputs.push_back(std::move(it.out));
    return outputs;
  }

private:
  std::uint64_t number() const { return static_cast<std::uint64_t>(step_); }
  bool all_ended() const {
    return std::all_of(sequences_.begin(), sequences_.end(),
                       [](const sequence& it) { return it.is_ended; });
  }
  std::uint64_t draw(std::uint64_t seed, std::uint64_t i) const {
    return split_mix64(seed + number() * 7919 + i);
  }
  std::int32_t draw_to(std::uint64_t seed, std::uint64_t i, std::int32_t most) const {
    return 1 + static_cast<std::int32_t>(draw(seed, i) % static_cast<std::uint64_t>(most));
  }

  step_plan make_plan() {
    step_plan plan;
    plan.clear();
    plan.step = step_id{number()};
    std::vector<std::size_t> order(sequences_.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    if (options_.reverses_rows) std::reverse(order.begin(), order.end());
    std::int32_t room = options_.batched_tokens;
    for (const auto i : order)
      if (plan.rows() < options_.rows_max && room > 0) room -= add_row(plan, i, room);
    plan.total_width = std::accumulate(plan.widths.begin(), plan.widths.end(), 0);
    const bool has_chunk = std::count(plan.kinds.begin(), plan.kinds.end(), row_kind::prefill) > 0;
    if (options_.split_seed != 0 && !has_chunk && plan.rows() > 0)
      plan.total_width =
        plan.rows() - 1 + draw_to(options_.split_seed, 99, plan.total_width - plan.rows() + 1);
    return plan;
  }

  std::int32_t chunk_of(const sequence& it, std::size_t i) const {
    auto most = options_.chunk > 0 ? options_.chunk : it.prompt();
    if (options_.chunk_seed != 0) most = draw_to(options_.chunk_seed, i, most);
    return std::min(most, it.prompt() - it.planned());
  }

  std::int32_t decode_width(std::size_t i) const {
    const auto most = 1 + options_.num_drafts;
    return options_.width_seed != 0 ? draw_to(options_.width_seed, i, most) : most;
  }

  bool sits_out(const sequence& it, std::size_t i) const {
    if (it.is_ended || it.waits_for_masks || step_ <= it.request->arrival) return true;
    if (it.is_prefill()) return false;
    if (it.outputs + it.yields_in_flight >= it.request->max_tokens) return true;
    return options_.skip_seed != 0 && draw(options_.skip_seed, i) % 3 == 0;
  }

  /// Ids of a decode row that the host gives itself: empty where they are carried.
  ids host_ids(const sequence& it, std::int32_t width) const {
    if (it.in_flight > 0 || options_.settled_rows_from_slot) return {};
    ids made{it.newest};
    for (std::int32_t j = 0; j < width - 1 && j < std::ssize(it.drafts); ++j)
      made.push_back(it.drafts[static_cast<std::size_t>(j)]);
    return made;
  }

  /// The tokens the new row takes, 0 if the sequence sits out.
  std::int32_t add_row(step_plan& plan, std::size_t i, std::int32_t room) {
    auto& it = sequences_[i];
    if (sits_out(it, i)) return 0;
    const bool is_chunk = it.is_prefill();
    auto width = std::min(room, is_chunk ? chunk_of(it, i) : decode_width(i));
    const auto host = is_chunk ? ids() : host_ids(it, width);
    if (!host.empty()) width = static_cast<std::int32_t>(host.size());
    const auto blocks_wanted =
      std::max(0, (it.planned() + width + options_.block_size - 1) / options_.block_size -
                    static_cast<std::int32_t>(it.blocks.size()));
    if (blocks_wanted > std::ssize(free_blocks_)) return 0;
    if (it.slot < 0) {
      if (free_slots_.empty()) return 0;
      start(plan, i);
    }
    plan.sequences.push_back(seq_id{i});
    plan.epochs.push_back(0);
    plan.slots.push_back(slot_id{it.slot});
    plan.widths.push_back(width);
    plan.positions.push_back(it.planned());
    plan.table_begin.push_back(static_cast<std::int32_t>(it.blocks.size()));
    for (std::int32_t k = 0; k < blocks_wanted; ++k) {
      plan.blocks.push_back(block_id{free_blocks_.back()});
      it.blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
    plan.block_begin.push_back(static_cast<std::int32_t>(plan.blocks.size()));
    add_tokens(plan, it, width, host);
    it.widths_in_flight += width;
    const bool yields = !it.is_prefill();
    plan.yields_max.push_back(!yields ? 0 : is_chunk ? 1 : width);
    plan.yields_min.push_back(yields ? 1 : 0);
    plan.gated.push_back(yields && it.request->is_gated ? 1 : 0);
    it.waits_for_masks = plan.gated.back() != 0;
    it.yields_in_flight += yields ? 1 : 0;
    it.in_flight += 1;
    it.last_step = step_;
    it.last_row = plan.rows() - 1;
    return width;
  }

  void start(step_plan& plan, std::size_t i) {
    auto& it = sequences_[i];
    it.slot = free_slots_.back();
    free_slots_.pop_back();
    auto& made = plan.starts.emplace_back();
    made.slot = slot_id{it.slot};
    made.sequence = seq_id{i};
    made.prompt_tokens = it.prompt();
    made.output_limit = it.request->max_tokens;
    made.params = std::make_shared<const sampling_params>(it.request->params);
  }

  void add_tokens(step_plan& plan, const sequence& it, std::int32_t width, const ids& host) {
    auto source = from_fresh;
    plan.kinds.push_back(it.is_prefill() ? row_kind::prefill : row_kind::decode);
    if (it.is_prefill()) {
      const auto first = it.request->prompt.begin() + it.planned();
      plan.tokens.insert(plan.tokens.end(), first, first + width);
    } else if (!host.empty()) {
      plan.tokens.insert(plan.tokens.end(), host.begin(), host.end());
    } else {
      const bool is_newest =
        !open_.empty() && static_cast<std::uint64_t>(it.last_step) == newest_launched_;
      source = is_newest ? it.last_row : from_slot;
    }
    plan.sources.push_back(source);
    plan.token_begin.push_back(static_cast<std::int32_t>(plan.tokens.size()));
  }

  void stage(std::shared_ptr<step_plan> plan) {
    for (auto& it : open_) it.is_launched_behind = it.is_launched_behind || it.masks_are_due;
    auto& made = open_.emplace_back();
    made.plan = std::move(plan);
    made.work = runner_.stage(made.plan);
    made.masks_are_due = made.work->is_gated();
    newest_launched_ = number();
    if (options_.on) return launch(made);
    for (const auto phase : {step_phase::copy_in, step_phase::forward, step_phase::sample})
      to_run_.push_back({made.work, phase});
    if (!made.masks_are_due) to_run_.push_back({made.work, step_phase::copy_out});
  }

  void launch(open_step& step) {
    const auto complete = [](void* user, ticket, device_status status, const phase_times&) {
      static_cast<std::promise<device_status>*>(user)->set_value(status);
    };
    // Promises stay: whoever set one may still be inside the call.
    step.done = &done_.emplace_back();
    if (step.masks_are_due) {
      const auto held =
        launch_gated_step(*options_.on, step.work, ticket{number()}, complete, step.done);
      DI_CHECK(held.has_value(), "{}", held.error().message);
      step.held = *held;
      return;
    }
    const auto launched =
      launch_step(*options_.on, step.work, ticket{number()}, complete, step.done);
    DI_CHECK(launched.has_value(), "{}", launched.error().message);
  }

  /// To every step whose gated sequences have nothing older in flight.
  void send_masks() {
    for (auto& step : open_) {
      if (!step.masks_are_due) continue;
      const bool is_known = [&] {
        for (std::int32_t row = 0; row < step.plan->rows(); ++row)
          if (step.plan->gated[static_cast<std::size_t>(row)] != 0 &&
              sequence_of(*step.plan, row).in_flight > 1)
            return false;
        return true;
      }();
      if (is_known) send_masks(step);
    }
  }

  void send_masks(open_step& step) {
    auto gate = std::make_shared<sample_gate>();
    gate->step = step.plan->step;
    gate->words = (runner_.vocab_size() + 31) / 32;
    gate->mask_begin.push_back(0);
    for (auto row = step.plan->rows(); row-- > 0;) {  // any order will do
      const auto i = static_cast<std::size_t>(row);
      if (step.plan->gated[i] == 0) continue;
      auto& it = sequence_of(*step.plan, row);
      it.waits_for_masks = false;
      const auto count = step.plan->kinds[i] == row_kind::prefill ? 1 : step.plan->widths[i];
      gate->rows.push_back(row);
      gate->mask_begin.push_back(gate->mask_begin.back() + count);
      add_masks(*gate, step.plan->sequences[i].value, count);
    }
    runner_.set_masks(*step.work, std::move(gate));
    step.masks_are_due = false;
    counts_.gated_behind += step.is_launched_behind ? 1 : 0;
    if (options_.on) {
      DI_CHECK(finish_step(step.held).has_value(), "no room for the rest of a step");
      return;
    }
    to_run_.push_back({step.work, step_phase::sample_gated});
    to_run_.push_back({step.work, step_phase::copy_out});
  }

  /// Behind a draft that its mask forbids nothing is allowed: no grammar could say what is.
  void add_masks(sample_gate& gate, std::size_t sequence, std::int32_t count) {
    const auto& it = sequences_[sequence];
    const auto words = static_cast<std::size_t>(gate.words);
    bool is_legal = true;
    for (std::int32_t j = 0; j < count; ++j) {
      auto mask = options_.mask ? options_.mask(sequence, it.outputs + j)
                                : std::vector(words, ~std::uint32_t{0});
      if (!is_legal) mask.assign(words, 0);
      gate.masks.insert(gate.masks.end(), mask.begin(), mask.end());
      if (j >= std::ssize(it.drafts) || it.drafts[static_cast<std::size_t>(j)] < 0) continue;
      const auto draft = static_cast<std::size_t>(it.drafts[static_cast<std::size_t>(j)]);
      is_legal = is_legal && (mask[draft / 32] >> (draft % 32) & 1) != 0;
    }
  }

  /// Phases in stream order until `until` has ended; a later step may end before a gated one.
  device_status run_in_place(const open_step& until) {
    const stream_ref stream{&team_, nullptr};
    while (!until.has_run) {
      DI_CHECK(!to_run_.empty(), "step {} has nothing to run", until.plan->step.value);
      const auto [work, phase] = to_run_.front();
      to_run_.pop_front();
      const auto status = work->run(phase, stream);
      if (status.code != errc::ok) return status;
      for (auto& step : open_)
        step.has_run = step.has_run || (step.work == work && phase == step_phase::copy_out);
    }
    return {};
  }

  void settle() {
    send_masks();
    auto& oldest = open_.front();
    const auto status = options_.on ? oldest.done->get_future().get() : run_in_place(oldest);
    DI_CHECK(status.code == errc::ok, "step {} failed", oldest.work->step().value);
    runner_.collect(*oldest.work, result_);
    const auto plan = oldest.plan;
    open_.pop_front();
    std::int32_t tokens = 0;
    std::size_t logprob = 0;
    for (std::int32_t row = 0; row < plan->rows(); ++row) {
      tokens += result_.widths[static_cast<std::size_t>(row)];
      settle_row(*plan, row, logprob);
    }
    DI_CHECK(tokens <= plan->total_width, "{} of {} tokens", tokens, plan->total_width);
  }

  void settle_row(const step_plan& plan, std::int32_t row, std::size_t& logprob) {
    const auto i = static_cast<std::size_t>(row);
    auto& it = sequence_of(plan, row);
    const auto width = result_.widths[i];
    const auto given = result_.row_tokens(row);
    const bool is_decode = plan.kinds[i] == row_kind::decode;
    const bool yields = plan.yields_max[i] > 0;
    const auto error = result_.error_of(row);
    const bool may_be_empty = !yields || width == 0 || error != row_error::none;
    DI_CHECK(width <= plan.widths[i] && std::ssize(given) <= width &&
               (may_be_empty || !given.empty()) && (given.empty() || (yields && width > 0)),
             "row {} of width {} gave {} of {}", row, width, given.size(), plan.yields_max[i]);
    DI_CHECK(width > 0 || (options_.stop_mask && it.is_ended), "row {} is dead", row);
    it.in_flight -= 1;
    it.widths_in_flight -= plan.widths[i];
    it.yields_in_flight -= yields ? 1 : 0;
    it.length += is_decode ? static_cast<std::int32_t>(given.size()) : width;
    counts_.dead_rows += width == 0 ? 1 : 0;
    counts_.decode_rows += is_decode && width > 0 ? 1 : 0;
    if (is_decode) counts_.queries += width;
    if (is_decode) counts_.given += std::ssize(given);
    const auto drafts = static_cast<std::size_t>(result_.drafts_per_row);
    it.drafts.assign(result_.drafts.begin() + static_cast<std::ptrdiff_t>(i * drafts),
                     result_.drafts.begin() + static_cast<std::ptrdiff_t>((i + 1) * drafts));
    for (const auto token : given) {
      it.newest = token;
      ++it.outputs;
      if (!result_.logprobs.empty() && !it.is_ended)
        it.out.logprobs.push_back(result_.logprobs[logprob]);
      ++logprob;
      if (it.is_ended) continue;  // over-run
      it.out.tokens.push_back(token);
      it.is_ended = token == stop_ || std::ssize(it.out.tokens) == it.request->max_tokens;
    }
    if (error != row_error::none && !it.is_ended) {
      it.is_ended = true;
      it.out.error = error;
    }
    if (it.is_ended && it.in_flight == 0) release(it);
  }

  sequence& sequence_of(const step_plan& plan, std::int32_t row) {
    return sequences_[plan.sequences[static_cast<std::size_t>(row)].value];
  }

  void release(sequence& it) {
    if (it.slot < 0) return;
    if (options_.poisons) {
      std::vector<block_id> blocks;
      for (const auto block : it.blocks) blocks.push_back(block_id{block});
      const slot_id slot{it.slot};
      runner_.poison(blocks, {&slot, 1});
    }
    free_blocks_.insert(free_blocks_.end(), it.blocks.begin(), it.blocks.end());
    it.blocks.clear();
    free_slots_.push_back(it.slot);
    it.slot = -1;
  }

  step_runner& runner_;
  const drive_options options_;
  token_id stop_;
  drive_counts& counts_;
  reversed_team team_;
  std::vector<sequence> sequences_;
  std::vector<std::int32_t> free_slots_, free_blocks_;
  std::deque<open_step> open_;
  std::deque<std::promise<device_status>> done_;  ///< of launched steps, in order
  std::deque<std::pair<std::shared_ptr<device_work>, step_phase>> to_run_;  ///< in stream order
  std::uint64_t newest_launched_ = 0;
  step_result result_;
  std::int32_t step_ = 0;
};

}  // namespace

bool driven_output::operator==(const driven_output& other) const {
  if (tokens != other.tokens || error != other.error || logprobs.size() != other.logprobs.size())
    return false;
  for (std::size_t i = 0; i < logprobs.size(); ++i)
    if (logprobs[i].ids != other.logprobs[i].ids ||
        logprobs[i].logprobs != other.logprobs[i].logprobs)
      return false;
  return true;
}

std::unique_ptr<model_runner> make_runner(const weights_ptr& weights,
                                          const drive_options& options) {
  runner_config config;
  config.depth = options.depth;
  config.num_drafts = options.num_drafts;
  config.drafter = options.drafter;
  config.acceptance = options.acceptance;
  config.stop_mask = options.stop_mask;
  config.prefix_cache = options.prefix_cache;
  config.replay = options.replay;
  config.keep_tokens = options.keep_tokens;
  config.max_num_seqs = options.rows_max;
  config.state_slots = options.slots;
  config.max_num_batched_tokens = options.batched_tokens;
  config.max_model_len = options.blocks * options.block_size;
  config.num_kv_blocks = options.blocks;
  config.block_size = options.block_size;
  config.numeric = options.numeric;
  config.kernels = kernels_under_test();
  auto made = model_runner::make(weights, config);
  DI_CHECK(made.has_value(), "{}", made.error().message);
  if (options.forced)
    (*made)->set_drafter(
      std::make_unique<forced_drafter>(*options.forced, weights->config.vocab_size));
  return *std::move(made);
}

std::vector<driven_output> drive(step_runner& runner, const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop,
                                 drive_counts* counts) {
  drive_counts uncounted;
  return driver(runner, requests, options, stop, counts ? *counts : uncounted).run();
}

std::vector<driven_output> drive(const weights_ptr& weights,
                                 const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop,
                                 drive_counts* counts) {
  const auto runner = make_runner(weights, options);
  return drive(*runner, requests, options, stop, counts);
}

}  // namespace deepinfer::test
