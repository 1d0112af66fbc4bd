// Pools of random sizes under random operations; each answer against the naive pool's.
#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "runtime/base/random.hpp"
#include "tests/core/prefix_world.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

class dice {
public:
  explicit dice(std::uint64_t seed) : seed_(seed) {}
  std::uint32_t roll(std::size_t sides) {
    const auto words = random_words(seed_, next_++, draw_purpose::target, 0);
    return words[0] % static_cast<std::uint32_t>(sides);
  }

private:
  std::uint64_t seed_;
  std::uint32_t next_ = 0;
};

/// Prompts that branch: ids of two values only, so that many begin alike; two tenants; and some
/// that have the keys of another one, but not its ids.
std::vector<world_prompt> random_prompts(dice& random) {
  std::vector<world_prompt> out;
  for (int i = 0; i < 10; ++i) {
    std::vector<token_id> ids(2 * (1 + random.roll(5)));
    for (auto& id : ids) id = static_cast<token_id>(random.roll(2));
    out.push_back(make_prompt(std::move(ids), random.roll(4) == 0 ? 1 : 0));
  }
  for (std::size_t i = 0; i < 2; ++i) {
    auto ids = *out[i].ids;
    ids.back() += 2;
    world_prompt other = out[i];
    other.ids = std::make_shared<const std::vector<token_id>>(std::move(ids));
    out.push_back(std::move(other));
  }
  return out;
}

void operate(prefix_world& world, dice& random, const std::vector<world_prompt>& prompts) {
  using outcome = prefix_world::outcome;
  const auto count = world.sequences().size();
  const auto of = count > 0 ? random.roll(count) : 0;
  const auto kind = random.roll(100);
  if (kind < 14 && count < 8) {
    const auto prompt = random.roll(prompts.size());
    const auto keys = prompts[prompt].keys.size();
    world.look_up(prompt, random.roll(4) == 0 ? random.roll(keys + 1) : keys);
  } else if (kind < 30 && world.credit() < 4 && world.pool().owed_blocks() < 3) {
    world.ask(static_cast<std::int32_t>(1 + random.roll(2)),
              static_cast<std::int32_t>(random.roll(3)));
  } else if (kind < 60 && count > 0 && world.may_write(of)) {
    world.write(of);
    if (random.roll(2) == 0) world.publish(of, world.sequences()[of].blocks.size() - 1);
  } else if (kind < 68 && count > 0 && !world.sequences()[of].blocks.empty()) {
    const auto block = random.roll(world.sequences()[of].blocks.size());
    if (world.may_publish(of, block)) world.publish(of, block);
  } else if (kind < 84 && world.may_settle()) {
    const auto how = random.roll(8);
    world.settle(how == 0 ? outcome::failed : how == 1 ? outcome::silent : outcome::confirmed);
  } else if (kind < 95 && count > 0 && world.may_release(of)) {
    world.release(of);
  } else if (kind == 98) {
    world.release_credit();
  } else if (kind == 99 && random.roll(4) == 0) {
    world.flush();
  }
}

}  // namespace

TEST_CASE(
  "whatever comes in which order, a pool answers as the naive one, conserves its blocks and "
  "hits only what holds the ids [I12][I48][I49][I52]") {
  prefix_counters sum;
  for (std::uint64_t seed = 1; seed <= with_effort<std::uint64_t>(120); ++seed) {
    CAPTURE(seed);
    dice random(seed);
    const auto prompts = random_prompts(random);
    const auto blocks = static_cast<std::int32_t>(3 + random.roll(18));
    const auto host = static_cast<std::int32_t>(random.roll(2) * random.roll(8));
    prefix_world world({{1}, blocks, 1, world_block_size, host}, &prompts);
    for (int i = 0; i < 2000 && world.wrong().empty(); ++i) {
      operate(world, random, prompts);
      if (random.roll(3) > 0) world.send();
    }
    REQUIRE(world.wrong() == "");
    const auto& counted = world.pool().counters();
    sum.hit_tokens += counted.hit_tokens;
    sum.other_ids += counted.other_ids;
    sum.evictions += counted.evictions;
    sum.spills += counted.spills;
    sum.host_hits += counted.host_hits;
  }
  CHECK(sum.hit_tokens > 10000);  // the operations reach what they are to test
  CHECK(sum.other_ids > 100);
  CHECK(sum.evictions > 1000);
  CHECK(sum.spills > 500);
  CHECK(sum.host_hits > 100);
}
