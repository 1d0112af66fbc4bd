#include "runtime/model/model_topology.hpp"

#include <algorithm>
#include <limits>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer {
namespace {

// Bounds the search for primes in a damaged file; the release has 2 * 24 columns.
constexpr std::int64_t most_engram_columns = 1024;
// Bounds the list of expected tensors; the release has 40 * 384.
constexpr std::int64_t most_experts = 1 << 18;
// Of a projection's outputs; the release has 32,768. Keeps sums of bytes inside 64 bits.
constexpr std::int64_t most_outputs = 1 << 24;

using layer_list = std::vector<std::int32_t>;

tl::unexpected<error> refuse(const std::string& path, const std::string& why) {
  return fail(errc::bad_checkpoint, path + ": " + why);
}

result<void> check_ascending(const std::string& path, const layer_list& list) {
  for (std::size_t i = 1; i < list.size(); ++i)
    if (list[i] <= list[i - 1])
      return refuse(path, fmt::format("found [{}], expected ascending layers, each once",
                                      fmt::join(list, ", ")));
  return {};
}

/// The largest source at or before a layer, or -1.
std::int32_t source_of(const layer_list& sources, std::int32_t layer) {
  const auto after = std::upper_bound(sources.begin(), sources.end(), layer);
  return after == sources.begin() ? -1 : *std::prev(after);
}

/// One chain: sources have rows, every layer that reads has a source of its own ratio. So the first
/// layer of each ratio, and with it the first of ratio 1, is a source.
result<void> check_chain(const std::string& path, const layer_list& sources,
                         const layer_list& ratios, std::int32_t layer_count) {
  DI_TRY_VOID(check_ascending(path, sources));
  const auto ratio_of = [&](std::int32_t layer) { return ratios[static_cast<std::size_t>(layer)]; };
  for (const auto source : sources)
    if (ratio_of(source) == 0)
      return refuse(path, fmt::format("found layer {}, which has ratio 0, expected layers with a "
                                      "ratio of at least 1",
                                      source));
  for (std::int32_t layer = 0; layer < layer_count; ++layer) {
    if (ratio_of(layer) == 0) continue;
    const auto source = source_of(sources, layer);
    if (source < 0)
      return refuse(path, fmt::format("layer {} has ratio {}, but found no source at or before it, "
                                      "expected one",
                                      layer, ratio_of(layer)));
    if (ratio_of(source) != ratio_of(layer))
      return refuse(path, fmt::format("layer {} has ratio {}, found source {} with ratio {}, "
                                      "expected the same ratio",
                                      layer, ratio_of(layer), source, ratio_of(source)));
  }
  return {};
}

result<void> check_subset(const std::string& inner_path, const layer_list& inner,
                          const std::string& outer_path, const layer_list& outer) {
  for (const auto layer : inner)
    if (!std::binary_search(outer.begin(), outer.end(), layer))
      return refuse(inner_path, fmt::format("found layer {}, expected only layers of {} [{}]",
                                            layer, outer_path, fmt::join(outer, ", ")));
  return {};
}

result<void> check_ratios(const model_config& config, const layer_list& ratios,
                          const std::string& prefix) {
  const auto path = prefix + "compress_ratios";
  const auto layers = config.layer_count, stages = config.draft.stage_count;
  if (std::ssize(ratios) != layers + stages)
    return refuse(path, fmt::format("found {} entries, expected {}: {} layers and {} draft stages",
                                    ratios.size(), layers + stages, layers, stages));
  for (auto layer = layers; layer < layers + stages; ++layer)
    if (const auto ratio = ratios[static_cast<std::size_t>(layer)]; ratio != 0)
      return refuse(
        path, fmt::format("draft stage {}: found ratio {}, expected 0", layer - layers, ratio));
  return {};
}

result<void> check_sources(const model_config& config, const topology_lists& lists,
                           const std::string& prefix) {
  const auto kv = prefix + "kv_source_layer_ids";
  const auto key = prefix + "index_k_source_layer_ids";
  const auto index = prefix + "index_source_layer_ids";
  DI_TRY_VOID(check_chain(kv, lists.kv_sources, lists.ratios, config.layer_count));
  DI_TRY_VOID(check_chain(key, lists.index_key_sources, lists.ratios, config.layer_count));
  DI_TRY_VOID(check_chain(index, lists.index_sources, lists.ratios, config.layer_count));
  DI_TRY_VOID(check_subset(kv, lists.kv_sources, key, lists.index_key_sources));
  DI_TRY_VOID(check_subset(key, lists.index_key_sources, index, lists.index_sources));
  return {};
}

result<void> check_candidates(const model_config& config, const topology_lists& lists,
                              const std::string& prefix) {
  const auto source = config.candidate_source;
  if (source < 0) return {};
  const auto path = prefix + "candidate_source_layer_id";
  if (source_of(lists.index_sources, source) != source)
    return refuse(path, fmt::format("found layer {}, expected an index source: [{}]", source,
                                    fmt::join(lists.index_sources, ", ")));
  const auto ratio_of = [&](std::int32_t layer) {
    return lists.ratios[static_cast<std::size_t>(layer)];
  };
  for (const auto layer : lists.index_sources)
    if (layer > source && ratio_of(layer) != ratio_of(source))
      return refuse(path,
                    fmt::format("found layer {} of ratio {}, but index source {}, which would "
                                "select inside its blocks, has ratio {}: expected the same",
                                source, ratio_of(source), layer, ratio_of(layer)));
  // The newest block is always kept and may hold a single visible row.
  const std::int64_t blocks = config.candidate_blocks, size = config.candidate_block_size;
  if ((blocks - 1) * size + 1 < config.index_topk)
    return refuse(
      prefix + "candidate_topk_blocks",
      fmt::format("found {} blocks of {} rows, which may show only {} rows, expected at "
                  "least index_topk {}",
                  blocks, size, (blocks - 1) * size + 1, config.index_topk));
  return {};
}

result<void> derive_engram(model_config& config, const topology_lists& lists,
                           const std::string& prefix) {
  DI_TRY_VOID(check_ascending(prefix + "engram_layer_ids", lists.engram_layers));
  const auto path = prefix + "engram_num_embeddings";
  if (!lists.engram_rows.empty() && lists.engram_rows.size() != lists.engram_layers.size())
    return refuse(path, fmt::format("found {} entries, expected {}, one per engram_layer_ids",
                                    lists.engram_rows.size(), lists.engram_layers.size()));
  if (lists.engram_layers.empty()) return {};
  const std::int64_t columns = config.engram.columns();
  const auto total = columns * std::ssize(lists.engram_layers);
  if (total > most_engram_columns)
    return refuse(prefix + "engram_n_heads",
                  fmt::format("found {} table columns in all, expected at most {}", total,
                              most_engram_columns));
  const auto primes = primes_from(config.engram.vocab_size, total);
  for (std::size_t i = 0; i < lists.engram_layers.size(); ++i) {
    engram_layer_config table;
    table.layer = lists.engram_layers[i];
    const auto first = primes.begin() + columns * static_cast<std::ptrdiff_t>(i);
    table.primes.assign(first, first + columns);
    table.rows = std::accumulate(table.primes.begin(), table.primes.end(), std::int64_t{0});
    if (!lists.engram_rows.empty() && lists.engram_rows[i] != table.rows)
      return refuse(path, fmt::format("layer {}: found {} rows, expected {}: the sum of {} primes "
                                      "from {}",
                                      table.layer, lists.engram_rows[i], table.rows, columns,
                                      config.engram.vocab_size));
    if (table.rows > std::numeric_limits<std::int32_t>::max())
      return refuse(prefix + "engram_vocab_size",
                    fmt::format("layer {}: found {} rows, expected at most {}", table.layer,
                                table.rows, std::numeric_limits<std::int32_t>::max()));
    config.engram_layers.push_back(std::move(table));
  }
  return {};
}

void derive_attention(model_config& config, const topology_lists& lists) {
  config.layers.assign(lists.ratios.size(), {});
  for (std::int32_t id = 0; id < config.layer_count; ++id) {
    auto& layer = config.layers[static_cast<std::size_t>(id)];
    layer.ratio = lists.ratios[static_cast<std::size_t>(id)];
    if (layer.ratio == 0) continue;
    layer.kv_source = source_of(lists.kv_sources, id);
    layer.index_key_source = source_of(lists.index_key_sources, id);
    layer.index_source = source_of(lists.index_sources, id);
    layer.owns_rows = layer.kv_source == id;
    layer.owns_index_keys = layer.index_key_source == id;
    layer.runs_indexer = layer.index_source == id;
    if (config.candidate_source < 0 || !layer.runs_indexer) continue;
    if (id == config.candidate_source) layer.candidates = candidate_role::source;
    if (id > config.candidate_source) layer.candidates = candidate_role::masked;
  }
}

}  // namespace

