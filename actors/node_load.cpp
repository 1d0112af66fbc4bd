#include <algorithm>
#include <chrono>
#include <filesystem>
#include <latch>
#include <new>
#include <numeric>
#include <system_error>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

#include "actors/kv_pool_size.hpp"
#include "actors/model_loading.hpp"
#include "actors/node.hpp"
#include "actors/request_intake.hpp"
#include "actors/step_curve.hpp"
#include "actors/tokenizer_texts.hpp"
#include "runtime/base/log.hpp"
#include "runtime/core/capacity.hpp"
#include "runtime/core/json_grammar.hpp"
#include "runtime/device/cpu_device.hpp"
#include "runtime/model/memory_plan.hpp"
#include "runtime/model/model_runner.hpp"

namespace deepinfer {
namespace {

std::int64_t machine_bytes() {
  return std::int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
}

std::int32_t cores() {
  return static_cast<std::int32_t>(std::max(1u, std::thread::hardware_concurrency()));
}

result<std::int32_t> model_length(const engine_settings& settings, const model_config& config) {
  const auto wanted = settings.model.max_model_len;
  if (!wanted) return static_cast<std::int32_t>(config.max_positions);
  if (*wanted > config.max_positions)
    return fail(errc::bad_config,
                fmt::format("model.max_model_len: found {}, the model takes at most {}", *wanted,
                            config.max_positions));
  return *wanted;
}

/// Blocks must hold whole groups of compressed rows of every layer.
result<void> check_block_size(std::int32_t block_size, const model_config& config) {
  std::int32_t multiple = 1;
  for (const auto& layer : config.layers)
    if (layer.ratio > 0) multiple = std::lcm(multiple, layer.ratio);
  if (block_size % multiple != 0)
    return fail(errc::bad_config,
                fmt::format("engine.block_size: found {}, expected a multiple of {}, the "
                            "model's compression ratios",
                            block_size, multiple));
  return {};
}

/// Where drafts come from; none without drafts.
result<drafter_kind> drafter_of(const step_settings& engine, const model_config& config) {
  if (engine.num_drafts == 0) return drafter_kind::none;
  if (engine.drafter == drafter_setting::ngram) return drafter_kind::ngram;
  if (config.has_draft()) return drafter_kind::dspark;
  if (engine.drafter == drafter_setting::automatic) return drafter_kind::ngram;
  return fail(
    errc::bad_config,
    "engine.drafter: found dspark, expected ngram or auto: the checkpoint has no drafter");
}

result<void> add_speculation(const step_settings& engine, const model_config& config,
                             runner_config& sizes) {
  sizes.num_drafts = engine.num_drafts;
  DI_TRY(sizes.drafter, drafter_of(engine, config));
  sizes.acceptance = engine.acceptance == acceptance_setting::rejection ? acceptance_rule::rejection
                                                                        : acceptance_rule::coupled;
  sizes.stop_mask = engine.stop_mask;
  sizes.prefix_cache = engine.prefix_cache;
  sizes.resume_stride = engine.resume_stride;
  sizes.host_blocks = engine.prefix_host_blocks;
  sizes.replay = static_cast<replay_mode>(engine.replay);
  sizes.keep_tokens = engine.replay == replay_setting::off ? 0 : engine.replay_keep_tokens;
  if (engine.verify == verify_setting::confidence && sizes.drafter != drafter_kind::dspark)
    return fail(
      errc::bad_config,
      "engine.verify: found confidence, expected fixed without the checkpoint's drafter or with "
      "engine.num_drafts = 0");
  return {};
}

static_assert(static_cast<int>(replay_setting::compact) == static_cast<int>(replay_mode::compact));

result<runner_config> sizes_of(const engine_settings& settings, const model_config& config) {
  const auto& engine = settings.engine;
  runner_config sizes;
  DI_TRY_VOID(add_speculation(engine, config, sizes));
  sizes.depth = engine.depth;
  sizes.max_num_seqs = engine.max_num_seqs;
  sizes.state_slots = engine.max_num_seqs * engine.depth;
  sizes.block_size = engine.block_size;
  sizes.numeric = numeric_of(engine);
  DI_TRY(sizes.kernels, kernels_of(engine));
  DI_TRY(sizes.max_model_len, model_length(settings, config));
  DI_TRY_VOID(check_block_size(engine.block_size, config));
  sizes.max_num_batched_tokens = engine.max_num_batched_tokens;

  const pipeline_shape shape{engine.depth, sizes.num_drafts, sizes.draft_overhang};
  kv_pool_wish wish;
  wish.num_kv_blocks = engine.num_kv_blocks;
  wish.kv_cache_memory = engine.kv_cache_memory;
  wish.max_num_seqs = engine.max_num_seqs;
  wish.max_model_len = sizes.max_model_len;
  wish.block_size = sizes.block_size;
  wish.blocks_of_one = blocks_for(sizes.max_model_len + shape.margin(), sizes.block_size);
  wish.machine_bytes = machine_bytes();
  sizes.num_kv_blocks = 1;  // to ask for the bytes of one
  DI_TRY(const auto layout, make_kv_layout(config, sizes, sizes.drafter == drafter_kind::dspark));
  wish.block_bytes = layout.block_bytes();
  DI_TRY(const auto pool, size_kv_pool(wish));
  for (const auto& warning : pool.warnings) log(severity::warning, "{}", warning);
  sizes.num_kv_blocks = pool.blocks;
  return sizes;
}

intake_facts intake_of(const engine_settings& settings, const loaded_model& model,
                       const std::string& name, std::int32_t max_model_len) {
  auto facts = intake_facts_of(settings, name, max_model_len);
  facts.vocab_size = model.config().vocab_size;
  facts.bos = std::max(0, model.config().bos_token);
  facts.eos_ids = model.config().eos_tokens;
  return facts;
}

}  // namespace

std::string served_name(const engine_settings& settings, const std::string& path) {
  if (!settings.model.served_names.empty()) return settings.model.served_names.front();
  auto directory = std::filesystem::path(path).lexically_normal();
  if (!directory.has_filename()) directory = directory.parent_path();
  return directory.filename().string();
}

namespace {

/// State that can't fit the machine is refused before any of it is touched. Each replica has its
/// own.
result<void> check_memory(const model_config& config, const runner_config& sizes,
                          std::int32_t replicas) {
  DI_TRY(const auto layout, make_kv_layout(config, sizes, sizes.drafter == drafter_kind::dspark));
  const auto machine = machine_bytes();
  const auto share = machine / replicas;
  const auto state = layout.total_bytes() - layout.host_bytes();
  const auto of_each =
    replicas == 1 ? std::string() : fmt::format(" for each of {} replicas", replicas);
  if (state > share)
    return fail(errc::bad_config,
                fmt::format("engine.num_kv_blocks {} and engine.max_num_seqs {} take {} for the "
                            "state of sequences{}, the machine has {}",
                            sizes.num_kv_blocks, sizes.max_num_seqs, bytes_text(state), of_each,
                            bytes_text(machine)));
  if (layout.total_bytes() > share)
    return fail(
      errc::bad_config,
      fmt::format("engine.prefix_host_blocks: found {}, which take {}{}; expected at most "
                  "{}, for which the machine has memory beside the state of sequences",
                  sizes.host_blocks, bytes_text(layout.host_bytes()), of_each,
                  (share - state) / layout.block_bytes()));
  return {};
}

/// What replicas share of a loaded model.
struct shared_machines {
  std::shared_ptr<const tokenizer_texts> texts;
  std::shared_ptr<const request_intake> intake;
  std::shared_ptr<const token_trie> trie;
  std::shared_ptr<verify_sizer> sizer;  ///< as measured; each replica learns on from a copy
};

/// A replica's own device, buffers and masks over what all share.
result<rank_machines> machines_of(const loaded_model& model, const runner_config& sizes,
                                  const cpu_device_config& device, const shared_machines& shared) {
  rank_machines out;
  DI_TRY(auto runner, model_runner::make(model.weights, sizes));
  out.runner = std::move(runner);
  out.on = std::make_unique<cpu_device>(device);
  out.texts = shared.texts;
  out.intake = shared.intake;
  out.eos_ids = model.config().eos_tokens;
  out.think_end = model.words.id_of("</think>").value_or(-1);
  out.grammars = std::make_shared<json_grammar_source>(shared.trie, -1, model.config().eos_tokens);
  if (shared.sizer) out.sizer = std::make_shared<verify_sizer>(*shared.sizer);
  return out;
}

/// The actor library ends the process where it can't start its threads; so this asks first, by
/// starting as many and a few to spare. Throws std::system_error.
void check_threads() {
  std::latch may_end(1);
  std::vector<std::jthread> threads;
  const std::unique_ptr<std::latch, void (*)(std::latch*)> opener(
    &may_end, [](std::latch* latch) { latch->count_down(); });
  for (int i = 0; i < cores() + 6; ++i) threads.emplace_back([&may_end] { may_end.wait(); });
}

}  // namespace

result<std::unique_ptr<node>> node::load(const engine_settings& settings, const std::string& path,
                                         const load_progress& on_progress, work_meter* meter,
                                         node_parts parts) {
  try {
    return load_unguarded(settings, path, on_progress, meter, std::move(parts));
  } catch (const std::system_error& failure) {
    return fail(errc::no_device, fmt::format("threads of the device and of the actors can't be "
                                             "started: {} (see the limits of this user)",
                                             failure.what()));
  } catch (const std::bad_alloc&) {
    return fail(errc::no_device, path + ": the machine has not enough free memory for the weights, "
                                        "the state of sequences and the buffers of a step");
  }
}

result<std::unique_ptr<node>> node::load_unguarded(const engine_settings& settings,
                                                   const std::string& path,
                                                   const load_progress& on_progress,
                                                   work_meter* meter, node_parts parts) {
  const auto begin = std::chrono::steady_clock::now();
  if (settings.engine.device == device_kind::virtual_clock)
    return fail(errc::bad_config, "device: the virtual device runs scripted tests, expected cpu");
  DI_TRY(const auto model,
         load_model(path, numeric_of(settings.engine), on_progress, settings.model.format));
  DI_TRY(const auto sizes, sizes_of(settings, model.config()));
  const auto replicas = std::max(1, settings.engine.dp_size);
  DI_TRY_VOID(check_memory(model.config(), sizes, replicas));

  const auto name = served_name(settings, path);
  cpu_device_config device;
  device.threads = std::max(1, threads_of(settings.engine) / replicas);
  device.pin_threads = settings.engine.pin_threads && replicas == 1;  // or all on the same cores
  device.meter = meter;
  shared_machines shared;
  shared.texts = std::make_shared<const tokenizer_texts>(model.words);
  shared.intake = std::make_shared<request_intake>(
    model.words, intake_of(settings, model, name, sizes.max_model_len));
  shared.trie = trie_of(model.words, *shared.texts, model.config().vocab_size);
  if (settings.engine.verify == verify_setting::confidence) {
    DI_TRY(shared.sizer, measure_step_curve(model.weights, sizes, device.threads), path);
  }
  std::vector<rank_machines> machines;
  for (std::int32_t i = 0; i < replicas; ++i) {
    DI_TRY(auto it, machines_of(model, sizes, device, shared), path);
    machines.push_back(std::move(it));
    device.meter = nullptr;  // it counts one stream
  }

  node_facts facts;
  facts.model_name = name;
  facts.model_path = path;
  facts.identity = model.identity;
  facts.max_model_len = sizes.max_model_len;
  facts.num_kv_blocks = sizes.num_kv_blocks * replicas;
  facts.block_size = sizes.block_size;
  facts.threads = device.threads * replicas;
  facts.kernels = kernels::name_of(sizes.kernels);
  facts.device_name = machines.front().on->name();
  facts.load_seconds =
    std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  check_threads();
  return start(settings, std::move(machines), std::move(facts), std::move(parts));
}

}  // namespace deepinfer
