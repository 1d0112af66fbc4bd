// The choice of tokens over a large vocabulary.
#include <cmath>
#include <memory>
#include <numbers>
#include <utility>

#include <fmt/format.h>

#include "actors/node/bench/bench_kernels.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

constexpr std::int32_t rows = 32, vocab = 129'280;

/// Logits of a row: normal, or nearly all equal with some that stand out.
struct logits_kind {
  const char* name;
  double deviation;
  int spikes = 0;
};

double normal_of(std::uint64_t index) {
  const auto word = split_mix64(index);
  const double u = unit_real(static_cast<std::uint32_t>(word));
  const double v = unit_real(static_cast<std::uint32_t>(word >> 32));
  return std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v);
}

struct sampling_data {
  explicit sampling_data(const logits_kind& kind)
    : logits(static_cast<std::size_t>(rows) * vocab),
      slots(rows),
      positions(rows),
      sampling(rows),
      ids(rows),
      status(rows) {
    for (std::size_t i = 0; i < logits.size(); ++i)
      logits[i] = static_cast<float>(kind.deviation * normal_of(i + 1));
    for (std::int32_t row = 0; row < rows; ++row) {
      const auto at = static_cast<std::size_t>(row);
      slots[at] = row;
      positions[at] = 100 + row;
      sampling[at].temperature = 1;
      sampling[at].top_p = 0.95F;
      sampling[at].seed = split_mix64(at);
      for (int spike = 0; spike < kind.spikes; ++spike)
        logits[at * vocab + split_mix64(at * 100 + static_cast<std::size_t>(spike)) % vocab] += 20;
    }
  }
  std::vector<float> logits;
  std::vector<std::int32_t> slots, positions;
  std::vector<kernels::slot_sampling> sampling;
  std::vector<std::int32_t> ids;
  std::vector<kernels::sample_status> status;
  huge_memory scratch;
};

void run_sampling(const kernels::ops& ops, const stream_ref& stream, sampling_data& data) {
  kernels::sample_rows_args args;
  args.logits = data.logits.data();
  args.logits_stride = vocab;
  args.slots = data.slots.data();
  args.positions = data.positions.data();
  args.sampling = data.sampling.data();
  args.rows = rows;
  args.vocab = vocab;
  args.ids = data.ids.data();
  args.status = data.status.data();
  args.scratch = data.scratch.data();
  ops.sample_rows(stream, args);
}

result<kernel_case> make_sampling(const kernels::ops& ops, const logits_kind& kind) {
  auto data = std::make_shared<sampling_data>(kind);
  const auto threads = facts_of_machine().cores;
  DI_TRY(data->scratch, huge_memory::map(kernels::sample_rows_scratch_bytes(vocab, threads)));
  kernel_case it;
  it.name = kernels::sample_rows_args::op_name;
  it.shape = fmt::format("{} ids, top_p .95, {}", vocab, kind.name);
  it.rows = rows;
  it.calls = 1;
  it.on_all_cores = true;
  it.run = [&ops, data](const stream_ref& stream, std::int64_t) {
    run_sampling(ops, stream, *data);
  };
  return it;
}

}  // namespace

std::vector<case_source> sampling_cases(const kernels::ops& ops) {
  constexpr logits_kind kinds[] = {
    {"N(0,1)", 1}, {"N(0,3)", 3}, {"N(0,8)", 8}, {"20 spikes", 0.5, 20}};
  std::vector<case_source> out;
  for (const auto& kind : kinds)
    out.push_back(
      {kernels::sample_rows_args::op_name, [&ops, kind] { return make_sampling(ops, kind); }});
  return out;
}

}  // namespace deepinfer
