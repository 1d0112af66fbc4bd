// What a link tells those who watch it, over connections that a test plays: nothing of one speaks
// for the next, and who has gone is told nothing.
#include "actors/link_watchers.hpp"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <set>

#include "actors/actor_host.hpp"
#include "actors/client_state.hpp"
#include "actors/node_state.hpp"
#include "messages/wire.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/remote/child_process.hpp"
#include "tests/support/captured_log.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using namespace std::chrono_literals;

namespace {

/// Keeps questions about a model until it is told to answer: an answer may outlive its connection.
using keeper_actor =
  caf::typed_actor<rpc<std::string, call_atom, std::string, std::string>, rpc<bool, flush_atom>>;

/// A connection to a node as the test wants it.
struct played_connection {
  std::mutex mutex;
  health_state health = health_state::ready;
  std::string model = "a";
  std::int32_t capacity = 0;  ///< of the model's node; 0: it does not say
  bool is_silent = false;     ///< questions about its health get no answer
  int polls = 0;              ///< questions about its health that were answered
  int models = 0;             ///< questions about its model, answered or not
  std::vector<std::string> asked;
  caf::actor link;
  caf::actor session;
  keeper_actor keeper;

  template <class Read>
  auto read(Read&& what) {
    const std::lock_guard lock(mutex);
    return what();
  }
};

keeper_actor::behavior_type keep(keeper_actor::pointer self,
                                 std::shared_ptr<played_connection> it) {
  const auto kept = std::make_shared<std::vector<caf::typed_response_promise<std::string>>>();
  return {
    [=](call_atom, const std::string&, const std::string&) {
      const std::lock_guard lock(it->mutex);
      ++it->models;
      kept->push_back(self->make_response_promise<std::string>());
      return kept->back();
    },
    [=](flush_atom) {
      model_info model;
      model.names = {it->read([&] { return it->model; })};
      model.capacity = it->read([&] { return it->capacity; });
      for (auto& promise : std::exchange(*kept, {})) promise.deliver(to_wire(model));
      return true;
    },
  };
}

caf::behavior play_session(caf::event_based_actor* self, std::shared_ptr<played_connection> it) {
  return {
    [=](call_atom, const std::string& verb, const std::string& bytes) -> caf::result<std::string> {
      if (verb == verb::model) return self->delegate(it->keeper, call_atom::value, verb, bytes);
      const std::lock_guard lock(it->mutex);
      if (it->is_silent) return self->make_response_promise();
      ++it->polls;
      node_health health;
      health.state = it->health;
      return to_wire(health);
    },
    [=](generate_atom, const std::string& bytes) {
      const auto id = from_wire<generate_request>(bytes).value().request_id;
      const std::lock_guard lock(it->mutex);
      it->asked.push_back(id);
      it->link = caf::actor_cast<caf::actor>(self->current_sender());
      return id;
    },
    [=](cancel_atom, const std::string&) { return false; },
    [=](credit_atom, const std::string&, std::int32_t) {},
    [=](chunk_atom, const std::string& bytes) {  // by the test: on to the link, as its node's
      self->send(it->read([&] { return it->link; }), chunk_atom::value, bytes);
    },
  };
}

/// What a watcher was told, in order.
struct told {
  std::mutex mutex;
  std::vector<std::string> words;

