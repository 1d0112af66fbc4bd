/// A gateway alone on a virtual clock: its rank, its clients and its watcher are played by actors
/// that only remember what they are told.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "actors/gateway.hpp"
#include "actors/virtual_actors.hpp"

namespace deepinfer::test {

struct played_rank_state {
  std::vector<sequence_request> submitted;
  std::vector<seq_id> aborted;
  std::vector<std::pair<seq_id, bool>> held;
};

struct played_sink {
  std::vector<std::size_t> lists;  ///< chunks of each message
  std::vector<token_chunk> chunks;
  caf::actor handle;
};

struct told_of_request {
  std::string what;  ///< started, ended, returned, ready, gone
  std::string id;
  std::int32_t number = 0;
};

class gateway_stage {
public:
  explicit gateway_stage(gateway_config config = {}, bool is_watched = true);
  ~gateway_stage();

  /// Starts a request of these ids; its answer.
  result<std::string> start(generate_request request, std::size_t sink = 0);
  bool cancel(const std::string& id);
  void take(const std::string& id, std::int32_t chunks);
  request_list list();
  /// The rank says what a step gave.
  void give(chunk_batch batch);
  void rank_up();
  void rank_down(bool is_final = false);
  void leave(std::size_t sink);
  /// Time goes on, and the gateway looks at the clock.
  void wait(std::chrono::milliseconds time);
  void stop();

  metrics counts;
  std::int64_t now_us = 1'000'000;
  played_rank_state rank;
  std::vector<std::unique_ptr<played_sink>> sinks;
  std::vector<told_of_request> watched;

private:
  virtual_actors actors_{0};
  scheduler_actor scheduler_;
  request_watcher_actor watcher_;
  gateway_actor gateway_;
};

/// Tokens of one sequence, with an end or without.
sequence_chunk gives(std::uint64_t sequence, std::vector<token_id> tokens,
                     finish_reason reason = finish_reason::none);
chunk_batch batch_of(std::vector<sequence_chunk> chunks, std::vector<std::uint64_t> started = {});

generate_request asks(const std::string& id, std::int32_t n = 1, std::int32_t window = 0);

}  // namespace deepinfer::test
