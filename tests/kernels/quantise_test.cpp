#include "kernel_support.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/common/formats.hpp"
#include "tests/support/golden_file.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const golden_file& fixture() {
  static const golden_file file(DI_SOURCE_DIR "/tests/golden/model/v41-a-fp8/ops.safetensors");
  return file;
}

floats quantised(const stream_ref& stream, const floats& x, std::int64_t dim, quantiser format) {
  floats y(x.size());
  quantise_ref(stream, {.x = x.data(),
                        .y = y.data(),
                        .rows = static_cast<std::int64_t>(x.size()) / dim,
                        .dim = dim,
                        .format = format});
  return y;
}

}  // namespace

TEST_CASE("quantise: scales of groups with a known largest value") {
  const struct {
    quantiser format;
    float largest, scale;
  } table[] = {
    {quantiser::q8, 448, 1},
    {quantiser::q8, 449, 2},
    {quantiser::q8, 224, 0x1p-1F},
    {quantiser::q8, 1, 0x1p-8F},
    {quantiser::q8, .875F, 0x1p-9F},
    {quantiser::q8, 1e-4F, 0x1p-22F},
    {quantiser::q8, 0, 0x1p-22F},
    {quantiser::q4_index, 6, 1},
    {quantiser::q4_index, 3, .5F},
    {quantiser::q4_index, 1, .25F},
    {quantiser::q4_index, .75F, .125F},
    {quantiser::q4_index, 12.1F, 4},
    {quantiser::q4_index, 0, 0x1p-126F},
    {quantiser::q4_memory, 6, 1},
    {quantiser::q4_memory, 0, 0x1p-9F},
    {quantiser::q4_memory, 1e6F, 448},
    {quantiser::q4_memory, 6.75F, 1.125F},
    {quantiser::q4_memory, 7.125F, 1.25F},
    {quantiser::q4_memory, 7.1249995F, 1.125F},  // a product with 1/6 would round to 1.25

  };
  for (const auto& row : table) {
    const float x[3] = {0, -row.largest, row.largest / 2};
    float y[3];
    CAPTURE(row.largest);
    CHECK(quantise_group(row.format, x, y, 3) == row.scale);
    CHECK(y[0] == 0);
  }
}

TEST_CASE("quantise: codes, scales and values equal the release's, exactly") {
  const auto x = fixture().floats("act_quant.x");
  const struct {
    const char* name;
    quantiser format;
  } table[] = {{"act_quant", quantiser::q8},
               {"fp4_e8m0_32", quantiser::q4_index},
               {"fp4_e4m3_16", quantiser::q4_memory}};
  for (const auto& row : table) {
    const std::string name = row.name;
    CAPTURE(name);
    const auto scales = fixture().floats(name + ".scale");
    const auto codes = reinterpret_cast<const std::uint8_t*>(fixture().bytes(name + ".q"));
    const auto group = group_of(row.format);
    CHECK(quantised({}, x, 64, row.format) == fixture().floats(name + ".inplace"));
    for (std::int64_t i = 0; i < 24 * 64; i += group) {
      float y[32];
      const float scale = quantise_group(row.format, x.data() + i, y, group);
      REQUIRE(scale == scales[size(i / group)]);
      for (std::int64_t at = 0; at < group; ++at) {
        const auto pair = codes[(i + at) / 2];
        if (row.format == quantiser::q8)
          REQUIRE(e4m3_encode(y[at] / scale) == codes[i + at]);
        else
          REQUIRE(e2m1_encode(y[at] / scale) == ((at % 2 ? pair >> 4 : pair) & 15));
      }
    }
  }
}

TEST_CASE("quantise is idempotent, exact in bf16, the same on every team and alone") {
  for (const auto format : {quantiser::q8, quantiser::q4_index, quantiser::q4_memory}) {
    const std::int64_t dim = 72;  // the last group is ragged
    auto x = noise(7, 19 * dim, 3);
    std::fill(x.begin(), x.begin() + dim, 0.0F);
    const auto y = on_every_team([&](const stream_ref& s) { return quantised(s, x, dim, format); });
    CHECK(same_bits(quantised({}, y, dim, format), y));
    CHECK(std::all_of(y.begin(), y.end(), [](float v) { return bf16_round(v) == v; }));
    for (std::int64_t row = 0; row < 19; ++row)
      CHECK(
        same_bits(quantised({}, rows_of(x, row, 1, dim), dim, format), rows_of(y, row, 1, dim)));
    CHECK(distance(y, x) > 0);
    CHECK(distance(y, x) <= (format == quantiser::q8 ? 3.0 / 16 : 1.0));
  }
}

TEST_CASE("quantise: no format copies, and a row may be rounded in place") {
  const auto x = noise(3, 64);
  CHECK(same_bits(quantised({}, x, 32, quantiser::none), x));
  auto y = x;
  quantise_ref({}, {.x = y.data(), .y = y.data(), .rows = 2, .dim = 32, .format = quantiser::q8});
  CHECK(same_bits(y, quantised({}, x, 32, quantiser::q8)));
}
