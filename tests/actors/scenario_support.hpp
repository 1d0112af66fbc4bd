/// For tests of the judge: scenarios from a few lines, and logs of runs made by hand.
///
/// `played` plays requests on an engine of one rank without drafts, mistakes or delay: a prefill
/// step of all of them, then decode steps, each settled 2 ms after it was launched. Tests take it
/// as a run that passes and change one thing.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include <doctest/doctest.h>

#include "actors/scenario/judge.hpp"
#include "actors/scenario/oracle.hpp"
#include "config/scenario_cases.hpp"
#include "config/scenario_load.hpp"

namespace deepinfer {

inline scenario scenario_of(const std::string& body) {
  auto out = parse_scenario("# It holds.\nname: f\n" + body, "f.yaml");
  REQUIRE_MESSAGE(out, out.error().message);
  return *std::move(out);
}

inline scenario_case first_case(const scenario& of) {
  return seeded(of, cases_of(of).front(), of.seed);
}

inline std::int32_t blocks_for(std::int64_t tokens, std::int32_t block_size) {
  return static_cast<std::int32_t>((tokens + block_size - 1) / block_size);
}

/// A final record as the rules want it.
inline audit_final final_of(const oracle_answer& answer) {
  audit_final out;
  out.finish = answer.finish;
  out.code = answer.code;
  out.usage.prompt_tokens = static_cast<std::int32_t>(answer.prompt.size());
  out.usage.completion_tokens = static_cast<std::int32_t>(answer.tokens.size());
  out.usage.reasoning_tokens = answer.reasoning_tokens;
  return out;
}

/// One row of a sequence whose tokens so far are settled.
inline audit_row next_row(const scenario_case& it, const oracle_answer& answer,
                          std::int32_t request, std::int32_t outputs) {
  audit_row row;
  row.request = request;
  row.kind = outputs == 0 ? row_kind::prefill : row_kind::decode;
  const auto prompt = static_cast<std::int32_t>(answer.prompt.size());
  row.position = outputs == 0 ? 0 : prompt + outputs - 1;
  row.width = outputs == 0 ? prompt : 1;
  row.yields_min = row.yields_max = 1;
  row.table_blocks = blocks_for(row.position + row.width, it.engine.block_size);
  return row;
}

inline run_outcome played(const scenario& of, const scenario_case& it) {
  run_outcome out{audit_log(of.requests.size(), it.engine.ranks)};
  auto& log = out.log;
  const auto oracle = ask_oracle(of, it);
  for (std::size_t i = 0; i < oracle.size(); ++i) log.submitted(0, static_cast<std::int32_t>(i));
  std::vector<std::int32_t> outputs(oracle.size());
  for (std::int64_t step = 1;; ++step) {
    std::vector<audit_row> rows;
    for (std::size_t i = 0; i < oracle.size(); ++i)
      if (static_cast<std::size_t>(outputs[i]) < oracle[i].tokens.size())
        rows.push_back(next_row(it, oracle[i], static_cast<std::int32_t>(i), outputs[i]));
    if (rows.empty()) break;
    std::int32_t width = 0;
    for (const auto& row : rows) width += row.width;
    log.launched(out.end_us, 0, step, step == 1 ? step_kind::prefill : step_kind::decode, width, 0,
                 rows);
    out.end_us += 2000;
    log.waited(out.end_us, 0, step);
    std::vector<audit_row_result> results;
    std::vector<token_id> ids;
    for (const auto& row : rows) {
      const auto request = static_cast<std::size_t>(row.request);
      results.push_back({row.width, 1});
      ids.push_back(oracle[request].tokens[static_cast<std::size_t>(outputs[request])]);
    }
    log.settled(out.end_us, 0, step, false, results, ids);
    for (std::size_t i = 0; i < rows.size(); ++i) {
      const auto request = static_cast<std::size_t>(rows[i].request);
      const auto& answer = oracle[request];
      const auto output = static_cast<std::size_t>(outputs[request]);
      const bool wants_logprobs = of.requests[request].logprobs;
      log.tokens(out.end_us, rows[i].request, 0, step, outputs[request], std::span(&ids[i], 1),
                 std::span(answer.logprobs).subspan(output, wants_logprobs ? 1 : 0));
      if (static_cast<std::size_t>(++outputs[request]) == answer.tokens.size())
        log.finished(out.end_us, rows[i].request, 0, step, final_of(answer));
    }
  }
  return out;
}

/// Names of all violations, in order.
inline std::vector<std::string> names_of(const std::vector<violation>& found) {
  std::vector<std::string> out;
  for (const auto& it : found) out.push_back(it.name);
  return out;
}

using names = std::vector<std::string>;

}  // namespace deepinfer
