/// A node: one process that hosts ranks with their actors, and the door for clients.
///
/// A rank is a replica of the model: its own device, threads and KV cache over the same weights. A
/// router sends each request to one of them. `node::load` reads a checkpoint and starts
/// everything; `node::start` starts with machines a test brings. No type of the actor library
/// appears here. Start order: devices, actors; stop order: the reverse, and nothing a device may
/// still read is freed before the device has come to rest.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/client.hpp"
#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

class actor_host;
class device;
class grammar_source;
class host_pace;
class metrics;
class verify_sizer;
class work_meter;
class request_intake;
class step_runner;
class token_texts;

/// What a rank runs on and with.
struct rank_machines {
  std::unique_ptr<device> on;
  std::shared_ptr<step_runner> runner;
  std::shared_ptr<const request_intake> intake;
  std::shared_ptr<const token_texts> texts;  ///< what tokens spell, for stop strings
  std::vector<std::int32_t> eos_ids;         ///< end a sequence unless it ignores them
  std::int32_t think_end = -1;               ///< ends reasoning; -1: none
  std::shared_ptr<grammar_source> grammars;  ///< null: requests with a grammar are refused
  std::shared_ptr<verify_sizer> sizer;       ///< null: every draft is verified
  host_pace* pace = nullptr;                 ///< null: none; outlives the node
  /// Told of each sequence before its first step, and when nobody starts it again; null: nobody.
  std::function<void(const sequence_request&)> on_accepted;
  std::function<void(seq_id)> on_forgotten;
};

/// What a node shares with the process around it; what is absent it makes for itself.
struct node_parts {
  std::shared_ptr<actor_host> host;  ///< the actor system, alive before the model is loaded
  std::shared_ptr<metrics> counts;
};

/// What was loaded, for people. Blocks and threads are those of all replicas.
struct node_facts {
  std::string model_name;
  std::string model_path;
  std::string identity;  ///< of the model: equal where weights, config and tokenizer are; or empty
  std::int32_t max_model_len = 0;
  std::int32_t num_kv_blocks = 0;
  std::int32_t block_size = 0;
  std::int32_t threads = 0;
  std::int32_t replicas = 1;
  std::string device_name;
  std::string kernels;  ///< the set of kernel twins in use
  double load_seconds = 0.0;
};

/// The name of the model at `path`: the first that the settings give it, or the directory's.
std::string served_name(const engine_settings& settings, const std::string& path);

/// Bytes of weights read so far and in all.
using load_progress = std::function<void(std::uint64_t done, std::uint64_t total)>;

class node {
public:
  /// Loads the checkpoint at `path` with `settings`. A `meter`, which outlives the node, counts the
  /// device's work; read it while nothing runs. Errors: bad_checkpoint, bad_config, no_device.
  static result<std::unique_ptr<node>> load(const engine_settings& settings,
                                            const std::string& path,
                                            const load_progress& on_progress = {},
                                            work_meter* meter = nullptr, node_parts parts = {});

  /// Starts actors over `machines`, whose runner fits `settings`.
  static std::unique_ptr<node> start(const engine_settings& settings, rank_machines machines,
                                     node_facts facts, node_parts parts = {});
  /// A replica over each of them; over none, requests are refused until a node elsewhere is added.
  static std::unique_ptr<node> start(const engine_settings& settings,
                                     std::vector<rank_machines> machines, node_facts facts,
                                     node_parts parts = {});

  ~node();  ///< stop()
  node(const node&) = delete;
  node& operator=(const node&) = delete;

  client connect() const;
  const node_facts& facts() const { return facts_; }
  const request_intake& intake() const;

  static constexpr std::int32_t all_replicas = -1;

  /// The newest `steps` of each replica's step trace as Chrome JSON.
  result<std::string> trace(std::uint32_t steps) const;

  /// Nothing is launched from now on; requests are taken and wait. Answered when no step is in
  /// flight. False where a rank is down.
  result<bool> pause(std::int32_t replica = all_replicas) const;
  result<bool> resume(std::int32_t replica = all_replicas) const;

  /// Most steps in flight from now on: 1 to the depth of the settings, whatever else is an error
  /// invalid_argument. Launched steps are not recalled. It holds after a restart of the rank, too.
  /// False where a rank is down.
  result<bool> set_depth(std::int32_t depth, std::int32_t replica = all_replicas) const;

  /// Kills one actor of a rank by name (scheduler, worker, kv_allocator, release_collector,
  /// device_gate), as a crash would. For tests; false where there is none.
  result<bool> kill(const std::string& actor_name, std::int32_t replica = 0) const;

  /// Ends open requests with `server_shutdown`, then actors, then devices. Idempotent.
  void stop();

  /// What it consists of: node_state.hpp, for code of the process that knows actors.
  struct machinery;
  machinery& inside() const { return *running_; }

private:
  static result<std::unique_ptr<node>> load_unguarded(const engine_settings& settings,
                                                      const std::string& path,
                                                      const load_progress& on_progress,
                                                      work_meter* meter, node_parts parts);
  node(std::unique_ptr<machinery> running, node_facts facts);
  result<bool> order(std::uint8_t what, std::int32_t depth, std::int32_t replica) const;

  std::unique_ptr<machinery> running_;
  node_facts facts_;
};

}  // namespace deepinfer
