#include "runtime/model/memory_plan.hpp"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <fmt/format.h>

namespace deepinfer {
namespace {

constexpr std::int64_t float_bytes = 4;
constexpr std::int64_t half_bytes = 2;
constexpr std::int64_t scale_group = 32;       // FP8 rows and FP4 index keys: one e8m0 byte each
constexpr std::int64_t main_scale_group = 16;  // FP4 main rows: one e4m3 byte each
constexpr std::int64_t table_row_unit = 256;   // Engram rows are padded to a multiple of it

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

std::int64_t fp8_row(std::int64_t width) {
  return width + ceil_div(width, scale_group);
}

std::int64_t window_row_bytes(std::int64_t width, state_format format) {
  switch (format) {
  case state_format::released: return fp8_row(width);
  case state_format::bf16: return width * half_bytes;
  case state_format::f32: return width * float_bytes;
  }
  return 0;
}

std::int64_t main_row_bytes(const model_config& config, state_format format) {
  const std::int64_t width = config.head_dim;
  if (format != state_format::released || !config.fp4_sparse_kv)
    return window_row_bytes(width, format);
  return ceil_div(width, 2) + ceil_div(width, main_scale_group);
}

std::int64_t key_bytes(std::int64_t width, state_format format) {
  if (format != state_format::released) return window_row_bytes(width, format);
  return ceil_div(width, 2) + ceil_div(width, scale_group);
}

/// Bytes of one element as a loader finds it; plain tensors are BF16 in the release.
std::int64_t element_bytes(storage_rule rule) {
  switch (rule) {
  case storage_rule::plain: return half_bytes;
  case storage_rule::f32: return float_bytes;
  default: return 1;
  }
}

std::map<tensor_kind, std::int64_t> whole_bytes(const model_config& config) {
  std::map<tensor_kind, std::int64_t> totals;
  for (const auto& tensor : expected_tensors(config)) {
    std::int64_t bytes = element_bytes(tensor.rule);
    for (const auto extent : tensor.shape) bytes *= extent;
    totals[tensor.kind] += bytes;
  }
  return totals;
}

/// One rank's share of the tables: rows padded so that every rank has as many.
std::int64_t table_share(const model_config& config, std::int64_t all_bytes, std::int64_t ranks) {
  std::int64_t rows = 0, share_rows = 0;
  const auto unit = std::lcm(table_row_unit, ranks);
  for (const auto& table : config.engram_layers) {
    rows += table.rows;
    share_rows += ceil_div(table.rows, unit) * unit / ranks;
  }
  return rows == 0 ? 0 : share_rows * (all_bytes / rows);
}

result<void> check_request(const model_config& config, const plan_request& request) {
  struct bound {
    const char* field;
    std::int64_t found;
    std::int64_t least;
    std::int64_t most;
  };
  constexpr std::int64_t many = 1 << 20;  // keeps products of sizes inside 64 bits
  const bound bounds[] = {
    {"ep_size", request.ranks, 1, many},
    {"device_memory", request.device_memory, 0, std::int64_t{1} << 60},
    {"spare_experts", request.spare_experts, 0, many},
    {"depth", request.depth, 1, 1024},
    {"num_drafts", request.num_drafts, 0, 1024},
    {"draft_overhang", request.draft_overhang, 0, many},
    {"block_size", request.block_size, 1, many},
    {"max_model_len", request.max_model_len, 0, std::int64_t{1} << 30},
    {"prefix_host_blocks", request.host_blocks, 0, request.prefix_cache ? many : 0},
  };
  for (const auto& it : bounds)
    if (it.found < it.least || it.found > it.most)
      return fail(
        errc::invalid_argument,
        fmt::format("{}: found {}, expected {} to {}", it.field, it.found, it.least, it.most),
        it.field);
  if (!(request.headroom >= 0 && request.headroom < 1))
    return fail(errc::invalid_argument,
                fmt::format("headroom: found {}, expected 0 to below 1", request.headroom),
                "headroom");
  for (const auto& layer : config.layers)
    if (layer.ratio > 0 && request.block_size % layer.ratio != 0)
      return fail(errc::invalid_argument,
                  fmt::format("block_size: found {}, expected a multiple of the ratio {}",
                              request.block_size, layer.ratio),
                  "block_size");
  return {};
}

void add_weights(memory_plan& plan, const model_config& config) {
  const auto& request = plan.request;
  const std::int64_t ranks = request.ranks;
  const auto per_rank = [&](std::int64_t experts) {
    return ceil_div(experts + request.spare_experts, ranks);
  };
  for (const auto& [kind, all] : whole_bytes(config)) {
    auto bytes = all;
    auto is_on_device = true;
    if (kind == tensor_kind::experts) {
      plan.bytes_per_expert = all / (std::int64_t{config.layer_count} * config.expert_count);
      plan.experts_per_rank = per_rank(config.expert_count);
      bytes = plan.bytes_per_expert * config.layer_count * plan.experts_per_rank;
    } else if (kind == tensor_kind::draft_experts) {
      const auto count = std::int64_t{config.draft.stage_count} * config.draft.expert_count;
      bytes = all / count * config.draft.stage_count * per_rank(config.draft.expert_count);
    } else if (kind == tensor_kind::engram_tables) {
      bytes = table_share(config, all, ranks);
      is_on_device = request.engram_on_device;
    }
    plan.weights.push_back({kind, bytes, is_on_device});
    plan.all_weight_bytes += all;
    if (is_on_device) plan.weight_bytes += bytes;
  }
}

void add_fits(memory_plan& plan) {
  const auto block = plan.state.block();
  const std::int64_t block_size = plan.request.block_size;
  const auto room = std::max<std::int64_t>(plan.free_bytes, 0);
  if (block > 0) plan.tokens = room / block * block_size;
  if (plan.state.has_resume_points)
    plan.resume_bytes = plan.tokens / block_size * plan.state.resume_point;
  plan.host_bytes = plan.request.host_blocks * block;
  for (const std::int64_t tokens :
       {std::int64_t{1} << 10, std::int64_t{1} << 13, std::int64_t{1} << 16, plan.max_model_len}) {
    if (tokens > plan.max_model_len) continue;
    if (!plan.fits.empty() && plan.fits.back().tokens_each == tokens) continue;
    const auto each = plan.state.sequence() + ceil_div(tokens, block_size) * block;
    plan.fits.push_back({tokens, each > 0 ? room / each : 0});
  }
}

std::string count_text(std::int64_t number) {
  auto text = std::to_string(number);
  for (auto at = std::ssize(text) - 3; at > (number < 0 ? 1 : 0); at -= 3)
    text.insert(static_cast<std::size_t>(at), ",");
  return text;
}

}  // namespace

std::string_view name_of(state_format format) {
  switch (format) {
  case state_format::released: return "released";
  case state_format::bf16: return "bf16";
  case state_format::f32: return "f32";
  }
  return "?";
}

state_bytes state_bytes_of(const model_config& config, const plan_request& request) {
  const auto ahead =
    std::int64_t{request.depth} * (1 + std::int64_t{request.num_drafts}) + request.draft_overhang;
  const auto format = request.format;
  state_bytes state;
  state.window_rows = config.window + ahead;
  const auto rings = static_cast<std::int64_t>(config.layers.size());
  state.window = rings * state.window_rows * window_row_bytes(config.head_dim, format);
  state.resume_point = rings * (config.window - 1) * window_row_bytes(config.head_dim, format);
  state.has_resume_points = request.prefix_cache;
  for (const auto& layer : config.layers) {
    if (layer.ratio == 0) continue;
    const auto rows = request.block_size / layer.ratio;
    if (layer.owns_rows) state.block_rows += rows * main_row_bytes(config, format);
    if (layer.owns_index_keys) state.block_keys += rows * key_bytes(config.index_head_dim, format);
    // Two sums per position: the projected inputs and their scores.
    if (layer.owns_rows && layer.ratio > 1)
      state.pooling += (layer.ratio + ahead) * 2 * config.head_dim * float_bytes;
  }
  state.per_token = static_cast<double>(state.block_rows + state.block_keys) / request.block_size;
  return state;
}

result<memory_plan> plan_memory(const model_config& config, const plan_request& request) {
  DI_TRY_VOID(check_request(config, request));
  memory_plan plan;
  plan.request = request;
  plan.max_model_len = request.max_model_len > 0 ? request.max_model_len : config.max_positions;
  add_weights(plan, config);
  plan.state = state_bytes_of(config, request);
  const auto usable =
    std::floor(static_cast<double>(request.device_memory) * (1 - request.headroom));
  plan.free_bytes = static_cast<std::int64_t>(usable) - plan.weight_bytes;
  add_fits(plan);
  return plan;
}

std::string bytes_text(std::int64_t bytes) {
  constexpr const char* units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  if (bytes > -1000 && bytes < 1000) return fmt::format("{} B", bytes);
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; std::abs(value) >= 999.995 && unit + 1 < std::size(units); ++unit) value /= 1000;
  return fmt::format("{:.2f} {}", value, units[unit]);
}

