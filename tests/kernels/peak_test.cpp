#include <cmath>
#include <numeric>

#include "kernel_support.hpp"
#include "kernels/peak/peak.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

std::vector<isa> sets() {
  std::vector<isa> out{isa::reference};
  if (runs(isa::avx2)) out.push_back(isa::avx2);
  return out;
}

}  // namespace

TEST_CASE("read_peak reads every word once, whatever the length, the threads and the set") {
  for (const auto set : sets())
    for (const std::int64_t count : {0, 1, 7, 8, 63, 64, 65, 127, 128, 1000, 4096, 10007}) {
      std::vector<std::uint64_t> words(size(count));
      for (std::size_t i = 0; i < words.size(); ++i) words[i] = split_mix64(i);
      const auto expected = std::accumulate(words.begin(), words.end(), std::uint64_t{5});
      const auto sums = on_every_team([&](const stream_ref& stream) {
        std::vector<std::uint64_t> sum{5};
        const read_peak_args args{words.data(), count, sum.data()};
        cpu_peak(set).read(stream, args);
        CHECK(args.bytes() == count * 8);
        return sum;
      });
      CHECK(sums.front() == expected);
    }
}

TEST_CASE("fma_peak does the rounds that it counts, in every piece") {
  for (const auto set : sets())
    for (const std::int64_t rounds : {0, 1, 2, 5, 40}) {
      const auto got = on_every_team([&](const stream_ref& stream) {
        floats result(5, -1);
        cpu_peak(set).fma(stream, {4, rounds, result.data()});
        return result;
      });
      double expected = 0;  // x - 2 halves in every round
      for (std::int64_t i = 0; i < fma_peak_accumulators; ++i)
        expected += 2 + (static_cast<double>(i) - 2) * std::pow(0.5, rounds);
      for (std::size_t i = 0; i < 4; ++i)
        CHECK(std::fabs(static_cast<double>(got[i]) - expected) < 1e-2);
      CHECK(got[4] == -1.0F);
    }
  CHECK(fma_peak_args{3, 10, nullptr}.flops() == 3 * 10 * 96 * 2);
}

TEST_CASE("int8_peak multiplies every weight in every round, in every piece") {
  std::vector<std::int8_t> weights(size(int8_peak_weights));
  for (std::size_t i = 0; i < weights.size(); ++i)
    weights[i] = static_cast<std::int8_t>(static_cast<int>(split_mix64(i) % 127) - 63);
  weights[0] = -63;
  weights[1] = weights[2] = 63;
  for (const auto set : sets())
    for (const std::int64_t rounds : {0, 1, 3, 130}) {
      std::int64_t expected = 0;
      for (std::int64_t round = 0; round < rounds; ++round)
        for (std::size_t i = 0; i < weights.size(); ++i)
          expected += (round + static_cast<std::int64_t>(i) / 32 % 4) % 64 * weights[i];
      const auto got = on_every_team([&](const stream_ref& stream) {
        std::vector<std::uint32_t> result(4, 7);
        cpu_peak(set).int8(stream, {weights.data(), 3, rounds, result.data()});
        return result;
      });
      for (std::size_t i = 0; i < 3; ++i) CHECK(got[i] == static_cast<std::uint32_t>(expected));
      CHECK(got[3] == 7);
    }
  CHECK(int8_peak_args{nullptr, 2, 5, nullptr}.int8_ops() == 2 * 5 * 8192 * 2);
}
