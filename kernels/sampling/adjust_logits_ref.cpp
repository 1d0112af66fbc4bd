#include "kernels/sampling/adjust_logits.hpp"

#include <algorithm>
#include <bit>
#include <limits>

namespace deepinfer::kernels {

namespace {

constexpr float masked = -std::numeric_limits<float>::infinity();
constexpr std::uint32_t seen_bit = std::uint32_t{1} << 31;  // in prompt or outputs
constexpr std::uint32_t output_count = seen_bit - 1;        // occurrences among the outputs

bool is_id(std::int32_t id, std::int32_t vocab) {
  return static_cast<std::uint32_t>(id) < static_cast<std::uint32_t>(vocab);
}

void add_bias(const adjust_logits_args& a) {
  for (std::int32_t i = 0; i < a.sampling->bias_count; ++i) {
    const auto& entry = a.sampling->bias[i];
    if (is_id(entry.id, a.vocab)) a.x[entry.id] += entry.bias;
  }
}

sample_status penalize(const adjust_logits_args& a) {
  const auto& s = *a.sampling;
  std::int32_t touched = 0;
  auto status = sample_status::ok;
  // Without a repetition penalty the prompt does not matter.
  const std::int32_t first = s.repetition_penalty == 1.0f ? s.prompt_tokens : 0;
  for (std::int32_t p = first; p < a.position; ++p) {
    const std::int64_t block = a.table[p / a.block_size];
    const auto id = a.history[block * a.block_size + p % a.block_size];
    if (!is_id(id, a.vocab)) {
      status = sample_status::bad_history;
      break;
    }
    auto& count = a.counts[id];
    if (count == 0) a.touched[touched++] = id;
    count = (count | seen_bit) + (p >= s.prompt_tokens ? 1 : 0);
  }
  for (std::int32_t i = 0; i < touched; ++i) {
    const auto id = a.touched[i];
    const auto outputs = a.counts[id] & output_count;
    a.counts[id] = 0;
    auto& x = a.x[id];
    x = x > 0.0f ? x / s.repetition_penalty : x * s.repetition_penalty;
    if (outputs > 0) x -= s.frequency_penalty * static_cast<float>(outputs) + s.presence_penalty;
  }
  return status;
}

bool before_min_tokens(const slot_sampling& s, std::int32_t position) {
  return s.stop_count > 0 && position - s.prompt_tokens < s.min_tokens;
}

void mask_stop_ids(const adjust_logits_args& a) {
  const auto& s = *a.sampling;
  for (std::int32_t i = 0; i < s.stop_count; ++i) {
    const auto id = i < slot_sampling::inline_stop_ids
                      ? s.stop_ids[i]
                      : s.more_stop_ids[i - slot_sampling::inline_stop_ids];
    if (is_id(id, a.vocab)) a.x[id] = masked;
  }
}

void mask_grammar(const adjust_logits_args& a) {
  for (std::int32_t base = 0; base < a.vocab; base += 32) {
    auto lacking = ~a.mask[base / 32];
    const auto size = std::min(a.vocab - base, 32);
    if (lacking == ~std::uint32_t{0}) {
      std::fill_n(a.x + base, size, masked);
      continue;
    }
    if (size < 32) lacking &= (std::uint32_t{1} << size) - 1;
    for (; lacking != 0; lacking &= lacking - 1) a.x[base + std::countr_zero(lacking)] = masked;
  }
}

}  // namespace

bool adjusts_logits(const slot_sampling& sampling, std::int32_t position, bool has_mask) {
  return has_mask || sampling.bias_count > 0 || has_penalties(sampling) ||
         before_min_tokens(sampling, position);
}

sample_status adjust_logits_ref(const adjust_logits_args& args) {
  add_bias(args);
  if (has_penalties(*args.sampling)) {
    const auto status = penalize(args);
    if (status != sample_status::ok) return status;
  }
  if (before_min_tokens(*args.sampling, args.position)) mask_stop_ids(args);
  if (args.mask) mask_grammar(args);
  return sample_status::ok;
}

}  // namespace deepinfer::kernels
