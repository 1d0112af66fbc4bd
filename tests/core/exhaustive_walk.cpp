#include "tests/core/exhaustive_walk.hpp"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace deepinfer::test {

namespace {

/// `pass`: the messages of a channel arrive, where they might have been held up instead.
enum class move {
  submit,
  launch,
  settle,
  pass,
  take_again,
  let_go,  // without these nothing goes on
  fail,
  again,
  abort_a,
  abort_b,
  preempt_a,
  preempt_b,
  take_nothing,
  hold
};

constexpr const char* move_names[] = {"submit",          "launch",  "settle",    "pass",
                                      "a takes again",   "let go",  "fail",      "the result again",
                                      "abort a",         "abort b", "preempt a", "preempt b",
                                      "a takes nothing", "hold"};

bool goes_on(move it) {
  return it <= move::let_go;
}

scheduler_config config_of(const tiny_world& tiny) {
  auto config = small_config();
  config.depth = tiny.depth;
  config.chunk_size = tiny.chunk;
  config.block_size = tiny_world::block_size;
  config.num_kv_blocks = tiny.blocks;
  config.num_drafts = tiny.drafts;
  config.prefix_cache = tiny.shared > 0;
  if (config.prefix_cache) config.policy.on_step_failure = failure_rule::retry;
  config.max_num_seqs = 2;
  config.state_slots = 2;
  return config;
}

constexpr std::size_t longest_way = 200;

using state_key = std::pair<std::uint64_t, std::uint64_t>;

struct key_hash {
  std::size_t operator()(const state_key& key) const { return key.first; }
};

/// One way through a world.
class run {
public:
  explicit run(const tiny_world& tiny) : tiny_(tiny), world_(config_of(tiny)) {
    world_.share_prompts(tiny.shared);
  }

  std::vector<move> legal() {
    if (first_waiting()) return {move::pass, move::hold};
    std::vector<move> out;
    const auto in_flight = world_.core().in_flight();
    if (submitted_ < std::ssize(tiny_.sequences)) out.push_back(move::submit);
    if (can_launch_) out.push_back(move::launch);
    if (in_flight > 0) out.push_back(move::settle);
    if (takes_nothing_) out.push_back(move::take_again);
    if (held_ >= 0) out.push_back(move::let_go);
    if (submitted_ > 0 && !takes_nothing_ && holds_ < tiny_.holds)
      out.push_back(move::take_nothing);
    if (in_flight > 0 && failures_ < tiny_.failures) out.push_back(move::fail);
    if (lates_ < tiny_.lates && world_.core().newest_settled().value > 0)
      out.push_back(move::again);
    for (std::int32_t i = 0; i < submitted_; ++i) {
      if (aborts_ < tiny_.aborts) out.push_back(i == 0 ? move::abort_a : move::abort_b);
      if (preemptions_ < tiny_.preemptions && is_running(i))
        out.push_back(i == 0 ? move::preempt_a : move::preempt_b);
    }
    return out;
  }

  // A rank plans when something has happened, or when its last plan has made room.
  void apply(move it) {
    if (it != move::pass && it != move::hold) can_launch_ = true;
    switch (it) {
    case move::submit: submit(); break;
    case move::launch: can_launch_ = world_.launch() || world_.core().has_made_room(); break;
    case move::settle: world_.complete(); break;
    case move::pass: {
      const auto channel = *first_waiting();
      while (world_.waiting(channel) > 0) deliver(channel);
      break;
    }
    case move::hold:
      held_ = *first_waiting();
      ++lates_;
      break;
    case move::let_go: held_ = -1; break;
    case move::take_nothing:
    case move::take_again:
      takes_nothing_ = it == move::take_nothing;
      holds_ += takes_nothing_ ? 1 : 0;
      world_.hold({1}, takes_nothing_);
      break;
    case move::fail: fail(); break;
    case move::again:
      ++lates_;
      world_.settle_again();
      break;
    case move::abort_a:
    case move::abort_b:
      ++aborts_;
      world_.abort({it == move::abort_a ? 1u : 2u});
      break;
    case move::preempt_a:
    case move::preempt_b:
      ++preemptions_;
      world_.preempt({it == move::preempt_a ? 1u : 2u});
      break;
    }
    if (lates_ == tiny_.lates) deliver_the_rest();
  }

