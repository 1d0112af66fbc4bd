#include "kernels/ops.hpp"

namespace deepinfer::kernels {

namespace {

constexpr ops reference_ops() {
  return {
    .name = "cpu reference",
    .quantise = quantise_ref,
    .lookup = lookup_ref,
    .gather = gather_ref,
    .rms_norm = rms_norm_ref,
    .to_int8 = to_int8_ref,
    .linear = linear_ref,
    .linears = linears_ref,
    .grouped_linear = grouped_linear_ref,
    .confidence = confidence_ref,
    .argmax = argmax_ref,
    .hyper_split = hyper_split_ref,
    .hyper_mix = hyper_mix_ref,
    .collapse = collapse_ref,
    .hyper_post = hyper_post_ref,
    .stream_mean = stream_mean_ref,
    .sublayer = sublayer_ref,
    .rope_angles = rope_angles_ref,
    .rope = rope_ref,
    .window_store = window_store_ref,
    .group_positions = group_positions_ref,
    .pool = pool_ref,
    .pool_store = pool_store_ref,
    .append = append_ref,
    .index_scores = index_scores_ref,
    .top_rows = top_rows_ref,
    .candidate_blocks = candidate_blocks_ref,
    .sparse_attention = sparse_attention_ref,
    .block_attention = block_attention_ref,
    .memory_rows = memory_rows_ref,
    .index_rows = index_rows_ref,
    .select_rows = select_rows_ref,
    .attend_rows = attend_rows_ref,
    .route = route_ref,
    .group_by_expert = group_by_expert_ref,
    .swiglu = swiglu_ref,
    .expert_ffn = expert_ffn_ref,
    .combine = combine_ref,
    .ngram_ids = ngram_ids_ref,
    .engram_gate = engram_gate_ref,
    .sample_rows = sample_rows_ref,
  };
}

#if defined(__x86_64__)
constexpr ops avx2_ops() {
  auto table = reference_ops();
  table.name = "cpu avx2";
  table.quantise = quantise_avx2;
  table.lookup = lookup_avx2;
  table.rms_norm = rms_norm_avx2;
  table.to_int8 = to_int8_avx2;
  table.linear = linear_avx2;
  table.linears = linears_avx2;
  table.grouped_linear = grouped_linear_avx2;
  table.confidence = confidence_avx2;
  table.argmax = argmax_avx2;
  table.hyper_split = hyper_split_avx2;
  table.hyper_mix = hyper_mix_avx2;
  table.collapse = collapse_avx2;
  table.hyper_post = hyper_post_avx2;
  table.stream_mean = stream_mean_avx2;
  table.sublayer = sublayer_avx2;
  table.rope = rope_avx2;
  table.pool = pool_avx2;
  table.index_scores = index_scores_avx2;
  table.top_rows = top_rows_avx2;
  table.candidate_blocks = candidate_blocks_avx2;
  table.sparse_attention = sparse_attention_avx2;
  table.block_attention = block_attention_avx2;
  table.memory_rows = memory_rows_avx2;
  table.index_rows = index_rows_avx2;
  table.select_rows = select_rows_avx2;
  table.attend_rows = attend_rows_avx2;
  table.route = route_avx2;
  table.swiglu = swiglu_avx2;
  table.expert_ffn = expert_ffn_avx2;
  table.combine = combine_avx2;
  table.engram_gate = engram_gate_avx2;
  table.sample_rows = sample_rows_avx2;
  return table;
}
#else
constexpr ops avx2_ops() {
  return reference_ops();
}
#endif

}  // namespace

const ops& cpu_ops(isa set) {
  static constexpr ops reference = reference_ops(), avx2 = avx2_ops();
  return set == isa::avx2 ? avx2 : reference;
}

}  // namespace deepinfer::kernels
