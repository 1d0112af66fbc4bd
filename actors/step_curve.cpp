#include "actors/step_curve.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "runtime/device/cpu_team.hpp"
#include "runtime/model/model_session.hpp"

namespace deepinfer {

namespace {

/// Beyond this a step is long enough that its time per token hardly changes.
constexpr std::int32_t largest_size = 256;
constexpr std::size_t runs = 3;

}  // namespace

result<std::shared_ptr<verify_sizer>>
measure_step_curve(std::shared_ptr<const model_weights> weights, const runner_config& sizes,
                   std::int32_t threads) {
  const auto full = std::min(sizes.max_num_seqs * (1 + sizes.num_drafts), largest_size);
  session_config config;
  config.numeric = sizes.numeric;
  config.kernels = sizes.kernels;
  config.slots = full;
  config.max_tokens = full;
  config.max_positions = static_cast<std::int32_t>(runs) + 2;
  DI_TRY(const auto session, model_session::make(std::move(weights), config));
  cpu_team team(threads);
  const stream_ref stream{.team = &team};

  std::vector<verify_sizer::measured_size> curve;
  const std::array<token_id, 1> id{1};
  for (std::int32_t size = 1; size < 2 * full; size *= 2) {
    const auto rows_of_step = std::min(size, full);
    std::array<double, runs> times{};
    for (std::size_t run = 0; run <= runs; ++run) {  // the first one warms up
      std::vector<session_row> rows;
      for (std::int32_t slot = 0; slot < rows_of_step; ++slot)
        rows.push_back({slot, static_cast<std::int32_t>(run), id});
      const auto begin = std::chrono::steady_clock::now();
      DI_TRY_VOID(session->run(stream, rows));
      const std::chrono::duration<double, std::micro> took =
        std::chrono::steady_clock::now() - begin;
      if (run > 0) times[run - 1] = took.count();
    }
    curve.push_back({rows_of_step, median_of(times)});
  }
  return std::make_shared<verify_sizer>(std::move(curve), sizes.max_num_seqs, sizes.num_drafts);
}

}  // namespace deepinfer
