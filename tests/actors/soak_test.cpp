// Random clients against the real actors and threads: many requests, cancels, dropped streams and,
// in the second case, crashes. Whatever happens, every answer is right as far as it goes, ends
// once, and everything comes back.
#include <doctest/doctest.h>

#include "runtime/base/random.hpp"
#include "tests/actors/hash_node.hpp"
#include "tests/actors/read_answer.hpp"
#include "tests/support/effort.hpp"

using namespace deepinfer;

namespace {

struct open_request {
  stream chunks;
  std::vector<token_id> wanted;
  bool is_cancelled = false;
};

class random_client {
public:
  random_client(const hash_node& node, std::uint64_t seed, bool with_crashes)
    : node_(node),
      client_(node.engine->connect()),
      state_(seed),
      with_crashes_(with_crashes) {}

  void run(int turns) {
    for (int turn = 0; turn < turns; ++turn) {
      if (open_.size() < 24 && draw(3) > 0) submit();
      if (!open_.empty() && draw(8) == 0) cancel();
      if (!open_.empty() && draw(12) == 0) drop();
      if (with_crashes_ && draw(150) == 0) crash();
      if (open_.size() > 16) finish_one();
    }
    while (!open_.empty()) finish_one();
  }

  int finished() const { return finished_; }

private:
  std::uint64_t draw(std::uint64_t below) { return (state_ = split_mix64(state_)) % below; }

  std::size_t any() { return draw(open_.size()); }

  void submit() {
    const auto prompt =
      prompt_ids("p" + std::to_string(draw(1000)), 1 + static_cast<std::int32_t>(draw(90)));
    const auto tokens = 1 + static_cast<std::int32_t>(draw(60));
    auto opened = client_.generate(greedy(prompt, tokens));
    REQUIRE_MESSAGE(opened.has_value(), opened.error().message);
    open_.push_back({std::move(*opened), expected_ids(prompt, tokens)});
  }

  void cancel() {
    auto& chosen = open_[any()];
    chosen.is_cancelled = true;
    REQUIRE(client_.cancel(chosen.chunks.id()).has_value());
  }

  void drop() { open_.erase(open_.begin() + static_cast<std::ptrdiff_t>(any())); }

  void crash() {
    static const char* const parts[] = {"scheduler", "worker", "kv_allocator", "release_collector",
                                        "device_gate"};
    REQUIRE(node_.engine->kill(parts[draw(5)]).has_value());
  }

  void finish_one() {
    const auto place = open_.begin() + static_cast<std::ptrdiff_t>(any());
    auto request = std::move(*place);
    open_.erase(place);
    const auto answer = test::read_answer(request.chunks, patience);
    ++finished_;
    const auto& finish = answer.finish;
    // What was told is the beginning of the right answer, and all of it unless something happened.
    REQUIRE(answer.ids.size() <= request.wanted.size());
    CHECK(std::equal(answer.ids.begin(), answer.ids.end(), request.wanted.begin()));
    if (finish.reason == finish_reason::length) CHECK(answer.ids == request.wanted);
    if (finish.reason == finish_reason::abort) CHECK(request.is_cancelled);
    if (finish.reason == finish_reason::error) {
      CHECK(with_crashes_);
      CHECK(finish.code == errc::rank_lost);
    }
  }

  const hash_node& node_;
  client client_;
  std::uint64_t state_;
  bool with_crashes_;
  std::vector<open_request> open_;
  int finished_ = 0;
};

hash_node_options crowded(std::int32_t depth) {
  hash_node_options options;
  options.depth = depth;
  options.max_num_seqs = 6;
  options.num_kv_blocks = 96;
  options.max_model_len = 256;
  options.max_num_batched_tokens = 40;
  return options;
}

}  // namespace

TEST_CASE("random clients that come, cancel and leave get right answers and leave nothing [I54]") {
  for (const auto depth : {1, 2, 3}) {
    CAPTURE(depth);
    const auto node = start_hash_node(crowded(depth));
    random_client client(node, 100 + static_cast<std::uint64_t>(depth), false);
    client.run(with_effort(400));
    CHECK(client.finished() > 100);
    check_at_rest(node);
  }
}

TEST_CASE("the same with actors that crash: one error each, or a right answer after the restart") {
  const int rounds = with_effort(3);
  for (int round = 0; round < rounds; ++round) {
    CAPTURE(round);
    const auto node = start_hash_node(crowded(2));
    random_client client(node, 900 + static_cast<std::uint64_t>(round), true);
    client.run(400);
    CHECK(node.engine->connect().stats().has_value());
    check_at_rest(node);
  }
}
