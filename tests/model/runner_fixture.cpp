#include "runner_fixture.hpp"

#include <algorithm>
#include <deque>
#include <future>
#include <optional>

#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"
#include "runtime/device/step_launch.hpp"

namespace deepinfer::test {

namespace {

struct sequence {
  const drive_request* request = nullptr;
  std::int32_t slot = -1;
  std::vector<std::int32_t> blocks;
  std::int32_t planned = 0;      ///< positions named by plans
  std::int32_t outputs_due = 0;  ///< tokens that launched rows will give
  std::int32_t in_flight = 0;    ///< launched rows that have not settled
  std::int32_t last_step = -1;   ///< step and row that named it last
  std::int32_t last_row = -1;
  bool is_ended = false;
  driven_output out;

  std::int32_t prompt() const { return static_cast<std::int32_t>(request->prompt.size()); }
  bool is_prefill() const { return planned < prompt(); }
};

class driver {
public:
  driver(step_runner& runner, const std::vector<drive_request>& requests,
         const drive_options& options, token_id stop)
    : runner_(runner),
      options_(options),
      stop_(stop),
      team_(options.threads) {
    for (const auto& request : requests) sequences_.emplace_back().request = &request;
    for (std::int32_t i = options.slots; i-- > 0;) free_slots_.push_back(i);
    for (std::int32_t i = options.blocks; i-- > 0;) free_blocks_.push_back(i);
  }