std::string to_table(const memory_plan& plan) {
  const auto& request = plan.request;
  std::string out;
  const auto line = [&](std::string_view name, const std::string& value,
                        std::string_view note = "") {
    out += fmt::format("  {:<26}{:>14}{}{}\n", name, value, note.empty() ? "" : "  ", note);
  };
  out += fmt::format("weights of one rank of {} ({} in all)\n", request.ranks,
                     bytes_text(plan.all_weight_bytes));
  for (const auto& part : plan.weights) {
    std::string note;
    if (part.kind == tensor_kind::experts)
      note = fmt::format("{} of each layer, {} each", plan.experts_per_rank,
                         bytes_text(plan.bytes_per_expert));
    if (!part.is_on_device) note = "in host memory, not counted";
    line(name_of(part.kind), bytes_text(part.bytes), note);
  }
  line("sum", bytes_text(plan.weight_bytes));
  const auto& state = plan.state;
  out += fmt::format("state ({})\n", name_of(request.format));
  line("windows of a sequence", bytes_text(state.window),
       fmt::format("{} rows in every layer", state.window_rows));
  line("pooling of a sequence", bytes_text(state.pooling));
  line("a block", bytes_text(state.block()), fmt::format("{} tokens", request.block_size));
  line("a token", fmt::format("{:.6g} B", state.per_token));
  line("a resume point", bytes_text(state.resume_point),
       request.prefix_cache ? "in every block, counted there"
                            : "of a block, where a prefix cache keeps one");
  if (request.host_blocks > 0)
    line("host tier", bytes_text(plan.host_bytes),
         fmt::format("{} blocks, in host memory", count_text(request.host_blocks)));
  if (request.device_memory == 0) return out;
  out += fmt::format("device memory {}, {:.0f} % left as headroom\n",
                     bytes_text(request.device_memory), request.headroom * 100);
  if (plan.free_bytes < 0) {
    out += fmt::format("  the weights do not fit: {} are missing\n", bytes_text(-plan.free_bytes));
    return out;
  }
  line("left for state", bytes_text(plan.free_bytes));
  line("tokens in all", count_text(plan.tokens), "without the state of sequences");
  if (request.prefix_cache)
    line("their resume points", bytes_text(plan.resume_bytes),
         fmt::format("in {} blocks", count_text(plan.tokens / request.block_size)));
  for (const auto& fit : plan.fits)
    line("sequences", count_text(fit.sequences),
         fmt::format("of {} tokens each", count_text(fit.tokens_each)));
  return out;
}

