/// Which of the ids that a step chose for a row stand: the accepted drafts and one id more.
///
/// Query j of a row chose the id behind the row's token j; if the row has a draft there, the draft
/// is accepted iff it is that id and all before it were. So the ids that stand are those of queries
/// 0 .. accepted, and a row always gives at least one. What later queries chose was chosen behind a
/// token that is not there, and means nothing, their status included.
/// With `stops`, a run of ids is cut behind the first that ends the sequence, and the row's
/// sequence is then not alive any more: a stop id at or after min_tokens outputs, or the id that
/// makes output_limit outputs. A failed id (-1) ends it as well: nobody will read what follows.
/// Shapes: below. rows == 0 is a legal call. A row without queries gives nothing.
/// Errors: none; a failed id (-1) equals no draft, so it is the last one of its row.
/// Source: architecture.md 4 ("Acceptance"); model-v41.md 12.1.
#pragma once

#include <cstdint>

#include "kernels/sampling/slot_sampling.hpp"
#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

struct verify_rows_args {
  const std::int32_t* query_begin = nullptr;  ///< [rows + 1]
  const std::int32_t* slot = nullptr;         ///< [queries]
  const std::int32_t* position = nullptr;     ///< [queries] of the token produced
  const std::int32_t* draft = nullptr;        ///< [queries] the row's draft there, or -1
  const std::int32_t* id = nullptr;           ///< [queries] what was chosen
  const slot_sampling* sampling = nullptr;    ///< [slots]
  std::int32_t rows = 0;
  bool stops = false;

  std::int32_t* given = nullptr;     ///< [rows] out: ids that stand
  std::int32_t* is_alive = nullptr;  ///< [rows] out: 0 where the sequence has ended
};

void verify_rows_ref(const stream_ref& stream, const verify_rows_args& args);

}  // namespace deepinfer::kernels
