// The AVX2 twins of the row-wise ops against their references, bit for bit.
#if defined(__x86_64__)
#include "kernel_support.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "kernels/isa.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

const auto needs_avx2 = doctest::skip(!runs(isa::avx2));

constexpr std::initializer_list<std::int64_t> widths{1,  2,  7,  8,   9,   15,  16,   17,  31,
                                                     32, 33, 63, 100, 128, 250, 1024, 1031};

/// NaN, infinities, zeros of both signs, subnormals, the largest and ties of bf16.
floats odd_values() {
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  floats out{0.0F,    -0.0F,   inf,      -inf,     nan,       -nan,       1e-45F,
             -1e-40F, 3.4e38F, -3.4e38F, 0x1p-9F,  -0x1p-10F, 0x1.8p-10F, 1.00390625F,
             448,     -449,    464,      6,        -5,        2.5F,       .75F,
             .25F,    1.75F,   3.5F,     0x1p-126F};
  const std::uint32_t words[] = {0x7f7fffff, 0x7f7f8000, 0x3f808000, 0x3f818000,
                                 0x7fc00001, 0x7f800001, 0xffffffff};
  for (const auto word : words) out.push_back(std::bit_cast<float>(word));
  return out;
}

/// The same bits, or NaN in both: which NaN a product of two gives is the machine's choice.
bool same_or_nan(const floats& a, const floats& b) {
  if (a.size() != b.size()) return false;
  for (std::size_t i = 0; i < a.size(); ++i)
    if (std::bit_cast<std::uint32_t>(a[i]) != std::bit_cast<std::uint32_t>(b[i]) &&
        !(std::isnan(a[i]) && std::isnan(b[i])))
      return false;
  return true;
}

/// Calls both with args(out) on a copy of `before`; the twin on every team.
template <class Args>
void check_twin(op<Args> reference, op<Args> twin, const floats& before, auto&& args) {
  const auto run = [&](op<Args> entry, const stream_ref& stream) {
    auto out = before;
    entry(stream, args(out.data()));
    return out;
  };
  CHECK(same_or_nan(on_every_team([&](const stream_ref& s) { return run(twin, s); }),
                    run(reference, {})));
}

}  // namespace

TEST_CASE("rms_norm_avx2 has the reference's bits for any width, stride and number of rows" *
          needs_avx2) {
  for (const auto dim : widths)
    for (const std::int64_t rows : {0, 1, 2, 5, 33})
      for (const bool bf16 : {false, true}) {
        CAPTURE(dim);
        const auto x = noise(3, rows * (dim + 3), 4), weight = noise(4, dim);
        check_twin<rms_norm_args>(rms_norm_ref, rms_norm_avx2, floats(size(rows * (dim + 1)), 7),
                                  [&](float* y) {
                                    return rms_norm_args{.x = x.data(),
                                                         .weight = weight.data(),
                                                         .y = y,
                                                         .rows = rows,
                                                         .dim = dim,
                                                         .x_stride = dim + 3,
                                                         .y_stride = dim + 1,
                                                         .eps = 1e-6F,
                                                         .bf16 = bf16};
                                  });
        check_twin<rms_norm_args>(rms_norm_ref, rms_norm_avx2, noise(9, rows * dim), [&](float* y) {
          return rms_norm_args{
            .x = y, .weight = weight.data(), .y = y, .rows = rows, .dim = dim, .eps = 1e-20F};
        });
      }
}

TEST_CASE("rms_norm_avx2 rounds odd values to bf16 like the reference" * needs_avx2) {
  auto weight = odd_values();
  const auto dim = static_cast<std::int64_t>(weight.size());
  check_twin<rms_norm_args>(rms_norm_ref, rms_norm_avx2, floats(size(dim), 1), [&](float* y) {
    return rms_norm_args{
      .x = y, .weight = weight.data(), .y = y, .rows = 1, .dim = dim, .bf16 = true};
  });
}

TEST_CASE("quantise_avx2 has the reference's bits in every format, in place and apart" *
          needs_avx2) {
  const auto odd = odd_values();
  for (const auto format :
       {quantiser::none, quantiser::q8, quantiser::q4_index, quantiser::q4_memory})
    for (const auto dim : widths)
      for (const std::int64_t rows : {0, 1, 3, 33})
        for (const float size_of : {1e-6F, .01F, 1.0F, 300.0F, 1e30F}) {
          CAPTURE(dim);
          const auto x = noise(5, rows * dim, size_of);
          check_twin<quantise_args>(quantise_ref, quantise_avx2, floats(x.size(), 7),
                                    [&](float* y) {
                                      return quantise_args{x.data(), y, rows, dim, format};
                                    });
          check_twin<quantise_args>(quantise_ref, quantise_avx2, x, [&](float* y) {
            return quantise_args{y, y, rows, dim, format};
          });
        }
  for (const auto format : {quantiser::q8, quantiser::q4_index, quantiser::q4_memory})
    for (std::size_t first = 0; first < odd.size(); ++first)
      for (std::size_t second = 0; second < odd.size(); ++second) {
        CAPTURE(odd[first]);
        CAPTURE(odd[second]);
        auto x = noise(6, 35, 5);
        x[3] = odd[first];
        x[34] = odd[second];
        x[20] = odd[second];
        check_twin<quantise_args>(quantise_ref, quantise_avx2, x, [&](float* y) {
          return quantise_args{y, y, 1, 35, format};
        });
      }
}

