/// Sizes of the random models that `make-model` writes, and the config.json that says them.
///
/// A shape has every kind of layer of DeepSeek-V4.1: two window layers, layers of ratio 2 with a
/// source every third layer, layers of ratio 1 with an index source every second layer (the first
/// keeps candidate blocks, the others select inside them), two Engram tables, three draft stages.
/// Proportions follow the release where the size allows it. Source: model-v41.md 1, 2.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

/// Named as the keys of config.json that they become.
struct random_model_shape {
  std::int32_t vocab_size = 0;
  std::int32_t hidden_size = 0;
  std::int32_t layer_count = 0;  ///< >= 4: two of ratio 0, at least one each of 2 and 1
  std::int32_t head_count = 0, head_dim = 0, rope_dim = 0;
  std::int32_t q_rank = 0, o_groups = 0, o_rank = 0;
  std::int32_t index_head_count = 0, index_head_dim = 0, index_topk = 0;
  std::int32_t candidate_blocks = 0;  ///< of 8 rows
  std::int32_t expert_count = 0, experts_per_token = 0, expert_dim = 0;
  std::int32_t engram_head_dim = 0, engram_vocab_size = 0;  ///< 4 heads, n-grams up to 4
  std::int32_t draft_expert_count = 0, draft_experts_per_token = 0, markov_rank = 0;
};

/// What the tokenizer decides: special ids, and the classes of its ids.
struct random_model_text {
  token_id bos_token = 0, eos_token = 1, pad_token = 2;
  token_id noise_token = 0;      ///< stands for what the drafter is to fill in
  std::int32_t class_count = 0;  ///< `token_classes` of all vocab_size ids
};

/// "S": 250 M parameters, 41 M of them active per token; "M": 1.4 G and 223 M. Nothing otherwise.
std::optional<random_model_shape> random_model_shape_of(std::string_view name);

/// The text of a config.json. Errors: bad_config where `parse_model_config` refuses what it says.
result<std::string> random_model_config(const random_model_shape& shape,
                                        const random_model_text& text);

/// Parameters by use; scales are none, an FP4 byte is two.
struct parameter_count {
  std::int64_t total = 0;
  std::int64_t engram_tables = 0;  ///< of the total
  std::int64_t drafter = 0;        ///< of the total
  /// Read for one token of the decoder: all matrices and vectors, its share of the routed experts
  /// and its rows of the Engram tables; not the embedding table and not the drafter.
  std::int64_t active = 0;
};

parameter_count count_parameters(const model_config& config);

}  // namespace deepinfer
