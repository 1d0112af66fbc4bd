#include "kernels/mix/mix_parts.hpp"
#include "kernels/mix/sublayer.hpp"

namespace deepinfer::kernels {
namespace {

/// Tokens whose streams stay in cache until the mix has read them, and tokens that pass over the
/// router's matrix together.
constexpr std::int64_t mix_tokens = 16, gate_tokens = 64;

struct token_range {
  std::int64_t begin, end;
  std::int64_t count() const { return end - begin; }
};

collapse_args part_of(collapse_args a, token_range range) {
  a.x += range.begin * a.streams * a.dim;
  a.weight += range.begin * a.streams;
  a.y += range.begin * a.dim;
  a.tokens = range.count();
  return a;
}

rms_norm_args part_of(rms_norm_args a, token_range range) {
  a.x += range.begin * (a.x_stride ? a.x_stride : a.dim);
  a.y += range.begin * (a.y_stride ? a.y_stride : a.dim);
  a.rows = range.count();
  return a;
}

quantise_args part_of(quantise_args a, token_range range) {
  a.x += range.begin * a.dim;
  a.y += range.begin * a.dim;
  a.rows = range.count();
  return a;
}

to_int8_args part_of(to_int8_args a, token_range range) {
  const auto padded = int8_padded(a.dim);
  a.x += range.begin * (a.x_stride ? a.x_stride : a.dim);
  a.codes += range.begin * padded;
  a.scales += range.begin * (padded / int8_group);
  a.rows = range.count();
  return a;
}

linear_args part_of(linear_args a, token_range range) {
  const auto in = a.weight->in, padded = int8_padded(in);
  if (a.x) a.x += range.begin * (a.x_stride ? a.x_stride : in);
  if (a.x8.codes) a.x8.codes += range.begin * padded;
  if (a.x8.scales) a.x8.scales += range.begin * (padded / int8_group);
  a.y += range.begin * (a.y_stride ? a.y_stride : a.weight->out);
  a.rows = range.count();
  return a;
}

route_args part_of(route_args a, token_range range) {
  a.batch.slot += range.begin;
  a.batch.position += range.begin;
  a.batch.tokens = static_cast<std::int32_t>(range.count());
  a.logits += range.begin * a.experts;
  a.id += range.begin * a.k;
  a.weight += range.begin * a.k;
  return a;
}

/// Up to the mix, one token, a share [begin, end) of 0 .. dim of its entries.
void write_streams(const sublayer_args& a, std::int64_t token, std::int64_t begin,
                   std::int64_t end) {
  if (a.combine) combine_part_avx2(*a.combine, token, begin, end);
  if (a.post) hyper_post_part_avx2(*a.post, token, begin, end);
  if (a.tap) stream_mean_part_avx2(*a.tap, token, begin, end);
}

/// After the mix, one token: its sublayer's input in all forms.
void make_input(const sublayer_args& a, std::int64_t token) {
  const stream_ref here;
  const token_range one{token, token + 1};
  if (a.collapse) collapse_avx2(here, part_of(*a.collapse, one));
  if (a.norm) rms_norm_avx2(here, part_of(*a.norm, one));
  if (a.quantise) quantise_avx2(here, part_of(*a.quantise, one));
  if (a.to_int8) to_int8_avx2(here, part_of(*a.to_int8, one));
}

std::int64_t entries_written(const sublayer_args& a) {
  return a.combine ? a.combine->dim : a.post ? a.post->dim : a.tap ? a.tap->dim : 0;
}

/// body(range) over parts of at most `most` tokens, of even sizes.
template <class Body>
void for_blocks(token_range all, std::int64_t most, Body&& body) {
  const auto blocks = (all.count() + most - 1) / most;
  for (std::int64_t block = 0; block < blocks; ++block)
    body(token_range{all.begin + all.count() * block / blocks,
                     all.begin + all.count() * (block + 1) / blocks});
}

void run_tokens(const sublayer_args& a, token_range tokens) {
  const stream_ref here;
  const auto dim = entries_written(a);
  for_blocks(tokens, mix_tokens, [&](token_range block) {
    for (auto token = block.begin; token < block.end; ++token) write_streams(a, token, 0, dim);
    if (a.mix) mix_tokens_avx2(*a.mix, block.begin, block.end);
    for (auto token = block.begin; token < block.end; ++token) make_input(a, token);
  });
  if (a.gate) linear_avx2(here, part_of(*a.gate, tokens));
  if (a.route) route_avx2(here, part_of(*a.route, tokens));
}

/// Threads share the runs of the mix product. Where a run is a share of one stream's entries, the
/// thread writes those entries itself.
void share_mix(const stream_ref& stream, const sublayer_args& a) {
  const auto& mix = *a.mix;
  const auto dim = mix.dim, shares = dim / mix_run;
  if (dim % mix_run == 0) {
    stream.for_ranges(shares, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t token = 0; token < a.tokens; ++token)
        write_streams(a, token, begin * mix_run, end * mix_run);
      for (std::int64_t s = 0; s < mix.split.streams; ++s)
        mix_partial_avx2(mix, s * shares + begin, s * shares + end);
    });
    return;
  }
  for (std::int64_t token = 0; token < a.tokens; ++token) write_streams(a, token, 0, dim);
  const auto runs = (mix.fn->in + mix_run - 1) / mix_run;
  stream.for_ranges(
    runs, [&](std::int64_t begin, std::int64_t end) { mix_partial_avx2(mix, begin, end); });
}

void run_shared(const stream_ref& stream, const sublayer_args& a) {
  share_mix(stream, a);
  mix_from_partial_avx2(*a.mix);
  for (std::int64_t token = 0; token < a.tokens; ++token) make_input(a, token);
  if (a.gate) linear_avx2(stream, *a.gate);
  if (a.route) route_avx2({}, *a.route);
}

}  // namespace

void sublayer_avx2(const stream_ref& stream, const sublayer_args& a) {
  check_sublayer(a);
  if (a.tokens == 0) return;
  if (a.mix && a.mix->partial && stream.team && a.tokens < stream.team->threads())
    return run_shared(stream, a);
  stream.for_ranges(a.tokens, [&](std::int64_t begin, std::int64_t end) {
    for_blocks({begin, end}, gate_tokens, [&](token_range block) { run_tokens(a, block); });
  });
}

}  // namespace deepinfer::kernels
