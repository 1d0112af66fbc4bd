#include "actors/node_control.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "actors/client_state.hpp"
#include "actors/dashboard_snapshot.hpp"
#include "actors/gather.hpp"
#include "actors/rank_metrics.hpp"
#include "actors/rank_policy.hpp"
#include "actors/rank_supervisor.hpp"
#include "messages/wire.hpp"
#include "runtime/base/log.hpp"
#include "runtime/base/trace_ring.hpp"

namespace deepinfer {
namespace {

using pointer = control_actor::stateful_pointer<node_control_state>;
using string_promise = caf::typed_response_promise<std::string>;

constexpr std::chrono::seconds rank_timeout{5};
constexpr std::int64_t most_trace_steps = 1 << 20;

/// Reads one long text on a thread of its own and leaves.
verb_actor::behavior_type text_reader(verb_actor::pointer self,
                                      std::shared_ptr<const node_desk> desk) {
  return {[self, desk](call_atom, const std::string& verb,
                       const std::string& bytes) -> caf::result<std::string> {
    self->quit();
    auto answer = desk->answer(verb, bytes);
    if (!answer) return to_caf(answer.error());
    return *std::move(answer);
  }};
}

void read_next(pointer self);

void end_text(pointer self, std::uint64_t number) {
  self->state.lanes.end(number);
  self->state.texts.erase(number);
  read_next(self);
}

void read_next(pointer self) {
  auto& state = self->state;
  const auto turn = state.lanes.next(now_us_of(self));
  for (const auto number : turn.late) {
    auto node = state.texts.extract(number);
    node.mapped().promise.deliver(
      to_caf({errc::deadline_exceeded, "the text has waited too long behind others", {}}));
  }
  for (const auto number : turn.begin) {
    auto& it = state.texts.at(number);
    self
      ->request(self->spawn<caf::detached>(text_reader, state.links.desk), caf::infinite,
                call_atom::value, it.verb, std::move(it.bytes))
      .then(
        [self, number](std::string& answer) {
          self->state.texts.at(number).promise.deliver(std::move(answer));
          end_text(self, number);
        },
        [self, number](caf::error& failure) {
          self->state.texts.at(number).promise.deliver(std::move(failure));
          end_text(self, number);
        });
  }
}

caf::result<std::string> read_long(pointer self, const std::string& verb,
                                   const std::string& bytes) {
  auto& state = self->state;
  const auto number = ++state.texts_seen;
  if (!state.lanes.submit(number, bytes.size(), now_us_of(self)))
    return to_caf({errc::overloaded, "too many long texts wait to be read", {}});
  auto promise = self->make_response_promise<std::string>();
  state.texts.emplace(number, node_control_state::long_text{verb, bytes, promise});
  read_next(self);
  return promise;
}

void deliver(string_promise& promise, result<std::string> answer) {
  if (answer)
    promise.deliver(*std::move(answer));
  else
    promise.deliver(to_caf(answer.error()));
}

/// Asks every rank the same. The ranks that can't answer are down: what the others say is worth
/// having, unless that is nothing.
template <class Answer, class... Args>
void ask_ranks(pointer self, std::function<void(gathered<Answer>&)> next, const Args&... args) {
  gathering<Answer, pointer> all(self, rank_timeout, std::move(next));
  for (const auto& rank : self->state.links.ranks) all.ask(rank, args...);
}

string_promise answer_trace(pointer self, const std::string& bytes) {
  auto promise = self->make_response_promise<std::string>();
  const auto asked = from_wire<number_call>(bytes);
  if (!asked || asked->value < 0 || asked->value > most_trace_steps) {
    deliver(promise, fail(errc::invalid_argument,
                          fmt::format("steps: expected 0 to {}", most_trace_steps), "steps"));
    return promise;
  }
  ask_ranks<std::vector<step_trace>>(
    self,
    [self, promise](gathered<std::vector<step_trace>>& all) mutable {
      if (all.answers.empty() && !all.failures.empty()) {
        promise.deliver(std::move(all.failures.front()));
        return;
      }
      std::vector<step_trace> steps;
      for (const auto& of_rank : all.answers)
        steps.insert(steps.end(), of_rank.begin(), of_rank.end());
      const auto& spans = self->state.links.spans;
      promise.deliver(
        to_wire(text_reply{spans ? chrome_trace(steps, *spans) : chrome_trace(steps)}));
    },
    trace_atom::value, static_cast<std::uint32_t>(asked->value));
  return promise;
}

string_promise answer_metrics(pointer self) {
  auto promise = self->make_response_promise<std::string>();
  ask_ranks<node_stats>(
    self,
    [self, promise](gathered<node_stats>& all) mutable {
      node_stats sum;
      for (const auto& of_rank : all.answers) add(sum, of_rank);
      auto& counts = *self->state.links.counts;
      refresh(counts, sum);
      promise.deliver(to_wire(text_reply{counts.text()}));
    },
    stats_atom::value);
  return promise;
}

/// One look at everything, in five questions one after the other. What can't be told is left out.
class snapshot_taker : public std::enable_shared_from_this<snapshot_taker> {
public:
  snapshot_taker(pointer self, string_promise answer, std::int64_t known_step)
    : self_(self),
      answer_(std::move(answer)) {
    view_.known_step = known_step;
    view_.model = links().desk->model();
  }