  void add(const std::string& word) {
    const std::lock_guard lock(mutex);
    words.push_back(word);
  }
  std::vector<std::string> all() {
    const std::lock_guard lock(mutex);
    return words;
  }
  bool has(const std::string& word) {
    const auto now = all();
    return std::find(now.begin(), now.end(), word) != now.end();
  }
};

request_watcher_actor::behavior_type note_all(request_watcher_actor::pointer,
                                              std::shared_ptr<told> to) {
  return {
    [to](started_atom, std::int32_t number, const std::string& id, std::int32_t) {
      to->add(fmt::format("{} started {}", number, id));
    },
    [to](ended_atom, std::int32_t number, const std::string& id, const request_end& end) {
      to->add(fmt::format("{} ended {} {} {}", number, id, end.finish, end.seed.value_or(0)));
    },
    [](returned_atom, std::int32_t, const std::string&) {},
    [to](ready_atom, std::int32_t number, bool is_ready, const std::string& why) {
      to->add(fmt::format("{} {}", number, is_ready ? "ready" : why));
    },
    [to](slots_atom, std::int32_t number, std::int32_t slots) {
      to->add(fmt::format("{} runs {}", number, slots));
    },
    [to](gone_atom, std::int32_t number, const std::string&) {
      to->add(fmt::format("{} gone", number));
    },
  };
}

/// A link whose network is the test: each connection is the next of a list.
class played_link {
public:
  explicit played_link(std::chrono::milliseconds health_timeout = patience) {
    auto& system = host->system();
    const auto connection_of = [this] { return connect(); };
    const auto door = system.spawn([connection_of](caf::event_based_actor*) -> caf::behavior {
      return {[connection_of](hello_atom, std::uint32_t, const std::string&,
                              const std::string&) -> caf::result<caf::actor, std::string> {
        hello_reply reply;
        reply.node = "played";
        return {connection_of()->session, to_wire(reply)};
      }};
    });
    network_ = system.spawn([door](caf::event_based_actor* self) -> caf::behavior {
      return {[=](caf::connect_atom, const std::string&, std::uint16_t)
                -> caf::result<caf::node_id, caf::strong_actor_ptr, std::set<std::string>> {
        return {self->node(), caf::actor_cast<caf::strong_actor_ptr>(door),
                std::set<std::string>()};
      }};
    });
    remote_link_options options;
    options.to = {"played", 1};
    options.name = "link";
    options.health_interval = 1ms;
    options.health_timeout = health_timeout;
    options.misfit = [this](const model_info& there) -> std::optional<std::string> {
      if (fits == there.names.front()[0]) return std::nullopt;
      return "it serves " + there.names.front();
    };
    link = system.spawn(remote_link, caf::actor_cast<caf::io::middleman_actor>(network_), options);
  }
  ~played_link() {
    tell_from_outside(link, stop_atom::value);
    for (const auto& it : connections_) {
      caf::anon_send_exit(it->session, caf::exit_reason::kill);
      caf::anon_send_exit(it->keeper, caf::exit_reason::kill);
    }
    caf::anon_send_exit(network_, caf::exit_reason::kill);
  }

  /// The next connection is like this.
  void expect(health_state health, const std::string& model) {
    const std::lock_guard lock(mutex_);
    health_ = health;
    model_ = model;
  }
  /// Once it stands.
  std::shared_ptr<played_connection> connection(std::size_t number) {
    REQUIRE(eventually([&] {
      const std::lock_guard lock(mutex_);
      return connections_.size() > number;
    }));
    const std::lock_guard lock(mutex_);
    return connections_[number];
  }

  /// The answer is in the link's mailbox when this returns.
  void answer_model(const std::shared_ptr<played_connection>& of) {
    const auto did = ask_and_wait<bool>(host->system(), of->keeper, patience, flush_atom::value);
    REQUIRE(did.has_value());
  }
  /// What the link has heard until now it has acted upon.
  static void wait_for_polls(const std::shared_ptr<played_connection>& of, int more) {
    const auto until = of->read([&] { return of->polls; }) + more;
    REQUIRE(eventually([&] { return of->read([&] { return of->polls; }) >= until; }));
  }

  request_watcher_actor watcher(const std::shared_ptr<told>& to) {
    return host->system().spawn(note_all, to);
  }

  std::shared_ptr<actor_host> host = std::make_shared<actor_host>();
  remote_link_actor link;
  std::atomic<char> fits{'a'};  ///< the model that does

private:
  std::shared_ptr<played_connection> connect() {
    auto it = std::make_shared<played_connection>();
    it->keeper = host->system().spawn(keep, it);
    it->session = host->system().spawn(play_session, it);
    const std::lock_guard lock(mutex_);
    it->health = health_;
    it->model = model_;
    connections_.push_back(it);
    return it;
  }

  std::mutex mutex_;
  health_state health_ = health_state::ready;
  std::string model_ = "a";
  std::vector<std::shared_ptr<played_connection>> connections_;
  caf::actor network_;
};

bool is_asked_for_model(const std::shared_ptr<played_connection>& of) {
  return eventually([&] { return of->read([&] { return of->models; }) > 0; });
}

}  // namespace