TEST_CASE("quantise_avx2 rounds at every border and tie of its codes like the reference" *
          needs_avx2) {
  // The largest entry fixes the scale at 1; the rest are the borders, one bit below and above.
  for (const auto format : {quantiser::q8, quantiser::q4_index, quantiser::q4_memory}) {
    const auto group = group_of(format);
    floats x;
    for (int code = 0; code < 126; ++code) {
      const bool is_q8 = format == quantiser::q8;
      const auto decode = [&](int c) {
        return is_q8 ? e4m3_decode(static_cast<std::uint8_t>(c))
                     : e2m1_decode(static_cast<std::uint8_t>(c % 7));
      };
      const float middle = (decode(code) + decode(is_q8 ? code + 1 : code % 7 + 1)) / 2;
      for (const float v : {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, 1e9F)}) {
        if (static_cast<std::int64_t>(x.size()) % group == 0) x.push_back(is_q8 ? 448 : 6);
        x.push_back(v);
        if (static_cast<std::int64_t>(x.size()) % group == 0) x.push_back(is_q8 ? -448 : -6);
        x.push_back(-v);
      }
    }
    const auto dim = static_cast<std::int64_t>(x.size());
    check_twin<quantise_args>(quantise_ref, quantise_avx2, x, [&](float* y) {
      return quantise_args{y, y, 1, dim, format};
    });
  }
}

TEST_CASE("lookup_avx2 has the reference's bits for every storage at any address" * needs_avx2) {
  for (const auto dim : widths) {
    CAPTURE(dim);
    const std::int64_t rows = 9, groups = (dim + 31) / 32;
    const auto values = noise(1, rows * dim);
    const auto odd = odd_values();
    std::vector<std::byte> plain(size(rows * dim * 4 + 1)), half(size(rows * dim * 2 + 1)),
      codes(size(rows * dim)), scales(size(rows * groups));
    for (std::int64_t i = 0; i < rows * dim; ++i) {
      const float value = i % 5 == 0 ? odd[size(i) / 5 % odd.size()] : values[size(i)];
      const auto code = bf16_encode(value);
      std::memcpy(plain.data() + 1 + 4 * i, &value, 4);
      std::memcpy(half.data() + 1 + 2 * i, &code, 2);
      codes[size(i)] = static_cast<std::byte>(i * 7 % 256);
    }
    for (std::int64_t i = 0; i < rows * groups; ++i)
      scales[size(i)] = static_cast<std::byte>(i % 4 == 0    ? i % 3
                                               : i % 11 == 0 ? 255
                                                             : 120 + i % 9);
    const row_table tables[] = {{dtype::f32, plain.data() + 1, nullptr, rows, dim},
                                {dtype::bf16, half.data() + 1, nullptr, rows, dim},
                                {dtype::f8_e4m3, codes.data(), scales.data(), rows, dim}};
    const ints id32{4, -1, 0, 8, 7};
    const std::vector<std::int64_t> id64{8, 3, -1, 1, 2};
    for (const auto& table : tables)
      for (const std::int64_t count : {0, 1, 5})
        for (const std::int64_t copies : {1, 4})
          for (const bool bf16 : {false, true}) {
            const auto before = floats(size(count * copies * (dim + 1)), 9);
            check_twin<lookup_args>(lookup_ref, lookup_avx2, before, [&](float* y) {
              return lookup_args{.table = &table,
                                 .index32 = id32.data(),
                                 .y = y,
                                 .count = count,
                                 .copies = copies,
                                 .bf16 = bf16,
                                 .first_only = y + count * copies * dim};
            });
            check_twin<lookup_args>(lookup_ref, lookup_avx2, before, [&](float* y) {
              return lookup_args{.table = &table,
                                 .index64 = id64.data(),
                                 .y = y,
                                 .count = count,
                                 .copies = copies,
                                 .bf16 = bf16};
            });
          }
  }
}