  state_key key() const {
    auto key = world_.digest();
    std::uint64_t mine = 0;
    for (const auto number : {submitted_, aborts_, preemptions_, lates_, failures_, held_ + 1,
                              std::int32_t{can_launch_}, holds_, std::int32_t{takes_nothing_}})
      mine = mine * 8 + static_cast<std::uint64_t>(number);
    key.first ^= mix(mine + 1);
    key.second += mix(mine + 2);
    return key;
  }

  rank_world& world() { return world_; }

private:
  /// The channel whose messages might be the late ones. In the order of the messages' causes, so
  /// that one that brings forth another comes first.
  std::optional<std::int32_t> first_waiting() const {
    if (lates_ == tiny_.lates) return std::nullopt;
    for (const auto channel : {2, 0, 1, 3})
      if (world_.waiting(channel) > 0) return channel;
    return std::nullopt;
  }

  bool deliver(std::int32_t channel) {
    can_launch_ = can_launch_ || channel == 3;
    return world_.deliver(channel);
  }

  void deliver_the_rest() {
    const auto may_come = [&](std::int32_t channel) {
      // What was asked before a lease came back is there before it.
      const bool is_behind = held_ == 2 && channel == 0 && world_.waiting(2) > 0;
      return channel != held_ && !is_behind && world_.waiting(channel) > 0;
    };
    for (bool any = true; any;) {
      any = false;
      for (const auto channel : {2, 0, 1, 3})
        while (may_come(channel)) any = deliver(channel);
    }
  }

  bool is_running(std::int32_t index) {
    const auto* it = world_.core().find({static_cast<std::uint64_t>(index + 1)});
    return it && it->phase == sequence_phase::running;
  }

  void submit() {
    const auto& wanted = tiny_.sequences[static_cast<std::size_t>(submitted_++)];
    sampling_params params;
    params.max_tokens = wanted.max_tokens;
    const auto id = world_.submit(wanted.prompt, params, wanted.stop_after);
    world_.view(id).accept = wanted.accept;
  }

  void fail() {
    ++failures_;
    // Whoever stands on a cached prefix of the failed step is computed again as well.
    for (auto id = 1; tiny_.shared > 0 && id <= submitted_; ++id)
      world_.view({static_cast<std::uint64_t>(id)}).had_failure = true;
    world_.complete(errc::device_failed);
  }

  const tiny_world& tiny_;
  rank_world world_;
  std::int32_t submitted_ = 0, aborts_ = 0, preemptions_ = 0, lates_ = 0, failures_ = 0;
  std::int32_t held_ = -1;  ///< channel whose messages are late
  std::int32_t holds_ = 0;
  bool can_launch_ = false;
  bool takes_nothing_ = false;
};

/// Depth first. A world cannot be copied, so going back to a state is going there again.
class walker {
public:
  explicit walker(const tiny_world& tiny) : tiny_(tiny) {}

  walked go() {
    now_.emplace(tiny_);
    enter(now_->key());
    while (!way_.empty() && seen_.fault.empty()) {
      if (way_.size() > longest_way) note("a way without end");
      auto& top = way_.back();
      if (top.next == top.legal.size()) {
        leave();
        continue;
      }
      come_back();
      const auto it = top.legal[top.next++];
      now_->apply(it);
      ++seen_.transitions;
      if (!now_->world().faults().empty()) {
        note(now_->world().first_fault());
        break;
      }
      const auto key = now_->key();
      if (key == top.key) continue;  // nothing happened
      top.is_end = top.is_end && !goes_on(it);
      const auto known = states_.find(key);
      if (known == states_.end()) {
        enter(key);
        continue;
      }
      is_here_ = false;
      if (known->second) note("the same state comes again and again");
    }
    return seen_;
  }

private:
  struct stop {
    state_key key;
    std::vector<move> legal;
    std::size_t next = 0;  ///< the last one taken is before it
    bool is_end = true;    ///< nothing goes on by itself
  };

