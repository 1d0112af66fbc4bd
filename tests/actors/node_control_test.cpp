#include <doctest/doctest.h>

#include <chrono>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/node.hpp"
#include "actors/node_control.hpp"
#include "messages/wire.hpp"
#include "runtime/base/json.hpp"

using namespace deepinfer;

namespace {

constexpr std::chrono::seconds patience{60};

/// What a rank was told; it takes every order, or none.
struct rank_stand_in {
  std::mutex mutex;
  std::vector<scheduler_order> orders;
  bool is_up = true;
};

supervisor_actor::behavior_type stand_in(supervisor_actor::pointer self,
                                         std::shared_ptr<rank_stand_in> it) {
  return {
    [](fired_atom, ticket, device_status, phase_times) {},
    [](wake_atom, std::uint64_t) {},
    [](kill_atom, const std::string&) { return false; },
    [](stats_atom) {
      node_stats out;
      out.running = 3;
      out.kv_blocks_total = 10;
      out.kv_blocks_free = 4;
      return out;
    },
    [](trace_atom, std::uint32_t steps) {
      step_trace step;
      step.step = step_id{7};
      step.kind = "decode";
      step.plan_begin_ns = 1000;
      step.plan_end_ns = 2000;
      return std::vector<step_trace>(std::min(steps, 1u), step);
    },
    [it](const scheduler_order& order) {
      const std::lock_guard lock(it->mutex);
      if (it->is_up) it->orders.push_back(order);
      return it->is_up;
    },
    [self](stop_atom) { self->quit(); },
  };
}

struct control_fixture {
  actor_host host;
  std::shared_ptr<rank_stand_in> first = std::make_shared<rank_stand_in>();
  std::shared_ptr<rank_stand_in> second = std::make_shared<rank_stand_in>();
  std::shared_ptr<live_config> config;
  std::shared_ptr<metrics> counts = std::make_shared<metrics>();
  std::mutex mutex;
  std::vector<engine_settings> told;
  control_links links;
  control_actor control;

