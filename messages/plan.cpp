#include "messages/plan.hpp"

namespace deepinfer {

void step_plan::clear() {
  step = {};
  kind = step_kind::empty;
  sequences.clear();
  epochs.clear();
  slots.clear();
  kinds.clear();
  sources.clear();
  widths.clear();
  positions.clear();
  yields_max.clear();
  yields_min.clear();
  token_begin.assign(1, 0);
  tokens.clear();
  table_begin.clear();
  block_begin.assign(1, 0);
  blocks.clear();
  starts.clear();
  total_width = 0;
  bucket = 0;
  gated.clear();
  moves.clear();
}

void step_result::clear() {
  step = {};
  code = errc::ok;
  what = "";
  sequences.clear();
  epochs.clear();
  token_begin.assign(1, 0);
  tokens.clear();
  logprobs.clear();
  widths.clear();
  drafts_per_row = 0;
  drafts.clear();
  confidences.clear();
  row_errors.clear();
  times = {};
}

}  // namespace deepinfer
