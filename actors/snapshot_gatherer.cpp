#include "actors/snapshot_gatherer.hpp"

#include "actors/client_state.hpp"
#include "actors/gather.hpp"
#include "messages/wire.hpp"

namespace deepinfer {
namespace {

/// So much later than it could be may a page be: it takes 6 s of silence for a lost connection.
constexpr std::chrono::seconds answer_time{2};

/// The questions to each node, in this order; then the same number to the gateway itself.
enum question : std::size_t { of_health, of_snapshot, count };
constexpr auto of_requests = of_snapshot;

template <class Answer>
std::optional<Answer> read(const std::string& bytes) {
  auto out = from_wire<Answer>(bytes);
  return out ? std::optional<Answer>(*std::move(out)) : std::nullopt;
}

void note_answer(gateway_part& part, std::size_t what, const std::string& bytes) {
  if (what == of_health)
    part.health = read<node_health>(bytes);
  else if (auto reply = read<text_reply>(bytes))
    part.snapshot = std::move(reply->text);
}

void note_answer(gateway_view& view, std::size_t what, const std::string& bytes) {
  if (what == of_requests)
    view.requests = read<request_list>(bytes);
  else if (auto health = read<node_health>(bytes))
    view.health = *std::move(health);
}

std::string snapshot_of(gathered<std::string>& all, const snapshot_sources& from) {
  using namespace std::chrono;
  gateway_view view;
  view.nodes = from.known;
  for (std::size_t i = 0; i < all.answers.size(); ++i) {
    const auto node = all.answered[i] / question::count, what = all.answered[i] % question::count;
    if (node < view.nodes.size())
      note_answer(view.nodes[node], what, all.answers[i]);
    else
      note_answer(view, what, all.answers[i]);
  }
  for (std::size_t i = 0; i < all.failures.size(); ++i) {
    const auto node = all.failed[i] / question::count;
    if (node < view.nodes.size()) view.nodes[node].failure = from_caf(all.failures[i]).message;
  }
  const auto now = steady_clock::now();
  view.now_us = duration_cast<microseconds>(now.time_since_epoch()).count();
  view.uptime_s = duration_cast<seconds>(now - from.running_since).count();
  return to_wire(text_reply{gateway_snapshot(view)});
}

}  // namespace

verb_actor::behavior_type snapshot_gatherer(verb_actor::pointer self,
                                            const snapshot_sources& sources) {
  return {[self, sources](call_atom, const std::string&, const std::string& known_step) {
    auto promise = self->make_response_promise<std::string>();
    gathering<std::string, verb_actor::pointer> all(
      self, answer_time, [self, promise, sources](gathered<std::string>& got) mutable {
        promise.deliver(snapshot_of(got, sources));
        self->quit();
      });
    const std::string health(verb::health), snapshot(verb::snapshot), requests(verb::requests);
    for (const auto& node : sources.nodes) {
      all.ask(node, call_atom::value, health, std::string());
      all.ask(node, call_atom::value, snapshot, known_step);
    }
    all.ask(sources.door, call_atom::value, health, std::string());
    all.ask(sources.door, call_atom::value, requests, std::string());
    return promise;
  }};
}

}  // namespace deepinfer