  void start() {
    const auto& door = links().door;
    if (!door) return take_nodes();
    ask_for<node_health>(door, verb::health, &dashboard_view::health, [](snapshot_taker& it) {
      it.ask_for<request_list>(it.links().door, verb::requests, &dashboard_view::requests,
                               [](snapshot_taker& next) { next.take_nodes(); });
    });
  }

private:
  static constexpr std::uint32_t steps_of_rank = 64;

  control_links& links() { return self_->state.links; }

  void take_nodes() {
    const auto cluster = links().neighbours ? links().neighbours->look() : verb_actor();
    if (!cluster) return take_stats();
    ask_for<node_list>(cluster, verb::nodes, &dashboard_view::nodes,
                       [](snapshot_taker& it) { it.take_stats(); });
  }

  template <class Answer, class Target>
  void ask_for(const Target& target, std::string_view verb, Answer dashboard_view::*into,
               void (*next)(snapshot_taker&)) {
    ask(self_, target, rank_timeout, call_atom::value, std::string(verb), std::string())
      .then(
        [self = shared_from_this(), into, next](const std::string& bytes) {
          if (auto read = from_wire<Answer>(bytes)) self->view_.*into = *std::move(read);
          next(*self);
        },
        [self = shared_from_this(), next](caf::error&) { next(*self); });
  }

  void take_stats() {
    ask_ranks<node_stats>(
      self_,
      [self = shared_from_this()](gathered<node_stats>& all) {
        auto& view = self->view_;
        view.replicas.resize(self->links().ranks.size());
        for (std::size_t i = 0; i < all.answers.size(); ++i) {
          add(view.stats, all.answers[i]);
          view.replicas[all.answered[i]] = std::move(all.answers[i]);
        }
        self->take_steps();
      },
      stats_atom::value);
  }

  void take_steps() {
    ask_ranks<std::vector<step_trace>>(
      self_,
      [self = shared_from_this()](gathered<std::vector<step_trace>>& all) {
        auto& steps = self->view_.steps;
        for (const auto& of_rank : all.answers)
          steps.insert(steps.end(), of_rank.begin(), of_rank.end());
        const auto begins_earlier = [](const step_trace& a, const step_trace& b) {
          return a.plan_begin_ns < b.plan_begin_ns;
        };
        std::stable_sort(steps.begin(), steps.end(), begins_earlier);
        self->finish();
      },
      trace_atom::value, steps_of_rank);
  }