TEST_CASE("what a node serves is told by its connection; what comes late speaks for no other") {
  played_link it;
  const auto heard = std::make_shared<told>();
  const auto watcher = it.watcher(heard);
  tell_from_outside(it.link, watch_atom::value, 7, watcher);
  const auto first = it.connection(0);
  REQUIRE(is_asked_for_model(first));
  SUBCASE("before the next connection has asked") {
    it.expect(health_state::loading, "b");
    caf::anon_send_exit(first->session, caf::exit_reason::kill);
    const auto second = it.connection(1);
    it.wait_for_polls(second, 1);
    it.answer_model(first);  // it would fit
    it.wait_for_polls(second, 2);
    second->read([&] { second->health = health_state::ready; });
    REQUIRE(is_asked_for_model(second));
    it.answer_model(second);
    it.wait_for_polls(second, 2);
  }
  SUBCASE("after the next connection was answered") {
    it.expect(health_state::ready, "b");
    caf::anon_send_exit(first->session, caf::exit_reason::kill);
    const auto second = it.connection(1);
    REQUIRE(is_asked_for_model(second));
    it.answer_model(second);
    it.wait_for_polls(second, 2);
    it.answer_model(first);
    it.wait_for_polls(second, 2);
  }
  CHECK(eventually([&] { return heard->has("7 it serves b"); }));
  CHECK_FALSE(heard->has("7 ready"));
}

TEST_CASE("a node that says nothing any more has lost its requests, and is connected to anew") {
  played_link it(1s);
  const auto heard = std::make_shared<told>();
  const auto watcher = it.watcher(heard);
  tell_from_outside(it.link, watch_atom::value, 7, watcher);
  const auto first = it.connection(0);
  REQUIRE(is_asked_for_model(first));
  it.answer_model(first);
  REQUIRE(eventually([&] { return heard->has("7 ready"); }));
  generate_request request = greedy(prompt_ids("a", 3), 5);
  request.request_id = "r";
  const client engine(
    std::make_shared<client::state>(it.host->system(), caf::actor_cast<node_door_actor>(it.link)));
  auto chunks = engine.generate(request);
  REQUIRE_MESSAGE(chunks.has_value(), chunks.error().message);
  // Its session lives on, as where the word of its end was lost.
  first->read([&] { first->is_silent = true; });
  const auto last = chunks->next(patience);
  REQUIRE(last.has_value());
  REQUIRE(last->has_value());
  REQUIRE((*last)->finish);
  CHECK((*last)->finish->code == errc::rank_lost);
  CHECK(eventually([&] { return heard->has("7 ended r error 0"); }));
  const auto second = it.connection(1);
  REQUIRE(is_asked_for_model(second));
  it.answer_model(second);
  it.wait_for_polls(second, 2);
  CHECK(eventually([&] { return heard->all().back() == "7 ready"; }));
  const auto list =
    ask_and_wait<request_list>(it.host->system(), it.link, patience, list_atom::value);
  REQUIRE(list.has_value());
  CHECK(list->requests.empty());
}

TEST_CASE("a node is judged again for what it serves when what fits has changed") {
  const captured_log log;
  played_link it;
  const auto heard = std::make_shared<told>();
  const auto watcher = it.watcher(heard);
  it.expect(health_state::ready, "c");
  tell_from_outside(it.link, watch_atom::value, 7, watcher);
  auto now = it.connection(0);
  if (now->read([&] { return now->model; }) != "c") {  // it was there before
    caf::anon_send_exit(now->session, caf::exit_reason::kill);
    now = it.connection(1);
  }
  REQUIRE(is_asked_for_model(now));
  it.answer_model(now);
  REQUIRE(eventually([&] { return heard->has("7 it serves c"); }));
  it.wait_for_polls(now, 3);
  CHECK(log.lines("it serves c").size() == 1);  // one judgement, however often it is made
  it.fits = 'c';
  REQUIRE(eventually([&] { return heard->has("7 ready"); }));
  it.fits = 'a';
  CHECK(eventually([&] { return heard->all().back() == "7 it serves c"; }));
  CHECK(now->read([&] { return now->models; }) == 1);  // it has said it once
}

