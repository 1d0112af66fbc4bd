/// A rank without actors for tests: the scheduler core, the pool and the release queue, joined by
/// messages that may be late, over a device that computes tokens by a hash of what it reads.
///
/// Device: a KV cell holds (sequence, position, chain), chain(p) = mix(chain(p - 1), id(p)); the
/// next token is a hash of the chain. A row re-reads its whole prefix through the block table it
/// was given, as late as possible (when its step completes); a block that returns to the pool is
/// poisoned at once. So a wrong table, length, remap, lease or fence changes tokens or is a fault.
/// Faults are gathered, not thrown; the first one names step, sequence and both values.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "runtime/core/kv_pool.hpp"
#include "runtime/core/release_queue.hpp"
#include "runtime/core/scheduler_core.hpp"
#include "runtime/core/stop_rule.hpp"

namespace deepinfer {
class state_digest;
}

namespace deepinfer::test {

inline constexpr token_id eos_id = 1;
inline constexpr std::int32_t vocab = 64;

/// The hash model: chain(p) from chain(p - 1) and the id at p, and the word a chain gives.
std::uint64_t mix(std::uint64_t x);
std::uint64_t next_chain(std::uint64_t chain, token_id id);
token_id word(std::uint64_t number);

/// Small, without surprises; tests change single fields.
scheduler_config small_config();

/// Nothing asked but an end after so many outputs.
sampling_params tokens(std::int32_t max_tokens);

/// One to three letters of a..c per token; ids below 8 are special.
class letter_texts final : public token_texts {
public:
  std::string_view bytes(token_id token) const override;
  bool is_special(token_id token) const override { return token < 8; }
};

struct request_view {
  sequence_request request;
  std::int32_t stop_after = 0;  ///< the device gives eos as this output; 0: never
  std::int32_t fails_at = 0;    ///< the device finds no id for this output; 0: it always does
  row_error fails_with = row_error::bad_logits;
  std::vector<token_id> got;
  std::int32_t finals = 0;
  sequence_finish finish;
  bool was_aborted = false;
  bool is_held = false;
  bool had_failure = false;
  // What the host side of the test knows of launched rows.
  std::int64_t inflight_min = 0, inflight_max = 0;  ///< of the current epoch
  std::uint32_t epoch = 0;
  std::uint32_t delivers = ~0u;  ///< epoch it was preempted in, whose rows in flight still count
  std::int32_t preemptions = 0;
  std::int32_t launches = 0;
  std::int32_t overrun_rows = 0;
  std::uint64_t first_yield_step = 0;         ///< step that gives the first token
  std::uint64_t first_token_step = 0;         ///< settled step whose batch held the first token
  std::vector<std::int32_t> accept{2, 0, 1};  ///< drafts that row j of an epoch accepts, cycling
  std::vector<token_id> ids;                  ///< what it must be, as far as anybody asked
  std::vector<std::uint64_t> chains;          ///< of these
};

struct expected_output {
  std::vector<token_id> tokens;
  finish_reason reason = finish_reason::none;
  std::int64_t stop_bytes = -1;
};

class rank_world {
public:
  explicit rank_world(scheduler_config config, std::uint64_t model_seed = 1,
                      std::int32_t host_blocks = 0);

  /// Requests from now on share the first ids of their prompts.
  void share_prompts(std::int32_t ids) { shared_ids_ = ids; }

  seq_id submit(std::int32_t prompt_tokens, sampling_params params, std::int32_t stop_after = 0,
                std::int32_t priority = 0);
  seq_id submit(std::vector<token_id> prompt, sampling_params params, std::int32_t stop_after = 0,
                std::int32_t priority = 0);
  /// Plans and launches one step.
  bool launch();
  /// The oldest launched step runs and settles, with `code`.
  void complete(errc code = errc::ok);
  void abort(seq_id sequence);
  void preempt(seq_id sequence);
  void hold(seq_id sequence, bool is_held);
  /// Delivers the oldest message of channel 0..3, if there is one.
  bool deliver(std::int32_t channel);
  void deliver_all();
  /// Messages that wait in channel 0..3.
  std::int64_t waiting(std::int32_t channel) const;
  /// The result of the newest settled step comes a second time.
  void settle_again();
  /// Whole-state checks after every event, from now on or no more: for ways walked before.
  void watch(bool on) { is_watched_ = on; }
  /// Equal: the same things can happen from here on, whatever names were given.
  std::pair<std::uint64_t, std::uint64_t> digest() const;
  /// Runs to the end: deliver, launch, complete. False: something waits for ever. Who is held is
  /// released first.
  bool finish();
  /// The same but for who is held: they stay.
  bool finish_the_others();

  /// The tokens a request must have, from the rules alone.
  expected_output expected(const request_view& view) const;
  /// After finish(): every request has its end, everything has returned.
  void check_end();

