#include "kernels/attention/sparse_attention.hpp"

#include "kernels/attention/attend.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer::kernels {
namespace {

/// Row of list entry `i` of a token, null if the entry is empty.
const float* list_entry(const sparse_attention_args& a, std::int64_t token, std::int64_t i) {
  const auto& batch = a.batch;
  const std::int64_t position = batch.position[token];
  if (i < a.window) {
    const auto wanted = a.oldest(token) + i;
    if (wanted > position) return nullptr;
    const auto since_first = wanted - batch.row_first_position[token];
    if (since_first >= 0) return a.step_rows + (batch.row_first_token[token] + since_first) * a.dim;
    const auto entry = std::int64_t{batch.slot[token]} * a.ring_size + wanted % a.ring_size;
    return a.ring + entry * a.dim;
  }
  const auto row = a.selected[token * a.selected_count + (i - a.window)];
  if (row < 0) return nullptr;
  return a.memory + batch.paged_index(token, row, a.ratio) * a.dim;
}

}  // namespace

void check_sparse_attention(const sparse_attention_args& a) {
  DI_CHECK(a.selected_count == 0 || a.ratio > 0, "{} selected rows without a memory",
           a.selected_count);
}

void sparse_attention_ref(const stream_ref& stream, const sparse_attention_args& a) {
  check_sparse_attention(a);
  const auto entries = a.window + a.selected_count;
  stream.for_ranges(a.batch.tokens * a.heads, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto token = item / a.heads;
      const attend_head head{
        a.q + item * a.dim, a.o + item * a.dim, a.dim, a.sink[item % a.heads], a.scale, a.bf16};
      if (a.batch.is_padding(token))
        std::fill(head.o, head.o + a.dim, 0.0F);
      else
        attend(head, entries, [&](std::int64_t i) { return list_entry(a, token, i); });
    }
  });
}

void block_attention_ref(const stream_ref& stream, const block_attention_args& a) {
  const std::int64_t items = std::int64_t{a.sequences} * a.block * a.heads;
  stream.for_ranges(items, [&](std::int64_t begin, std::int64_t end) {
    for (auto item = begin; item < end; ++item) {
      const auto sequence = item / (a.block * a.heads);
      const attend_head head{
        a.q + item * a.dim, a.o + item * a.dim, a.dim, a.sink[item % a.heads], a.scale, a.bf16};
      const std::int64_t slot = a.slot[sequence], position = a.position[sequence];
      if (slot < 0 || position < 0) {
        std::fill(head.o, head.o + a.dim, 0.0F);
        continue;
      }
      const auto oldest = a.oldest(sequence);
      attend(head, a.window + a.block, [&](std::int64_t i) -> const float* {
        if (i >= a.window) return a.block_rows + (sequence * a.block + (i - a.window)) * a.dim;
        const auto wanted = oldest + i;
        if (wanted > position) return nullptr;
        return a.ring + (slot * a.ring_size + wanted % a.ring_size) * a.dim;
      });
    }
  });
}

}  // namespace deepinfer::kernels