json::object to_json(const memory_plan& plan) {
  json::object weights;
  for (const auto& part : plan.weights)
    weights[name_of(part.kind)] = {{"bytes", part.bytes}, {"on_device", part.is_on_device}};
  json::array fits;
  for (const auto& fit : plan.fits)
    fits.push_back({{"tokens_each", fit.tokens_each}, {"sequences", fit.sequences}});
  const auto& state = plan.state;
  return {{"ep_size", plan.request.ranks},
          {"device_memory", plan.request.device_memory},
          {"headroom", plan.request.headroom},
          {"block_size", plan.request.block_size},
          {"prefix_cache", plan.request.prefix_cache},
          {"host_blocks", plan.request.host_blocks},
          {"host_bytes", plan.host_bytes},
          {"resume_bytes", plan.resume_bytes},
          {"max_model_len", plan.max_model_len},
          {"weights", std::move(weights)},
          {"weight_bytes", plan.weight_bytes},
          {"all_weight_bytes", plan.all_weight_bytes},
          {"bytes_per_expert", plan.bytes_per_expert},
          {"experts_per_rank", plan.experts_per_rank},
          {"state",
           {{"format", name_of(plan.request.format)},
            {"window_rows", state.window_rows},
            {"window_bytes", state.window},
            {"pooling_bytes", state.pooling},
            {"sequence_bytes", state.sequence()},
            {"block_bytes", state.block()},
            {"resume_point_bytes", state.resume_point},
            {"bytes_per_token", state.per_token}}},
          {"free_bytes", plan.free_bytes},
          {"tokens", plan.tokens},
          {"fits", std::move(fits)}};
}

}  // namespace deepinfer