  scheduler_core& core() { return core_; }
  kv_pool& pool() { return pool_; }
  release_queue& collector() { return collector_; }
  request_view& view(seq_id id) { return views_.at(id.value); }
  const std::map<std::uint64_t, request_view>& views() const { return views_; }
  const std::vector<std::string>& faults() const { return faults_; }
  std::string first_fault() const { return faults_.empty() ? "" : faults_.front(); }
  const step_plan& newest_plan() const { return newest_; }
  const chunk_batch& last_chunks() const { return box_.chunks; }

  std::int64_t peak_reserve = 0;  ///< tokens, most of C + sum of widths + w at a launch
  std::int64_t written_end = 0;   ///< highest written position + 1
  std::int64_t peak_blocks = 0;   ///< of one table
  std::int64_t moves_run = 0, moves_failed = 0;

private:
  struct cell {
    std::int64_t position = -1;
    std::uint64_t chain = 0;
    bool is_void = false;  ///< a failed step was to write it, or what it stands on

    friend bool operator==(const cell&, const cell&) = default;
  };
  struct device_slot {
    seq_id sequence;
    std::uint32_t epoch = 0;
    std::int64_t length = 0;
    std::int64_t prompt = 0;
    token_id last = -1;
    std::vector<token_id> drafts;
    std::size_t decode_rows = 0;  ///< of this epoch
    std::vector<block_id> table;
    bool has_failed = false;  ///< a row of it gave no id: what follows is of no use
  };
  struct launched {
    step_plan plan;
    std::vector<std::vector<block_id>> tables;  ///< by row, as the host knows them
  };

  template <class... Args>
  void require(bool holds, fmt::format_string<Args...> text, Args&&... args) {
    if (!holds) faults_.push_back(fmt::format(text, std::forward<Args>(args)...));
  }
  void check_plan(const step_plan& plan);
  void check_row(const step_plan& plan, std::size_t row);
  void check_blocks(const step_plan& plan, std::size_t row);
  void run(const launched& step, step_result& result);
  std::span<cell> home_cells(std::size_t home);
  void run_moves(const step_plan& plan);
  void note_unknown(std::size_t home, std::uint64_t since);
  std::vector<token_id> run_row(const step_plan& plan, std::size_t row, device_slot& slot,
                                row_error& error);
  bool choose(request_view& view, device_slot& slot, std::int64_t position,
              std::vector<token_id>& given) const;
  std::vector<token_id> row_ids(const step_plan& plan, std::size_t row, const device_slot& slot);
  void write(const step_plan& plan, device_slot& slot, std::int64_t position, token_id id);
  void read_prefix(const step_plan& plan, std::size_t row, const device_slot& slot);
  bool is_doomed(const step_plan& plan, std::size_t row) const;
  void make_drafts(request_view& view, device_slot& slot);
  void check_gains(const launched& step, const step_result& result,
                   const std::vector<request_view>& before);
  token_id next_token(const request_view& view, std::uint64_t chain, std::int64_t output) const;
  /// Id and chain at a position of a request, from the rules alone.
  void grow(request_view& view, std::int64_t position) const;
  token_id truth(request_view& view, std::int64_t position) const;
  void send();
  void cut_tables();
  void describe(const request_view& view, state_digest& out) const;
  void note_chunks();
  void freed(const kv_release& done);
  void audit();

  scheduler_config config_;
  std::uint64_t seed_;
  letter_texts texts_;
  scheduler_core core_;
  kv_pool pool_;
  release_queue collector_;

  std::map<std::uint64_t, request_view> views_;
  std::uint64_t last_id_ = 0;
  std::int32_t shared_ids_ = 0;
  step_plan newest_;
  std::deque<launched> flying_;
  std::uint64_t launched_ = 0;
  std::uint64_t settled_ = 0;
  std::map<std::uint64_t, std::vector<block_id>> host_tables_;

  std::vector<cell> cells_;           ///< of blocks, then of the places of the host tier
  std::vector<std::size_t> written_;  ///< cells, by the newest step that ran
  std::vector<bool> on_void_;         ///< its rows that read what a failed step was to write
  struct unknown_home {
    std::size_t home;
    std::uint64_t since;    ///< newest step that may have read it in good faith
    std::vector<cell> was;  ///< whoever has written there since knows what is there
  };
  std::vector<unknown_home> unknown_;  ///< what failed steps moved
  std::vector<device_slot> slots_;
  struct sampled_row {
    token_id last = -1;
    std::vector<token_id> drafts;
  };
  std::vector<sampled_row> sampled_;  ///< by row of the newest step that ran
  std::uint64_t sampled_step_ = 0;

  scheduler_outbox box_;
  struct leases_sent {
    lease_return leases;
    std::uint64_t asks_before = 0;
  };
  std::deque<leases_sent> to_collector_;
  std::uint64_t asks_sent_ = 0, asks_taken_ = 0;
  std::deque<kv_release> to_pool_;
  std::deque<kv_reserve> asks_;
  std::deque<kv_grant> grants_;
  std::vector<std::string> faults_;
  bool is_watched_ = true;
};

}  // namespace deepinfer::test