std::vector<std::int64_t> primes_from(std::int64_t start, std::int64_t number) {
  const auto is_prime = [](std::int64_t candidate) {
    for (std::int64_t divisor = 2; divisor * divisor <= candidate; ++divisor)
      if (candidate % divisor == 0) return false;
    return candidate >= 2;
  };
  std::vector<std::int64_t> primes;
  for (auto candidate = start; std::ssize(primes) < number; ++candidate)
    if (is_prime(candidate)) primes.push_back(candidate);
  return primes;
}

result<void> check_sizes(const model_config& config, const std::string& prefix) {
  struct rule {
    bool holds;
    const char* key;
    std::int64_t found;
    std::string expected;
  };
  const auto scaled = config.quantization.has_value();
  const auto group = scaled ? config.quantization->expert_group : 1;
  const auto& draft = config.draft;
  const rule rules[] = {
    {config.rope_dim % 2 == 0, "qk_rope_head_dim", config.rope_dim, "an even number"},
    {config.rope_dim <= config.head_dim, "qk_rope_head_dim", config.rope_dim,
     fmt::format("at most head_dim {}", config.head_dim)},
    {config.head_count % config.o_groups == 0, "o_groups", config.o_groups,
     fmt::format("a divisor of num_attention_heads {}", config.head_count)},
    {config.index_topk == 0 || config.index_head_dim >= config.rope_dim, "index_head_dim",
     config.index_head_dim, fmt::format("at least qk_rope_head_dim {}", config.rope_dim)},
    {config.experts_per_token <= config.expert_count, "num_experts_per_tok",
     config.experts_per_token, fmt::format("at most n_routed_experts {}", config.expert_count)},
    {draft.experts_per_token <= draft.expert_count, "dspark_num_experts_per_tok",
     draft.experts_per_token,
     fmt::format("at most dspark_n_routed_experts {}", draft.expert_count)},
    {std::int64_t{config.expert_count} * config.layer_count <= most_experts &&
       std::int64_t{draft.expert_count} * draft.stage_count <= most_experts,
     "n_routed_experts", config.expert_count,
     fmt::format("at most {} experts in all layers", most_experts)},
    {std::int64_t{config.head_count} * config.head_dim <= most_outputs, "num_attention_heads",
     config.head_count, fmt::format("at most {} in all heads", most_outputs)},
    {std::int64_t{config.o_groups} * config.o_rank <= most_outputs, "o_lora_rank", config.o_rank,
     fmt::format("at most {} in all groups", most_outputs)},
    {std::int64_t{config.index_head_count} * config.index_head_dim <= most_outputs, "index_n_heads",
     config.index_head_count, fmt::format("at most {} in all heads", most_outputs)},
    {config.hidden_size % group == 0, "hidden_size", config.hidden_size,
     fmt::format("a multiple of {}, the inputs of an FP4 scale", group)},
    {config.expert_dim % group == 0, "moe_intermediate_size", config.expert_dim,
     fmt::format("a multiple of {}, the inputs of an FP4 scale", group)},
    {config.engram.head_dim % group == 0, "engram_head_dim", config.engram.head_dim,
     fmt::format("a multiple of {}, the columns of a table scale", group)},
    {draft.stage_count == 0 || !draft.target_layers.empty(), "dspark_target_layer_ids", 0,
     "at least one layer"},
  };
  for (const auto& rule : rules)
    if (!rule.holds)
      return refuse(prefix + rule.key,
                    fmt::format("found {}, expected {}", rule.found, rule.expected));
  return {};
}

result<void> derive_layers(model_config& config, const topology_lists& lists,
                           const std::string& prefix) {
  DI_TRY_VOID(check_ratios(config, lists.ratios, prefix));
  DI_TRY_VOID(check_sources(config, lists, prefix));
  DI_TRY_VOID(check_candidates(config, lists, prefix));
  DI_TRY_VOID(check_ascending(prefix + "dspark_target_layer_ids", config.draft.target_layers));
  DI_TRY_VOID(derive_engram(config, lists, prefix));
  derive_attention(config, lists);
  const auto at = [&](std::int32_t id) -> layer_config& {
    return config.layers[static_cast<std::size_t>(id)];
  };
  for (std::size_t i = 0; i < config.engram_layers.size(); ++i)
    at(config.engram_layers[i].layer).engram = static_cast<std::int32_t>(i);
  for (std::size_t i = 0; i < config.draft.target_layers.size(); ++i)
    at(config.draft.target_layers[i]).tap = static_cast<std::int32_t>(i);
  return {};
}

}  // namespace deepinfer
