/// Lists the tokens of a step's rows whose logits are wanted: a group of rows that are sampled
/// together becomes a group of queries.
///
/// A decode row asks for all of its tokens: token j predicts what stands behind it, and judges the
/// draft that the row has there. A final chunk asks for its last token, other chunks for none.
///   query_begin [rows + 1]; of query q of a row with first token t: token t + j, its row's slot,
///   position of the token produced = first_position + j + 1, draft = id of token t + j + 1 or -1
/// Queries behind the last row's are padding: token, slot and draft -1, position 0.
/// Shapes: below. rows == 0 is a legal call. Errors: more queries than `queries` abort.
/// Source: model-v41.md 12.1; messages/plan.hpp.
#pragma once

#include <cstdint>

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

enum class row_asks : std::int32_t { nothing, last_token, all_tokens };

struct list_queries_args {
  const std::int32_t* row = nullptr;  ///< [rows] rows of the step
  const row_asks* asks = nullptr;     ///< [rows]
  std::int32_t rows = 0;
  std::int32_t queries = 0;  ///< a bound the host knew

  const std::int32_t* slot = nullptr;            ///< [rows of the step]
  const std::int32_t* row_begin = nullptr;       ///< [rows of the step + 1]
  const std::int32_t* first_position = nullptr;  ///< [rows of the step]
  const std::int32_t* token_id = nullptr;        ///< [tokens of the step]

  std::int32_t* query_begin = nullptr;  ///< [rows + 1] out
  std::int32_t* token = nullptr;        ///< [queries] out
  std::int32_t* query_slot = nullptr;   ///< [queries] out
  std::int32_t* position = nullptr;     ///< [queries] out
  std::int32_t* draft = nullptr;        ///< [queries] out
};

void list_queries_ref(const stream_ref& stream, const list_queries_args& args);

}  // namespace deepinfer::kernels