  void enter(const state_key& key) {
    states_.emplace(key, true);
    ++seen_.states;
    way_.push_back({key, now_->legal()});
    is_here_ = true;
  }

  void leave() {
    if (way_.back().is_end) {
      come_back();
      end();
    }
    states_[way_.back().key] = false;
    if (!seen_.fault.empty()) return;
    way_.pop_back();
    is_here_ = false;
  }

  void come_back() {
    if (is_here_) return;
    now_.emplace(tiny_);
    now_->world().watch(false);
    for (std::size_t i = 0; i + 1 < way_.size(); ++i) now_->apply(way_[i].legal[way_[i].next - 1]);
    now_->world().watch(true);
    is_here_ = true;
  }

  void note(const std::string& fault) {
    seen_.fault = tiny_.name() + ": " + fault + "; after ";
    for (const auto& it : way_) {
      if (it.next == 0) break;
      seen_.fault += move_names[static_cast<std::size_t>(it.legal[it.next - 1])];
      seen_.fault += ", ";
    }
  }

  void end() {
    auto& world = now_->world();
    world.check_end();
    ++seen_.ends;
    const auto stats = world.core().stats();
    seen_.displaced += stats.preemptions > 0;
    seen_.accepted += static_cast<std::int64_t>(stats.accepted_tokens);
    seen_.cached += static_cast<std::int64_t>(stats.cached_tokens);
    std::size_t i = 0;
    for (const auto& [id, view] : world.views()) check_room(id, view, tiny_.sequences[i++]);
    if (!world.faults().empty()) note(world.first_fault());
  }

  // Who lacks room is told so, and nobody else.
  void check_room(std::uint64_t id, const request_view& view, const tiny_sequence& wanted) {
    const auto& world = now_->world();
    const bool lacked = view.finish.reason == finish_reason::resource;
    seen_.without_room += lacked;
    const auto outputs = std::ssize(world.expected(view).tokens);
    const auto room = room_of(tiny_, wanted, outputs);
    if (lacked && view.finish.code != errc::no_blocks)
      note(fmt::format("sequence {} lacks room: {}", id, name_of(view.finish.code)));
    if (lacked && room == has_room::always)
      note(fmt::format("[I56] sequence {} ended for want of room that it has alone", id));
    // Who starts again needs no decode row for what it knows.
    const bool ended_otherwise = view.was_aborted || view.had_failure || view.preemptions > 0;
    if (!lacked && room == has_room::never && !ended_otherwise)
      note(fmt::format("[I56] sequence {} has no room for its end", id));
  }

  const tiny_world& tiny_;
  std::optional<run> now_;
  bool is_here_ = true;  ///< `now_` is at the last stop of the way
  std::vector<stop> way_;
  std::unordered_map<state_key, bool, key_hash> states_;  ///< true: it is on the way
  walked seen_;
};

}  // namespace

std::string tiny_world::name() const {
  auto out = fmt::format("depth {}, {} blocks, {} drafts, {} aborts, {} preemptions, {} late, {} "
                         "failures",
                         depth, blocks, drafts, aborts, preemptions, lates, failures);
  if (shared > 0) out += fmt::format(", {} shared ids", shared);
  return out;
}

has_room room_of(const tiny_world& world, const tiny_sequence& sequence, std::int64_t outputs) {
  // The last id is never written; a decode row writes its drafts as well.
  const auto row = outputs > 1 ? 1 + world.drafts : 0;
  const auto most = sequence.prompt + std::max<std::int64_t>(0, outputs - 2) + row;
  if (most <= world.tokens()) return has_room::always;
  return sequence.prompt + row > world.tokens() ? has_room::never : has_room::sometimes;
}

walked& walked::operator+=(const walked& other) {
  states += other.states;
  transitions += other.transitions;
  ends += other.ends;
  displaced += other.displaced;
  accepted += other.accepted;
  cached += other.cached;
  without_room += other.without_room;
  if (fault.empty()) fault = other.fault;
  return *this;
}

walked walk(const tiny_world& world) {
  return walker(world).go();
}

}  // namespace deepinfer::test
