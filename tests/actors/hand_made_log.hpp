/// Logs of runs that never were, for tests of the judge.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/scenario_support.hpp"

namespace deepinfer::test {

inline const std::string two = "script:\n"
                               "  - submit: { id: a, prompt_tokens: 5, max_tokens: 4 }\n"
                               "  - submit: { id: b, prompt_tokens: 9, max_tokens: 3 }\n";

/// Judges a log of one's own making: only what is always true.
class hand_made {
public:
  explicit hand_made(const std::string& body)
    : of(scenario_of(body)),
      it(first_case(of)),
      oracle(ask_oracle(of, it)),
      out{audit_log(of.requests.size(), it.engine.ranks)} {
    for (std::size_t i = 0; i < oracle.size(); ++i)
      out.log.submitted(0, static_cast<std::int32_t>(i));
  }

  void launch(std::int64_t step, const std::vector<audit_row>& rows, std::int32_t rank = 0,
              step_kind kind = step_kind::decode) {
    std::int32_t width = 0;
    for (const auto& row : rows) width += row.width;
    out.log.launched(now, rank, step, rows.empty() ? step_kind::empty : kind, width, 0, rows);
  }
  void settle(std::int64_t step, std::vector<audit_row_result> results, bool has_failed = false,
              std::int32_t rank = 0) {
    out.log.settled(now, rank, step, has_failed, results);
  }
  void emit(std::int32_t request, std::int64_t step, std::int32_t first, std::int32_t count) {
    const auto& tokens = oracle[static_cast<std::size_t>(request)].tokens;
    out.log.tokens(
      now, request, 0, step, first,
      std::span(tokens).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(count)));
  }
  void finish(std::int32_t request, std::int64_t step = 0) {
    out.log.finished(now, request, 0, step, final_of(oracle[static_cast<std::size_t>(request)]));
  }
  /// Without what the log leaves unsaid about requests.
  names found() const {
    auto all = names_of(judge(of, it, out));
    std::erase(all, "no_final_record");
    return all;
  }

  scenario of;
  scenario_case it;
  std::vector<oracle_answer> oracle;
  run_outcome out;
  std::int64_t now = 0;
};

inline audit_row row_of(std::int32_t request, row_kind kind, std::int32_t position,
                        std::int32_t width, std::int32_t source, std::int32_t table_blocks) {
  return {.request = request,
          .epoch = 0,
          .kind = kind,
          .width = width,
          .position = position,
          .source = source,
          .yields_min = 1,
          .yields_max = width,
          .table_blocks = table_blocks};
}

inline audit_row prompt_row(std::int32_t request, std::int32_t tokens) {
  auto row = row_of(request, row_kind::prefill, 0, tokens, from_fresh, blocks_for(tokens, 4));
  row.yields_max = 1;
  return row;
}

inline audit_row decode_row(std::int32_t request, std::int32_t position, std::int32_t source) {
  return row_of(request, row_kind::decode, position, 1, source, blocks_for(position + 1, 4));
}

}  // namespace deepinfer::test