  void finish() {
    using namespace std::chrono;
    view_.now_us = duration_cast<microseconds>(steady_clock::now().time_since_epoch()).count();
    view_.unix_seconds = duration_cast<seconds>(system_clock::now().time_since_epoch()).count();
    auto& counts = *links().counts;
    refresh(counts, view_.stats);
    answer_.deliver(to_wire(text_reply{dashboard_snapshot(view_, counts)}));
  }

  pointer self_;
  string_promise answer_;
  dashboard_view view_;
};

string_promise answer_snapshot(pointer self, const std::string& bytes) {
  auto promise = self->make_response_promise<std::string>();
  const auto known = from_wire<number_call>(bytes);
  std::make_shared<snapshot_taker>(self, promise, known ? known->value : -1)->start();
  return promise;
}

void finish_change(pointer self, string_promise& promise, const setting_change& change) {
  const auto& links = self->state.links;
  const auto said = carry_out(*links.config, change, links.on_doors_changed);
  deliver(promise, said ? result<std::string>(to_wire(text_reply{*said}))
                        : result<std::string>(tl::unexpected<error>(said.error())));
}

/// The order that tells a rank's scheduler of the change; nothing where it doesn't concern it.
std::optional<scheduler_order> order_of(const setting_change& change) {
  if (!change.key.starts_with("engine.")) return std::nullopt;
  const auto& engine = change.next.settings.engine;
  scheduler_order out;
  out.what = change.key == "engine.depth" ? scheduler_order::verb::set_depth
                                          : scheduler_order::verb::set_policy;
  out.depth = engine.depth;
  out.policy = policy_of(engine);
  return out;
}

string_promise answer_config_set(pointer self, const std::string& bytes) {
  auto promise = self->make_response_promise<std::string>();
  auto& links = self->state.links;
  const auto asked = from_wire<config_change>(bytes);
  auto change = asked ? links.config->plan(asked->key, asked->value)
                      : result<setting_change>(tl::unexpected<error>(asked.error()));
  if (!change) {
    promise.deliver(to_caf(change.error()));
    return promise;
  }
  if (concerns_doors(change->key) && !links.on_doors_changed) {
    deliver(promise, fail(errc::invalid_argument, change->key + ": needs a restart", "key"));
    return promise;
  }
  const auto order = order_of(*change);
  if (!order) {
    finish_change(self, promise, *change);
    return promise;
  }
  ask_ranks<bool>(
    self,
    [self, promise, change = *std::move(change)](gathered<bool>& all) mutable {
      const bool is_done = all.failures.empty() && std::find(all.answers.begin(), all.answers.end(),
                                                             false) == all.answers.end();
      if (is_done) return finish_change(self, promise, change);
      const auto why =
        all.failures.empty() ? "a rank is down" : from_caf(all.failures.front()).message;
      deliver(promise, fail(errc::not_ready, change.key + ": not every rank has taken it: " + why));
    },
    *order);
  return promise;
}

}  // namespace

control_actor::behavior_type node_control(pointer self, control_links links) {
  self->state.links = std::move(links);
  return {
    [self](call_atom, const std::string& verb, const std::string& bytes) {
      if (verb == verb::trace) return caf::result<std::string>(answer_trace(self, bytes));
      if (verb == verb::metrics) return caf::result<std::string>(answer_metrics(self));
      if (verb == verb::snapshot) return caf::result<std::string>(answer_snapshot(self, bytes));
      if (verb == verb::config_set) return caf::result<std::string>(answer_config_set(self, bytes));
      const auto& desk = self->state.links.desk;
      if (node_desk::is_long(verb, bytes.size())) return read_long(self, verb, bytes);
      auto answer = desk->answer(verb, bytes);
      if (!answer) return caf::result<std::string>(to_caf(answer.error()));
      return caf::result<std::string>(*std::move(answer));
    },
    [self](stop_atom) { self->quit(); },
  };
}

}  // namespace deepinfer
