// Every order of operations on tiny pools: three or four blocks, two prompts that begin alike, a
// host tier of none, one or two places.
#include <doctest/doctest.h>

#include <functional>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "tests/core/prefix_world.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;
using namespace deepinfer::test;
using outcome = prefix_world::outcome;

namespace {

const std::vector<world_prompt>& prompts() {
  static const std::vector<world_prompt> two{make_prompt({1, 2, 3, 4}), make_prompt({1, 2, 5, 6})};
  return two;
}

using visit = std::function<void(const prefix_world&, const std::string& operation)>;

void each_next(const prefix_world& from, const visit& next) {
  const auto to = [&](const std::string& name, auto&& act) {
    auto world = from;
    act(world);
    world.send();
    next(world, name);
  };
  for (std::size_t prompt = 0; prompt < 2 && from.sequences().size() < 3; ++prompt)
    to(fmt::format("look up {}", prompt), [&](auto& world) { world.look_up(prompt, 2); });
  for (const std::int32_t evict : {0, 1})
    if (from.credit() < 2 && from.pool().owed_blocks() < 2)
      to(fmt::format("ask, evict {}", evict), [&](auto& world) { world.ask(1, evict); });
  for (std::size_t of = 0; of < from.sequences().size(); ++of) {
    if (from.may_write(of)) {
      to(fmt::format("write {}", of), [&](auto& world) { world.write(of); });
      to(fmt::format("write and publish {}", of), [&](auto& world) {
        world.write(of);
        world.publish(of, world.sequences()[of].blocks.size() - 1);
      });
    }
    for (std::size_t i = 0; i < from.sequences()[of].blocks.size(); ++i)
      if (from.may_publish(of, i))
        to(fmt::format("publish {} of {}", i, of), [&](auto& world) { world.publish(of, i); });
    if (from.may_release(of))
      to(fmt::format("release {}", of), [&](auto& world) { world.release(of); });
  }
  if (from.may_settle()) {
    to("confirm", [](auto& world) { world.settle(outcome::confirmed); });
    to("settle", [](auto& world) { world.settle(outcome::silent); });
    to("fail", [](auto& world) { world.settle(outcome::failed); });
  }
  if (from.credit() > 0) to("release credit", [](auto& world) { world.release_credit(); });
  to("flush", [](auto& world) { world.flush(); });
}

/// All distinct states within `depth` operations of `start`, breadth first; the operations that led
/// to the first wrong one.
struct exploration {
  std::size_t states = 0;
  std::int64_t host_hits = 0, evictions = 0;
  std::string wrong;
};
exploration explore(const prefix_world& start, int depth) {
  exploration out;
  std::set<std::vector<std::int64_t>> seen;
  std::vector<std::pair<prefix_world, std::string>> level{{start, ""}}, next;
  for (int i = 0; i < depth && out.wrong.empty(); ++i) {
    next.clear();
    for (const auto& [world, path] : level)
      each_next(world, [&](const prefix_world& it, const std::string& operation) {
        if (!it.wrong().empty() && out.wrong.empty())
          out.wrong = path + operation + ": " + it.wrong();
        out.host_hits = std::max(out.host_hits, it.pool().counters().host_hits);
        out.evictions = std::max(out.evictions, it.pool().counters().evictions);
        if (seen.insert(it.state()).second) next.emplace_back(it, path + operation + "; ");
      });
    std::swap(level, next);
  }
  out.states = seen.size();
  return out;
}

/// Eight takes seconds, seven half of one.
int depth() {
  return with_effort(1) > 1 ? 8 : 7;
}

/// A sequence of `prompt` has run to its end and left its blocks in the cache.
void run_through(prefix_world& world, std::size_t prompt) {
  world.look_up(prompt, 2);
  world.send();
  const auto of = world.sequences().size() - 1;
  while (world.sequences()[of].blocks.size() < 2) {
    world.ask(1, 1);
    world.send();
    world.write(of);
    world.settle(outcome::confirmed);
    world.send();
  }
  world.release(of);
}

}  // namespace

TEST_CASE("in every state of a small pool blocks are conserved, and a hit holds what its key says "
          "[I12][I48][I49][I52]") {
  std::size_t states = 0;
  for (const std::int32_t blocks : {2, 3, 4}) {
    CAPTURE(blocks);
    const prefix_world start({{1}, blocks, 1, world_block_size, 2}, &prompts());
    const auto cold = explore(start, depth());
    CHECK(cold.wrong == "");
    states += cold.states;
  }
  CHECK(states > 10000);
}

TEST_CASE("in every state near a full cache blocks are conserved, and a hit holds what its key "
          "says [I12][I48][I49][I52]") {
  std::size_t states = 0;
  for (const std::int32_t blocks : {2, 3, 4})
    for (const std::int32_t host : {0, 1, 2}) {
      CAPTURE(blocks);
      CAPTURE(host);
      prefix_world start({{1}, blocks, 1, world_block_size, host}, &prompts());
      run_through(start, 0);
      run_through(start, 1);
      REQUIRE(start.wrong() == "");
      REQUIRE(start.pool().cached_blocks() >= 2);
      const auto warm = explore(start, depth());
      CHECK(warm.wrong == "");
      states += warm.states;
      if (host > 0) CHECK(warm.host_hits > 0);
      CHECK(warm.evictions > 0);
    }
  CHECK(states > 20000);
}
