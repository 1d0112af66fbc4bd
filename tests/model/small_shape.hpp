/// A random model that is made in an instant.
#pragma once

#include "runtime/model/make_model_shape.hpp"

namespace deepinfer::test {

/// Every kind of layer, sizes that are no multiples of a scale's group where they need not be.
inline random_model_shape small_shape() {
  return {.vocab_size = 256,
          .hidden_size = 96,
          .layer_count = 7,
          .head_count = 4,
          .head_dim = 64,
          .rope_dim = 32,
          .q_rank = 40,
          .o_groups = 2,
          .o_rank = 24,
          .index_head_count = 2,
          .index_head_dim = 32,
          .index_topk = 8,
          .candidate_blocks = 4,
          .expert_count = 8,
          .experts_per_token = 3,
          .expert_dim = 64,
          .engram_head_dim = 32,
          .engram_vocab_size = 50,
          .draft_expert_count = 4,
          .draft_experts_per_token = 2,
          .markov_rank = 16};
}

}  // namespace deepinfer::test
