#include "kernels/ops.hpp"

namespace deepinfer::kernels {

const ops& cpu_ops() {
  static constexpr ops table{
    .name = "cpu reference",
    .quantise = quantise_ref,
    .lookup = lookup_ref,
    .gather = gather_ref,
    .rms_norm = rms_norm_ref,
    .linear = linear_ref,
    .grouped_linear = grouped_linear_ref,
    .confidence = confidence_ref,
    .argmax = argmax_ref,
    .hyper_split = hyper_split_ref,
    .hyper_mix = hyper_mix_ref,
    .collapse = collapse_ref,
    .hyper_post = hyper_post_ref,
    .stream_mean = stream_mean_ref,
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
    .route = route_ref,
    .group_by_expert = group_by_expert_ref,
    .swiglu = swiglu_ref,
    .expert_ffn = expert_ffn_ref,
    .combine = combine_ref,
    .ngram_ids = ngram_ids_ref,
    .engram_gate = engram_gate_ref,
  };
  return table;
}

}  // namespace deepinfer::kernels
