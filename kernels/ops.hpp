/// The table of functions a device offers; a model calls its device's table and nothing else.
///
/// Every entry is stateless, takes the stream it runs on and one args struct (see the op's header
/// for shapes, edge cases and precision), never allocates and never creates threads. cpu_ops.cpp
/// fills the table for the CPU; a device without an entry of its own may take the CPU's where
/// memory is shared.
#pragma once

#include "kernels/attention/attend_rows.hpp"
#include "kernels/attention/compress_rows.hpp"
#include "kernels/attention/index_scores.hpp"
#include "kernels/attention/memory_rows.hpp"
#include "kernels/attention/rope.hpp"
#include "kernels/attention/select_rows.hpp"
#include "kernels/attention/sparse_attention.hpp"
#include "kernels/attention/top_rows.hpp"
#include "kernels/attention/window_store.hpp"
#include "kernels/common/quantise.hpp"
#include "kernels/common/row_table.hpp"
#include "kernels/engram/engram.hpp"
#include "kernels/isa.hpp"
#include "kernels/linear/head.hpp"
#include "kernels/linear/linear.hpp"
#include "kernels/mix/hyper_connection.hpp"
#include "kernels/mix/sublayer.hpp"
#include "kernels/moe/expert_ffn.hpp"
#include "kernels/moe/route.hpp"
#include "kernels/norm/rms_norm.hpp"
#include "kernels/op.hpp"
#include "kernels/sampling/sample_rows.hpp"

namespace deepinfer::kernels {

struct ops {
  const char* name;
  // common, norm, linear
  op<quantise_args> quantise;
  op<lookup_args> lookup;
  op<gather_args> gather;
  op<rms_norm_args> rms_norm;
  op<to_int8_args> to_int8;
  op<linear_args> linear;
  op<linears_args> linears;
  op<grouped_linear_args> grouped_linear;
  op<confidence_args> confidence;
  op<argmax_args> argmax;
  // mix
  op<hyper_split_args> hyper_split;
  op<hyper_mix_args> hyper_mix;
  op<collapse_args> collapse;
  op<hyper_post_args> hyper_post;
  op<stream_mean_args> stream_mean;
  op<sublayer_args> sublayer;
  // attention
  op<rope_angles_args> rope_angles;
  op<rope_args> rope;
  op<window_store_args> window_store;
  op<group_positions_args> group_positions;
  op<pool_args> pool;
  op<pool_store_args> pool_store;
  op<append_args> append;
  op<index_scores_args> index_scores;
  op<top_rows_args> top_rows;
  op<candidate_blocks_args> candidate_blocks;
  op<sparse_attention_args> sparse_attention;
  op<block_attention_args> block_attention;
  op<memory_rows_args> memory_rows;
  op<index_rows_args> index_rows;
  op<select_rows_args> select_rows;
  op<attend_rows_args> attend_rows;
  // moe, engram
  op<route_args> route;
  op<group_by_expert_args> group_by_expert;
  op<swiglu_args> swiglu;
  op<expert_ffn_args> expert_ffn;
  op<combine_args> combine;
  op<ngram_ids_args> ngram_ids;
  op<engram_gate_args> engram_gate;
  // sampling
  op<sample_rows_args> sample_rows;
};

/// The CPU's table for an instruction set (isa.hpp) that runs here: its twins, and the references
/// where it has none.
const ops& cpu_ops(isa set);

}  // namespace deepinfer::kernels
