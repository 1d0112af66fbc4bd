#include <doctest/doctest.h>

#include "messages/api.pb.h"
#include "messages/wire.hpp"
#include "tests/messages/round_trip.hpp"
#include "tests/support/effort.hpp"
#include "tests/support/mutate.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

const std::string not_text("\xff\0z", 3);

request_info open_request() {
  return {.id = "r-1",
          .client_request_id = "mine",
          .tenant = "blue",
          .state = "decode",
          .replica = 1,
          .prompt_tokens = 2,
          .cached_tokens = 3,
          .output_tokens = 4,
          .age_us = std::int64_t{1} << 40,
          .chunks_pending = 5,
          .seed = std::uint64_t{1} << 63};
}

model_info model() {
  return {.names = {"tiny", "模型"},
          .max_model_len = 1,
          .vocab_size = 2,
          .num_kv_blocks = 3,
          .block_size = 4,
          .replicas = 5,
          .device = "cpu",
          .kernels = "avx2",
          .fingerprint = "fp_0a",
          .loaded_at = std::int64_t{1} << 33,
          .identity = "0a",
          .capacity = 6};
}

node_entry known_node() {
  return {.name = "b",
          .host = "10.0.0.2",
          .port = 65535,
          .state = "up",
          .origin = "joined",
          .reason = "none"};
}

token_chunk chunk_of(const std::string& id, std::uint64_t seq) {
  token_chunk out;
  out.request_id = id;
  out.seq = seq;
  out.ids = {5, 0};
  return out;
}

/// Together and one at a time; a field more must be added to the number here, and so to `full`.
template <class T>
void check_struct(const T& full, std::size_t fields) {
  check_back(T{});
  check_back(full);
  CHECK(check_one_at_a_time(full) == fields);
}

}  // namespace

TEST_CASE("what operators ask and are told comes back together and one field at a time") {
  check_struct(node_health{.state = health_state::draining,
                           .progress = 0.42,
                           .stage = "shard 3/8",
                           .node = "a",
                           .replicas = 2,
                           .open_requests = 3},
               6);
  check_struct(model(), 12);
  check_back(tokenize_call{.text = not_text, .chat_json = {}, .add_special = true});
  check_back(tokenize_call{});
  check_back(tokenize_call{.text = {}, .chat_json = "{}", .add_special = false});
  check_struct(token_list{.ids = {0, 129279}, .pieces = {"a", not_text, ""}, .text = not_text}, 3);
  check_struct(text_reply{not_text}, 1);
  check_struct(number_call{-5}, 1);
  check_struct(config_change{.key = "depth", .value = "2"}, 2);
  check_struct(open_request(), 11);
  check_struct(request_list{{open_request(), {}}}, 1);
}

TEST_CASE("what nodes tell each other comes back together and one field at a time") {
  check_struct(hello_reply{.version = 4294967295u, .node = "a", .tenant = "blue"}, 3);
  check_struct(join_call{.name = "b", .host = "10.0.0.2", .port = 4242}, 3);
  check_struct(known_node(), 6);
  check_struct(node_list{{known_node(), {}}}, 1);
}

TEST_CASE("every state of a node comes back, and one invented later is unspecified") {
  for (int i = 0; i <= static_cast<int>(health_state::failed); ++i) {
    node_health health;
    health.state = static_cast<health_state>(i);
    check_back(health);
  }
  CHECK(from_wire<node_health>("\x08\x63")->state == health_state::unspecified);
}

TEST_CASE("an error comes back with its code, message and param; a newer code is internal") {
  for (int i = 0; i <= static_cast<int>(errc::io_failed); ++i) {
    const auto back = from_wire<error>(to_wire(error{static_cast<errc>(i), "too much", "n"}));
    REQUIRE(back);
    CHECK(back->code == static_cast<errc>(i));
    CHECK(back->message == "too much");
    CHECK(back->param == "n");
  }
  v1::Error m;
  m.set_code("invented_later");
  CHECK(from_wire<error>(m.SerializeAsString())->code == errc::internal);
  CHECK(from_wire<error>(to_wire(error{errc::internal, "\xff", "\xfe"}))->message == "?");
}

TEST_CASE("a list of chunks comes back in order, and says nothing of what a chunk lacks") {
  chunk_list list{{chunk_of("a", 0), chunk_of("b", 7), chunk_of("a", 1)}};
  list.chunks[1].finish.emplace().reason = finish_reason::length;
  list.chunks[2].finish.emplace().stop_bytes = 3;
  check_back(list);
  check_back(chunk_list{});
  v1::ChunkList m;
  REQUIRE(m.ParseFromString(to_wire(list)));
  CHECK(!m.chunks(0).has_finish());
  CHECK(!m.chunks(1).finish().has_stop_bytes());
  CHECK(m.chunks(2).finish().stop_bytes() == 3);
}

TEST_CASE("names that are not UTF-8 are made so in lists, too") {
  model_info sent;
  sent.names = {"a\xff"};
  const auto back = from_wire<model_info>(to_wire(sent));
  REQUIRE(back);
  CHECK(back->names == std::vector<std::string>{"a?"});
}

TEST_CASE("mutants of what nodes send each other are read or refused") {
  mutator mutate(13);
  chunk_list list{{chunk_of("a", 0), chunk_of("b", 7)}};
  list.chunks[0].logprobs = {{{5}, {-1.0f}, {"a"}}, {{6}, {-2.0f}, {}}};
  const auto chunks = to_wire(list);
  const auto nodes = to_wire(node_list{{known_node(), known_node()}});
  const int rounds = with_effort(10'000);
  int refused = 0;
  for (int i = 0; i < rounds; ++i) {
    if (const auto back = from_wire<chunk_list>(mutate.bytes(chunks)); !back) {
      REQUIRE(back.error().code == errc::invalid_argument);
      ++refused;
    }
    if (const auto back = from_wire<node_list>(mutate.bytes(nodes)); !back) ++refused;
  }
  CHECK(refused > rounds / 10);
  CHECK(refused < 2 * rounds - rounds / 10);
}