TEST_CASE("lookup marks the first copy of each row as the only one that is read") {
  const floats values{1, 2, 3, 4};
  const row_table table{dtype::f32, reinterpret_cast<const std::byte*>(values.data()), nullptr, 2,
                        2};
  const ints id{1, 0};
  floats y(12), first(6, 9);
  lookup_ref({}, {.table = &table,
                  .index32 = id.data(),
                  .y = y.data(),
                  .count = 2,
                  .copies = 3,
                  .first_only = first.data()});
  CHECK(y == floats{3, 4, 3, 4, 3, 4, 1, 2, 1, 2, 1, 2});
  CHECK(first == floats{1, 0, 0, 1, 0, 0});
}

TEST_CASE("rope_avx2 has the reference's bits for any rotary part, both ways" * needs_avx2) {
  for (const std::int32_t rotary : {0, 2, 4, 6, 8, 10, 14, 16, 22, 64})
    for (const std::int64_t rest : {0, 1, 5, 64})
      for (const std::int64_t heads : {1, 3})
        for (const std::int64_t tokens : {0, 1, 7})
          for (const bool inverse : {false, true})
            for (const bool bf16 : {false, true}) {
              CAPTURE(rotary);
              const auto angles = noise(1, tokens * rotary);
              const auto dim = rotary + rest;
              check_twin<rope_args>(rope_ref, rope_avx2, noise(2, tokens * heads * dim, 3),
                                    [&](float* x) {
                                      return rope_args{.x = x,
                                                       .angles = angles.data(),
                                                       .tokens = tokens,
                                                       .heads = heads,
                                                       .dim = dim,
                                                       .rotary = rotary,
                                                       .inverse = inverse,
                                                       .bf16 = bf16};
                                    });
            }
}

TEST_CASE("confidence_avx2 has the reference's bits for any width and stride" * needs_avx2) {
  for (const auto dim : widths)
    for (const std::int64_t rank : {0, 1, 8, 19, 256})
      for (const std::int64_t rows : {0, 1, 4}) {
        const auto w = noise(1, dim + rank), x = noise(2, rows * (dim + 2)),
                   e = noise(3, rows * (rank + 1));
        check_twin<confidence_args>(confidence_ref, confidence_avx2, floats(size(rows * 2), 5),
                                    [&](float* z) {
                                      return confidence_args{.weight = w.data(),
                                                             .x = x.data(),
                                                             .e = e.data(),
                                                             .z = z,
                                                             .rows = rows,
                                                             .dim = dim,
                                                             .rank = rank,
                                                             .x_stride = dim + 2,
                                                             .e_stride = rank + 1,
                                                             .z_stride = 2};
                                    });
      }
}

TEST_CASE("combine_avx2 has the reference's bits, with and without a shared expert, over it too" *
          needs_avx2) {
  for (const auto dim : widths)
    for (const std::int64_t tokens : {0, 1, 6})
      for (const std::int32_t k : {1, 2, 6})
        for (const bool bf16 : {false, true}) {
          ints id(size(tokens * k));
          for (std::size_t i = 0; i < id.size(); ++i)
            id[i] = i % 5 == 3 || i < size(k) ? -1 : static_cast<std::int32_t>(i);
          const auto pairs = noise(1, tokens * k * dim, 3), shared = noise(2, tokens * dim);
          const auto args = [&](const float* with, float* y) {
            return combine_args{id.data(), pairs.data(), with, y, tokens, k, dim, bf16};
          };
          check_twin<combine_args>(combine_ref, combine_avx2, floats(shared.size(), 7),
                                   [&](float* y) { return args(shared.data(), y); });
          check_twin<combine_args>(combine_ref, combine_avx2, floats(shared.size(), 7),
                                   [&](float* y) { return args(nullptr, y); });
          check_twin<combine_args>(combine_ref, combine_avx2, shared,
                                   [&](float* y) { return args(y, y); });
        }
}

TEST_CASE("engram_gate_avx2 has the reference's bits for any width and number of streams" *
          needs_avx2) {
  for (const auto dim : widths)
    for (const std::int32_t streams : {1, 3, 4})
      for (const std::int64_t tokens : {0, 1, 5})
        for (const bool bf16 : {false, true}) {
          CAPTURE(dim);
          const auto kv = noise(2, tokens * (streams + 1) * dim, 3), q = noise(3, streams * dim, 2),
                     k = noise(4, streams * dim, 2);
          check_twin<engram_gate_args>(engram_gate_ref, engram_gate_avx2,
                                       noise(1, tokens * streams * dim, 2), [&](float* x) {
                                         return engram_gate_args{.x = x,
                                                                 .kv = kv.data(),
                                                                 .q_weight = q.data(),
                                                                 .k_weight = k.data(),
                                                                 .tokens = tokens,
                                                                 .streams = streams,
                                                                 .dim = dim,
                                                                 .eps = 1e-6F,
                                                                 .bf16 = bf16};
                                       });
        }
}
#endif