  control_fixture() {
    const auto loaded = make_effective({}).value();
    config = std::make_shared<live_config>(loaded);
    auto words = tokenizer::open(std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41").value();
    intake_facts facts;
    facts.model_name = "tiny-v41";
    facts.vocab_size = 2048;
    facts.max_model_len = 64;
    auto& system = host.system();
    links.ranks = {system.spawn(stand_in, first), system.spawn(stand_in, second)};
    links.config = config;
    links.counts = counts;
    links.desk = std::make_shared<node_desk>(
      model_info_of({}, loaded.settings, 2048, 1),
      std::make_shared<request_intake>(std::move(words), facts), config);
    links.on_doors_changed = [this](const engine_settings& settings) {
      const std::lock_guard lock(mutex);
      told.push_back(settings);
    };
  }
  ~control_fixture() {
    caf::scoped_actor self{host.system(), true};
    for (const auto& rank : links.ranks) self->send(rank, stop_atom::value);
    if (control) self->send(control, stop_atom::value);
  }

  template <class Asked>
  result<text_reply> ask(std::string_view verb, const Asked& asked) {
    if (!control) control = host.system().spawn(node_control, links);
    DI_TRY(const auto bytes,
           ask_and_wait<std::string>(host.system(), control, patience, call_atom::value,
                                     std::string(verb), to_wire(asked)));
    return from_wire<text_reply>(bytes);
  }
};

}  // namespace

TEST_CASE_FIXTURE(control_fixture,
                  "a change of a policy reaches every rank before it is said to hold") {
  const auto reply = ask(verb::config_set, config_change{"engine.victim", "youngest"});
  REQUIRE_MESSAGE(reply, reply.error().message);
  CHECK(reply->text == "engine.victim: youngest instead of lowest_cost");
  for (const auto& rank : {first, second}) {
    REQUIRE(rank->orders.size() == 1);
    CHECK(rank->orders[0].what == scheduler_order::verb::set_policy);
    CHECK(rank->orders[0].policy.victim == victim_rule::youngest);
    CHECK(rank->orders[0].policy.min_decode_gap == 4);  // the other policies stay
  }
  CHECK(config->settings().engine.victim == victim_setting::youngest);
  REQUIRE(ask(verb::config_set, config_change{"engine.depth", "1"}));
  CHECK(first->orders.back().what == scheduler_order::verb::set_depth);
  CHECK(first->orders.back().depth == 1);
  CHECK(told.empty());
}

TEST_CASE_FIXTURE(control_fixture, "a change that a rank did not take does not hold") {
  second->is_up = false;
  const auto reply = ask(verb::config_set, config_change{"engine.min_decode_gap", "9"});
  REQUIRE(!reply);
  CHECK(reply.error().code == errc::not_ready);
  CHECK(config->settings().engine.min_decode_gap == 4);
}

TEST_CASE_FIXTURE(control_fixture,
                  "a change of a queue is told to doors and queues, not to ranks") {
  REQUIRE(ask(verb::config_set, config_change{"server.max_queued_requests", "5"}));
  REQUIRE(told.size() == 1);
  CHECK(told[0].server.max_queued_requests == 5);
  CHECK(first->orders.empty());
}

TEST_CASE_FIXTURE(control_fixture,
                  "where nobody can take a setting while running it needs a restart") {
  links.on_doors_changed = nullptr;
  const auto reply = ask(verb::config_set, config_change{"server.routing", "least_load"});
  REQUIRE(!reply);
  CHECK(reply.error().message == "server.routing: needs a restart");
  CHECK(config->settings().server.routing == routing_rule::prefix);
  const auto wrong = ask(verb::config_set, config_change{"server.port", "1"});
  REQUIRE(!wrong);
  CHECK(wrong.error().code == errc::invalid_argument);
}

TEST_CASE_FIXTURE(control_fixture, "traces and metrics are those of all ranks") {
  const auto trace = ask(verb::trace, number_call{10});
  REQUIRE_MESSAGE(trace, trace.error().message);
  CHECK(parse_json(trace->text, 128));
  CHECK(trace->text.find("\"plan\"") != std::string::npos);
  CHECK(ask(verb::trace, number_call{0}));
  const auto wrong = ask(verb::trace, number_call{-1});
  REQUIRE(!wrong);
  CHECK(wrong.error().param == "steps");
  const auto text = ask(verb::metrics, text_reply{});
  REQUIRE_MESSAGE(text, text.error().message);
  CHECK(counts->value(metric::kv_free_blocks) == 8.0);
  CHECK(text->text.find("kv_free_blocks") != std::string::npos);
}

TEST_CASE_FIXTURE(control_fixture, "a snapshot is one line of JSON, also without a door to ask") {
  const auto reply = ask(verb::snapshot, number_call{-1});
  REQUIRE_MESSAGE(reply, reply.error().message);
  CHECK(reply->text.find('\n') == std::string::npos);
  const auto read = parse_json(reply->text, 128);
  REQUIRE_MESSAGE(read, reply->text);
  CHECK(read->at("running") == 6);
  CHECK(read->at("steps").as_array().size() == 2);
  REQUIRE(read->at("replicas").as_array().size() == 2);
  CHECK(read->at("replicas").as_array()[1].at("running") == 3);
}

TEST_CASE_FIXTURE(control_fixture,
                  "a long text is read aside, and has the same answer as a short one") {
  std::string text;
  for (int i = 0; i < 20'000; ++i) text += "word ";
  if (!control) control = host.system().spawn(node_control, links);
  const auto bytes =
    ask_and_wait<std::string>(host.system(), control, patience, call_atom::value,
                              std::string(verb::tokenize), to_wire(tokenize_call{text, {}, false}));
  REQUIRE_MESSAGE(bytes, bytes.error().message);
  const auto list = from_wire<token_list>(*bytes).value();
  std::string joined;
  for (const auto& piece : list.pieces) joined += piece;
  CHECK(joined == text);
}