  std::vector<driven_output> run() {
    constexpr std::int32_t steps_max = 4000;
    for (step_ = 1; step_ < steps_max; ++step_) {
      auto plan = std::make_shared<step_plan>(make_plan());
      if (plan->rows() > 0) {
        open_.push_back(runner_.stage(plan));
        if (options_.on) launch();
        plans_.push_back(std::move(plan));
      }
      const bool is_full = std::ssize(open_) == options_.depth;
      if (!open_.empty() && (is_full || plans_.back()->step.value != number())) settle();
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

  step_plan make_plan() {
    step_plan plan;
    plan.clear();
    plan.step = step_id{number()};
    std::vector<std::size_t> order(sequences_.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (options_.reverses_rows) std::reverse(order.begin(), order.end());
    std::int32_t room = options_.batched_tokens;
    for (const auto i : order)
      if (plan.rows() < options_.rows_max && room > 0) room -= add_row(plan, i, room);
    return plan;
  }

  std::int32_t chunk_of(const sequence& it, std::size_t i) const {
    auto most = options_.chunk > 0 ? options_.chunk : it.prompt();
    if (options_.chunk_seed != 0)
      most = 1 + static_cast<std::int32_t>(draw(options_.chunk_seed, i) %
                                           static_cast<std::uint64_t>(most));
    return std::min(most, it.prompt() - it.planned);
  }

  /// The tokens the new row takes, 0 if the sequence sits out.
  std::int32_t add_row(step_plan& plan, std::size_t i, std::int32_t room) {
    auto& it = sequences_[i];
    if (it.is_ended || step_ <= it.request->arrival) return 0;
    if (!it.is_prefill() && it.outputs_due >= it.request->max_tokens) return 0;
    if (!it.is_prefill() && options_.skip_seed != 0 && draw(options_.skip_seed, i) % 3 == 0)
      return 0;
    const auto width = it.is_prefill() ? std::min(room, chunk_of(it, i)) : 1;
    const auto blocks_wanted =
      (it.planned + width + options_.block_size - 1) / options_.block_size -
      static_cast<std::int32_t>(it.blocks.size());
    if (blocks_wanted > std::ssize(free_blocks_)) return 0;
    if (it.slot < 0) {
      if (free_slots_.empty()) return 0;
      it.slot = free_slots_.back();
      free_slots_.pop_back();
      plan.starts.push_back({slot_id{it.slot}, seq_id{i}, 0, it.prompt(), 0,
                             std::make_shared<const sampling_params>(it.request->params)});
    }
    plan.sequences.push_back(seq_id{i});
    plan.epochs.push_back(0);
    plan.slots.push_back(slot_id{it.slot});
    plan.widths.push_back(width);
    plan.positions.push_back(it.planned);
    plan.table_begin.push_back(static_cast<std::int32_t>(it.blocks.size()));
    for (std::int32_t k = 0; k < blocks_wanted; ++k) {
      plan.blocks.push_back(block_id{free_blocks_.back()});
      it.blocks.push_back(free_blocks_.back());
      free_blocks_.pop_back();
    }
    plan.block_begin.push_back(static_cast<std::int32_t>(plan.blocks.size()));
    add_tokens(plan, it, width);
    it.planned += width;
    const bool yields = !it.is_prefill();
    plan.yields_max.push_back(yields ? 1 : 0);
    plan.yields_min.push_back(yields ? 1 : 0);
    it.outputs_due += yields ? 1 : 0;
    it.in_flight += 1;
    it.last_step = step_;
    it.last_row = plan.rows() - 1;
    return width;
  }

  void add_tokens(step_plan& plan, const sequence& it, std::int32_t width) {
    auto source = from_fresh;
    if (it.is_prefill()) {
      const auto first = it.request->prompt.begin() + it.planned;
      plan.tokens.insert(plan.tokens.end(), first, first + width);
      plan.kinds.push_back(row_kind::prefill);
    } else {
      plan.kinds.push_back(row_kind::decode);
      const bool is_newest = !plans_.empty() && !open_.empty() &&
                             static_cast<std::uint64_t>(it.last_step) == plans_.back()->step.value;
      const bool is_settled = std::ssize(it.out.tokens) == it.outputs_due;
      if (!is_settled || options_.settled_rows_from_slot)
        source = is_newest ? it.last_row : from_slot;
      else
        plan.tokens.push_back(it.out.tokens.back());
    }
    plan.sources.push_back(source);
    plan.token_begin.push_back(static_cast<std::int32_t>(plan.tokens.size()));
  }

  void launch() {
    auto& done = done_.emplace_back();
    const auto launched = launch_step(
      *options_.on, open_.back(), ticket{number()},
      [](void* user, ticket, device_status status, const phase_times&) {
        static_cast<std::promise<device_status>*>(user)->set_value(status);
      },
      &done);
    DI_CHECK(launched.has_value(), "{}", launched.error().message);
  }

  device_status wait() {
    // The promise stays: whoever set it may still be inside the call.
    return done_[waited_++].get_future().get();
  }

  device_status run_in_place() {
    const stream_ref stream{&team_, nullptr};
    device_status status;
    for (const auto phase :
         {step_phase::copy_in, step_phase::forward, step_phase::sample, step_phase::copy_out})
      if (status.code == errc::ok) status = open_.front()->run(phase, stream);
    return status;
  }

  void settle() {
    const auto status = options_.on ? wait() : run_in_place();
    DI_CHECK(status.code == errc::ok, "step {} failed", open_.front()->step().value);
    runner_.collect(*open_.front(), result_);
    const auto plan = plans_.front();
    open_.pop_front();
    plans_.pop_front();
    std::size_t logprob = 0;
    for (std::int32_t row = 0; row < plan->rows(); ++row) {
      auto& it = sequences_[plan->sequences[static_cast<std::size_t>(row)].value];
      it.in_flight -= 1;
      for (const auto token : result_.row_tokens(row)) {
        if (!result_.logprobs.empty() && !it.is_ended)
          it.out.logprobs.push_back(result_.logprobs[logprob]);
        ++logprob;
        if (it.is_ended) continue;  // over-run
        it.out.tokens.push_back(token);
        it.is_ended = token == stop_ || std::ssize(it.out.tokens) == it.request->max_tokens;
      }
      if (it.is_ended && it.in_flight == 0) release(it);
    }
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
  reversed_team team_;
  std::vector<sequence> sequences_;
  std::vector<std::int32_t> free_slots_, free_blocks_;
  std::deque<std::shared_ptr<device_work>> open_;
  std::deque<std::shared_ptr<step_plan>> plans_;
  std::deque<std::promise<device_status>> done_;  ///< of launched steps, in order
  std::size_t waited_ = 0;
  step_result result_;
  std::int32_t step_ = 0;
};

}  // namespace

bool driven_output::operator==(const driven_output& other) const {
  if (tokens != other.tokens || logprobs.size() != other.logprobs.size()) return false;
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
  return *std::move(made);
}

std::vector<driven_output> drive(step_runner& runner, const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop) {
  return driver(runner, requests, options, stop).run();
}

std::vector<driven_output> drive(const weights_ptr& weights,
                                 const std::vector<drive_request>& requests,
                                 const drive_options& options, token_id stop) {
  const auto runner = make_runner(weights, options);
  return drive(*runner, requests, options, stop);
}

}  // namespace deepinfer::test
