#include "kernels/attention/attend_avx2.hpp"
#include "kernels/attention/sparse_attention.hpp"

namespace deepinfer::kernels {
namespace {

/// The rows a token attends to.
struct token_list {
  const sparse_attention_args& a;
  std::int64_t token;

  std::int64_t rows(std::int64_t begin, std::int64_t end, const float** to) const {
    std::int64_t count = 0;
    if (begin < a.window) count = window_rows(begin, std::min<std::int64_t>(end, a.window), to);
    begin = std::max<std::int64_t>(begin, a.window) - a.window;
    return begin < end - a.window ? count + memory_rows(begin, end - a.window, to + count) : count;
  }

private:
  std::int64_t window_rows(std::int64_t begin, std::int64_t end, const float** to) const {
    const std::int64_t position = a.batch.position[token];
    const auto oldest = a.oldest(token);
    const std::int64_t first = a.batch.row_first_position[token];
    const std::int64_t before = a.batch.row_first_token[token] - first;
    const auto kept = std::int64_t{a.batch.slot[token]} * a.ring_size;
    end = std::min(end, position + 1 - oldest);
    for (auto i = begin; i < end; ++i) {
      const auto wanted = oldest + i;
      if (wanted >= first)
        *to++ = a.step_rows + (before + wanted) * a.dim;
      else
        *to++ = a.ring + (kept + static_cast<std::int32_t>(wanted) % a.ring_size) * a.dim;
    }
    return std::max<std::int64_t>(0, end - begin);
  }

  std::int64_t memory_rows(std::int64_t begin, std::int64_t end, const float** to) const {
    const auto* selected = a.selected + token * a.selected_count;
    const auto* table =
      a.batch.block_table + std::int64_t{a.batch.slot[token]} * a.batch.max_blocks;
    const auto per_block = static_cast<std::uint32_t>(a.batch.block_size / a.ratio);
    std::int64_t count = 0;
    for (auto i = begin; i < end; ++i) {
      if (selected[i] < 0) continue;
      const auto row = static_cast<std::uint32_t>(selected[i]);
      to[count++] =
        a.memory + (std::int64_t{table[row / per_block]} * per_block + row % per_block) * a.dim;
    }
    return count;
  }
};

/// The context of a sequence's draft block, then the block.
struct block_list {
  const block_attention_args& a;
  std::int64_t sequence;

  std::int64_t rows(std::int64_t begin, std::int64_t end, const float** to) const {
    const std::int64_t position = a.position[sequence];
    const auto oldest = a.oldest(sequence);
    const auto kept = std::int64_t{a.slot[sequence]} * a.ring_size;
    const float* block = a.block_rows + sequence * a.block * a.dim;
    std::int64_t count = 0;
    for (auto i = begin; i < end; ++i) {
      if (i >= a.window)
        to[count++] = block + (i - a.window) * a.dim;
      else if (oldest + i <= position)
        to[count++] = a.ring + (kept + static_cast<std::int32_t>(oldest + i) % a.ring_size) * a.dim;
    }
    return count;
  }
};

/// Calls body(group, begin, end) for the parts of items [begin, end) in groups of `size`.
template <class Body>
inline void for_groups(std::int64_t begin, std::int64_t end, std::int64_t size, Body&& body) {
  while (begin < end) {
    const auto stop = std::min(end, begin / size * size + size);
    body(begin / size, begin, stop);
    begin = stop;
  }
}

}  // namespace

void sparse_attention_heads_avx2(const sparse_attention_args& a, std::int64_t begin,
                                 std::int64_t end) {
  const auto entries = a.window + a.selected_count;
  for_groups(begin, end, a.heads, [&](std::int64_t token, std::int64_t from, std::int64_t to) {
    float* o = a.o + from * a.dim;
    if (a.batch.is_padding(token)) return std::fill(o, a.o + to * a.dim, 0.0F);
    const shared_list_heads heads{a.q + from * a.dim, o,         a.sink, a.heads,
                                  from % a.heads,     to - from, a.dim,  a.scale};
    if (a.bf16)
      attend_all<true>(heads, entries, token_list{a, token});
    else
      attend_all<false>(heads, entries, token_list{a, token});
  });
}

void block_attention_heads_avx2(const block_attention_args& a, std::int64_t begin,
                                std::int64_t end) {
  const auto entries = std::int64_t{a.window} + a.block, size = a.block * a.heads;
  for_groups(begin, end, size, [&](std::int64_t sequence, std::int64_t from, std::int64_t to) {
    float* o = a.o + from * a.dim;
    if (a.slot[sequence] < 0 || a.position[sequence] < 0)
      return std::fill(o, a.o + to * a.dim, 0.0F);
    const shared_list_heads heads{a.q + from * a.dim, o,         a.sink, a.heads,
                                  from % a.heads,     to - from, a.dim,  a.scale};
    if (a.bf16)
      attend_all<true>(heads, entries, block_list{a, sequence});
    else
      attend_all<false>(heads, entries, block_list{a, sequence});
  });
}

void sparse_attention_avx2(const stream_ref& stream, const sparse_attention_args& a) {
  check_sparse_attention(a);
  stream.for_ranges(a.batch.tokens * a.heads, [&](std::int64_t begin, std::int64_t end) {
    sparse_attention_heads_avx2(a, begin, end);
  });
}

void block_attention_avx2(const stream_ref& stream, const block_attention_args& a) {
  const auto items = std::int64_t{a.sequences} * a.block * a.heads;
  stream.for_ranges(items, [&](std::int64_t begin, std::int64_t end) {
    block_attention_heads_avx2(a, begin, end);
  });
}

}  // namespace deepinfer::kernels