TEST_CASE("how many sequences a node runs is told before it can take requests") {
  played_link it;
  const auto heard = std::make_shared<told>(), late = std::make_shared<told>();
  const auto watcher = it.watcher(heard), other = it.watcher(late);
  tell_from_outside(it.link, watch_atom::value, 7, watcher);
  const auto first = it.connection(0);
  first->read([&] { first->capacity = 6; });
  REQUIRE(is_asked_for_model(first));
  it.answer_model(first);
  REQUIRE(eventually([&] { return heard->has("7 ready"); }));
  CHECK(heard->all() == std::vector<std::string>{"7 runs 6", "7 ready"});
  tell_from_outside(it.link, watch_atom::value, 8, other);
  REQUIRE(eventually([&] { return late->has("8 ready"); }));
  CHECK(late->all() == std::vector<std::string>{"8 runs 6", "8 ready"});
  // It may come back as another.
  caf::anon_send_exit(first->session, caf::exit_reason::kill);
  const auto second = it.connection(1);
  second->read([&] { second->capacity = 3; });
  REQUIRE(is_asked_for_model(second));
  it.answer_model(second);
  REQUIRE(eventually([&] { return heard->has("7 runs 3"); }));
  CHECK(eventually([&] { return heard->all().back() == "7 ready"; }));
}

TEST_CASE("watchers that come and go leave nothing behind at a link") {
  played_link it;
  const auto heard = std::make_shared<told>(), others = std::make_shared<told>();
  const auto watcher = it.watcher(heard), other = it.watcher(others);
  const auto connection = it.connection(0);
  tell_from_outside(it.link, watch_atom::value, 1, other);
  REQUIRE(is_asked_for_model(connection));
  it.answer_model(connection);
  for (int number = 1; number <= 50; ++number) {
    tell_from_outside(it.link, watch_atom::value, number, watcher);
    REQUIRE(eventually([&] { return heard->has(fmt::format("{} ready", number)); }));
    tell_from_outside(it.link, unwatch_atom::value, number, watcher);
    REQUIRE(eventually([&] { return heard->has(fmt::format("{} gone", number)); }));
  }
  const auto before = heard->all();
  generate_request request = greedy(prompt_ids("a", 3), 5);
  request.request_id = "r";
  request.sampling.seed = 5;
  const client engine(
    std::make_shared<client::state>(it.host->system(), caf::actor_cast<node_door_actor>(it.link)));
  auto chunks = engine.generate(request);
  REQUIRE_MESSAGE(chunks.has_value(), chunks.error().message);
  token_chunk chunk;
  chunk.request_id = "r";
  chunk.ids = {3, 4};
  chunk.seed = 6;
  tell_from_outside(connection->session, chunk_atom::value, to_wire(chunk_list{{chunk}}));
  CHECK(eventually([&] { return others->has("1 started r"); }));
  const auto list =
    ask_and_wait<request_list>(it.host->system(), it.link, patience, list_atom::value);
  REQUIRE(list.has_value());
  REQUIRE(list->requests.size() == 1);
  CHECK(list->requests[0].output_tokens == 2);
  CHECK(list->requests[0].seed == 6);
  chunk.seq = 1;
  chunk.seed.reset();
  chunk.finish.emplace();
  chunk.finish->reason = finish_reason::stop;
  chunk.is_last = true;
  tell_from_outside(connection->session, chunk_atom::value, to_wire(chunk_list{{chunk}}));
  CHECK(eventually([&] { return others->has("1 ended r stop 6"); }));
  connection->read([&] { connection->health = health_state::draining; });
  CHECK(eventually([&] { return others->has("1 the node is draining"); }));
  CHECK(heard->all() == before);
}

TEST_CASE("a node that comes and goes leaves nothing behind at a router") {
  played_link it;
  const auto connection = it.connection(0);
  hash_node_options options;
  options.dp_size = 0;
  const auto node = start_hash_node(options);
  auto& inside = node.engine->inside();
  const auto client = node.engine->connect();
  for (int flap = 0; flap < 20; ++flap) {
    const auto number =
      inside.add_remote({"played", 4, true}, [&](const auto& watcher, std::int32_t own) {
        return front_of(it.link, watcher, own);
      });
    if (flap == 0) {
      REQUIRE(is_asked_for_model(connection));
      it.answer_model(connection);
    }
    REQUIRE(eventually([&] { return client.health()->replicas == 1; }));
    inside.remove_remote(number);
    CHECK(eventually([&] { return client.health()->stage == "no replica can take requests"; }));
  }
  const auto health = client.health().value();
  CHECK(health.state == health_state::failed);
  CHECK(health.open_requests == 0);
}
