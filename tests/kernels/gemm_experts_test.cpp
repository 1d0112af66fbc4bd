#include "moe_support.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/common/formats.hpp"
#include "kernels/common/quantise.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

using expert_function = void (*)(const stream_ref&, const expert_ffn_args&);

/// Experts with random weights and a double-precision evaluation.
struct expert_world {
  std::int64_t dim = 40, inter = 35;
  std::int32_t count = 6;
  std::vector<floats> w1, w3, w2;
  std::vector<std::vector<std::byte>> panels;
  std::vector<expert_weights> experts;

  expert_world() {
    for (std::int32_t e = 0; e < count; ++e) {
      const auto seed = static_cast<std::uint64_t>(10 * e);
      w1.push_back(noise(seed + 1, inter * dim));
      w3.push_back(noise(seed + 2, inter * dim));
      w2.push_back(noise(seed + 3, dim * inter));
      experts.push_back(
        {pack(w1.back(), inter, dim), pack(w3.back(), inter, dim), pack(w2.back(), dim, inter)});
    }
  }

  packed_matrix pack(const floats& w, std::int64_t out, std::int64_t in) {
    panels.emplace_back(packed_bytes(panel_type::f32, out, in));
    return pack_matrix({dtype::f32, out, in, reinterpret_cast<const std::byte*>(w.data()), nullptr},
                       packing::exact, panels.back().data());
  }

  std::vector<double> in_double(std::int32_t expert, const floats& x, double weight,
                                double limit) const {
    const auto e = size(expert);
    std::vector<double> y(size(dim));
    for (std::int64_t i = 0; i < inter; ++i) {
      double gate = 0, up = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        gate += double{w1[e][size(i * dim + d)]} * x[size(d)];
        up += double{w3[e][size(i * dim + d)]} * x[size(d)];
      }
      if (limit > 0) {
        up = std::clamp(up, -limit, limit);
        gate = std::min(gate, limit);
      }
      const double a = gate / (1 + std::exp(-gate)) * up * weight;
      for (std::int64_t d = 0; d < dim; ++d) y[size(d)] += a * w2[e][size(d * inter + i)];
    }
    return y;
  }

  /// Per (token, choice) outputs; choices of padding stay 0.
  floats run(const stream_ref& stream, const floats& x, const routed& r, std::int32_t k,
             float limit, bool bf16 = false, expert_function expert_ffn = expert_ffn_ref) const {
    const auto tokens = static_cast<std::int64_t>(x.size()) / dim;
    ints offset(size(count + 1)), order(size(tokens * k));
    group_by_expert_ref(stream, {.id = r.id.data(),
                                 .tokens = tokens,
                                 .k = k,
                                 .experts = count,
                                 .offset = offset.data(),
                                 .order = order.data()});
    floats hidden(size(tokens * k * 2 * inter)), y(size(tokens * k * dim));
    expert_ffn_args args;
    args.experts = experts.data();
    args.expert_count = count;
    args.x = x.data();
    args.dim = dim;
    args.inter = inter;
    args.k = k;
    args.offset = offset.data();
    args.order = order.data();
    args.weight = r.weight.data();
    args.hidden = hidden.data();
    args.pair_y = y.data();
    args.limit = limit;
    args.bf16 = args.quantise_hidden = bf16;
    expert_ffn(stream, args);
    return y;
  }
};

/// The functions of an instruction set.
struct twins {
  expert_function expert_ffn;
  void (*swiglu)(const stream_ref&, const swiglu_args&);
  void (*linear)(const stream_ref&, const linear_args&);
};

std::vector<twins> all_twins() {
  std::vector<twins> all{{expert_ffn_ref, swiglu_ref, linear_ref}};
  if (runs(isa::avx2)) all.push_back({expert_ffn_avx2, swiglu_avx2, linear_avx2});
  return all;
}

void multiply(const twins& on, const packed_matrix& w, const float* x, float* y, std::int64_t rows,
              bool bf16 = false) {
  linear_args args;
  args.weight = &w;
  args.x = x;
  args.y = y;
  args.rows = rows;
  args.bf16 = bf16;
  on.linear({}, args);
}

}  // namespace

TEST_CASE("swiglu clamps up on both sides and gate only above, before silu") {
  const floats gate{5, -5, 1, 0}, up{3, 3, -9, 7}, weight{2};
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  for (const auto& on : all_twins()) {
    floats y(4);
    on.swiglu({}, {.gate = gate.data(),
                   .up = up.data(),
                   .weight = weight.data(),
                   .y = y.data(),
                   .rows = 1,
                   .inter = 4,
                   .limit = 2});
    CHECK(distance(y, std::vector<double>{2 * silu(2) * 2, 2 * silu(-5) * 2, 2 * silu(1) * -2, 0}) <
          1e-6);
    on.swiglu({}, {.gate = gate.data(), .up = up.data(), .y = y.data(), .rows = 1, .inter = 4});
    CHECK(distance(y, std::vector<double>{silu(5) * 3, silu(-5) * 3, silu(1) * -9, 0}) < 1e-5);
  }
}

TEST_CASE("swiglu reads interleaved halves of a wider product and may write over them") {
  for (const auto& on : all_twins()) {
    auto both = noise(4, 3 * 10, 3);
    const auto before = both;
    floats y(15);
    on.swiglu({}, {.gate = both.data(),
                   .up = both.data() + 5,
                   .y = y.data(),
                   .rows = 3,
                   .inter = 5,
                   .in_stride = 10,
                   .limit = 1,
                   .bf16 = true});
    for (std::size_t i = 0; i < 15; ++i) {
      const float g = std::min(bf16_round(before[i / 5 * 10 + i % 5]), 1.0F);
      const float u = std::clamp(bf16_round(before[i / 5 * 10 + 5 + i % 5]), -1.0F, 1.0F);
      CHECK(bf16_steps(y[i], g / (1.0F + std::exp(-g)) * u) <= (on.swiglu == swiglu_ref ? 0 : 1));
    }
    on.swiglu({}, {.gate = both.data(),
                   .up = both.data() + 5,
                   .y = both.data(),
                   .rows = 3,
                   .inter = 5,
                   .in_stride = 10,
                   .y_stride = 10,
                   .limit = 1,
                   .bf16 = true});
    for (std::size_t i = 0; i < 15; ++i) CHECK(both[i / 5 * 10 + i % 5] == y[i]);
  }
}

TEST_CASE("expert_ffn gives every routed pair its expert's output, alone as in any batch") {
  const expert_world world;
  const std::int32_t k = 2;
  test_batch batch;
  batch.row(0, 0, 17).padding(3).row(1, 4, 70);
  const auto tokens = batch.tokens();
  const auto x = noise(77, tokens * world.dim);
  const auto logits = noise(78, tokens * world.count, 3);
  const floats bias{0, 0, 0, -50, 0, 2};  // expert 3 gets nothing, expert 5 most
  const auto r = route({}, batch, logits, bias, k);
  for (const auto& on : all_twins())
    for (const float limit : {0.0F, 0.5F}) {
      const auto y = on_every_team(
        [&](const stream_ref& s) { return world.run(s, x, r, k, limit, false, on.expert_ffn); });
      for (std::int64_t pair = 0; pair < tokens * k; ++pair) {
        const auto id = r.id[size(pair)];
        const auto got = rows_of(y, pair, 1, world.dim), row = rows_of(x, pair / k, 1, world.dim);
        if (id < 0)
          CHECK(got == floats(size(world.dim), 0));
        else
          CHECK(distance(got, world.in_double(id, row, r.weight[size(pair)], limit)) < 1e-4);
      }
      for (const bool bf16 : {false, true}) {
        const auto whole = bf16 ? world.run({}, x, r, k, limit, true, on.expert_ffn) : y;
        for (std::int64_t t = 0; t < tokens; ++t) {
          const routed one{{r.id.begin() + t * k, r.id.begin() + (t + 1) * k},
                           rows_of(r.weight, t, 1, k)};
          CHECK(same_bits(
            world.run({}, rows_of(x, t, 1, world.dim), one, k, limit, bf16, on.expert_ffn),
            rows_of(whole, t * k, k, world.dim)));
        }
      }
    }
}

TEST_CASE(
  "expert_ffn, released: hidden values pass through bf16 and Q8 before the second product") {
  const expert_world world;
  const auto x = noise(5, world.dim);
  const routed one{{4}, {.75F}};
  for (const auto& on : all_twins()) {
    floats gate(35), up(35), y(40);
    multiply(on, world.experts[4].w1, x.data(), gate.data(), 1, true);
    multiply(on, world.experts[4].w3, x.data(), up.data(), 1, true);
    on.swiglu({}, {.gate = gate.data(),
                   .up = up.data(),
                   .weight = one.weight.data(),
                   .y = gate.data(),
                   .rows = 1,
                   .inter = 35,
                   .limit = 2,
                   .bf16 = true});
    quantise_ref(
      {}, {.x = gate.data(), .y = gate.data(), .rows = 1, .dim = 35, .format = quantiser::q8});
    multiply(on, world.experts[4].w2, gate.data(), y.data(), 1, true);
    CHECK(same_bits(world.run({}, x, one, 1, 2, true, on.expert_ffn), y));
  }
}

TEST_CASE("the shared expert takes every token with weight 1, beside the routed ones or alone") {
  const expert_world world;
  const routed none{ints(70, -1), floats(70)};
  const std::int64_t tokens = 70;
  const auto x = noise(6, tokens * world.dim);
  ints offset(size(world.count + 1), 0);
  for (const auto& on : all_twins())
    for (const bool bf16 : {false, true}) {
      const auto y = on_every_team([&](const stream_ref& stream) {
        floats hidden(size(tokens * 2 * world.inter)), out(size(tokens * world.dim));
        expert_ffn_args args;
        args.experts = world.experts.data();
        args.expert_count = world.count;
        args.x = x.data();
        args.dim = world.dim;
        args.inter = world.inter;
        args.k = 1;
        args.offset = offset.data();
        args.limit = 2;
        args.bf16 = args.quantise_hidden = bf16;
        args.shared = &world.experts[2];
        args.shared_hidden = hidden.data();
        args.shared_y = out.data();
        args.tokens = 0;
        on.expert_ffn(stream, args);
        CHECK(out == floats(out.size()));
        args.tokens = tokens;
        on.expert_ffn(stream, args);
        return out;
      });
      const routed every{ints(70, 2), floats(70, 1.0F)};
      CHECK(same_bits(y, world.run({}, x, every, 1, 2, bf16, on.expert_ffn)));
    }
}

TEST_CASE("fast experts read int8 rows, and make the hidden values int8 rows for the second") {
  const std::int64_t dim = 40, inter = 67, tokens = 3;
  expert_world world;
  world.dim = dim;
  std::vector<std::vector<std::byte>> memory;
  const auto pack = [&](std::int64_t out, std::int64_t in, std::uint64_t seed) {
    const auto w = noise(seed, out * in);
    memory.emplace_back(packed_bytes(panel_type::i8, out, in));
    return pack_matrix({dtype::f32, out, in, reinterpret_cast<const std::byte*>(w.data()), nullptr},
                       packing::fast, memory.back().data());
  };
  const expert_weights experts[] = {
    {pack(inter, dim, 1), pack(inter, dim, 2), pack(dim, inter, 3)},
    {pack(inter, dim, 4), pack(inter, dim, 5), pack(dim, inter, 6)}};
  const auto x = noise(7, tokens * dim);
  const auto padded = int8_padded(dim), hidden_padded = int8_padded(inter);
  std::vector<std::int8_t> codes(size(tokens * padded));
  floats scales(size(tokens * padded / int8_group));
  to_int8_ref(
    {},
    {.x = x.data(), .codes = codes.data(), .scales = scales.data(), .rows = tokens, .dim = dim});
  const int8_rows x8{codes.data(), scales.data()};
  // Expert 0 has token 2's only pair; expert 1, shared, has every token.
  const ints offset{0, 1}, order{2};
  const floats weight{0, 0, 1.25F};
  for (const auto& on : all_twins()) {
    const auto by_linears = [&](const expert_weights& e, std::int64_t token, float factor) {
      floats gate(size(inter)), up(size(inter)), y(size(dim));
      std::vector<std::int8_t> hidden(size(hidden_padded));
      floats hidden_scales(size(hidden_padded / int8_group));
      linear_args args;
      args.rows = 1;
      args.x8 = {codes.data() + token * padded, scales.data() + token * (padded / int8_group)};
      args.weight = &e.w1;
      args.y = gate.data();
      on.linear({}, args);
      args.weight = &e.w3;
      args.y = up.data();
      on.linear({}, args);
      on.swiglu({}, {.gate = gate.data(),
                     .up = up.data(),
                     .weight = &factor,
                     .y = gate.data(),
                     .rows = 1,
                     .inter = inter,
                     .limit = 3});
      to_int8_ref({}, {.x = gate.data(),
                       .codes = hidden.data(),
                       .scales = hidden_scales.data(),
                       .rows = 1,
                       .dim = inter});
      args.weight = &e.w2;
      args.x8 = {hidden.data(), hidden_scales.data()};
      args.y = y.data();
      on.linear({}, args);
      return y;
    };
    const auto y = on_every_team([&](const stream_ref& stream) {
      floats hidden(size(tokens * 2 * inter)), shared_hidden(size(tokens * 2 * inter));
      floats out(size(2 * tokens * dim));
      std::vector<std::int8_t> hidden8(size(tokens * 2 * hidden_padded));
      floats hidden8_scales(hidden8.size() / int8_group);
      expert_ffn_args args;
      args.experts = experts;
      args.expert_count = 1;
      args.dim = dim;
      args.inter = inter;
      args.k = 1;
      args.offset = offset.data();
      args.order = order.data();
      args.weight = weight.data();
      args.hidden = hidden.data();
      args.pair_y = out.data();
      args.limit = 3;
      args.shared = experts + 1;
      args.tokens = tokens;
      args.shared_hidden = shared_hidden.data();
      args.shared_y = out.data() + tokens * dim;
      args.x8 = x8;
      args.hidden8 = hidden8.data();
      args.hidden8_scales = hidden8_scales.data();
      CHECK(args.cost().int8_ops == 2 * 3 * dim * inter * (1 + tokens));
      CHECK(args.cost().bytes ==
            static_cast<std::int64_t>(2 * (2 * memory[0].size() + memory[2].size())));
      on.expert_ffn(stream, args);
      return out;
    });
    CHECK(rows_of(y, 0, 2, dim) == floats(size(2 * dim)));
    CHECK(same_bits(rows_of(y, 2, 1, dim), by_linears(experts[0], 2, 1.25F)));
    for (std::int64_t token = 0; token < tokens; ++token)
      CHECK(same_bits(rows_of(y, tokens + token, 1, dim), by_linears(experts[1], token, 1)));
  }
}

TEST_CASE("an expert without pairs costs nothing, one with pairs its weights once") {
  const expert_world world;
  const ints offset{0, 0, 3, 3, 3, 3, 4};
  expert_ffn_args args;
  args.experts = world.experts.data();
  args.expert_count = world.count;
  args.offset = offset.data();
  const auto& e = world.experts[0];
  CHECK(args.cost().bytes ==
        2 * static_cast<std::int64_t>(e.w1.bytes() + e.w3.bytes() + e.w2.bytes()));
  CHECK(args.cost().flops == 4 * 2 * 3 * world.dim * world.inter);
  args.shared = &e;
  CHECK(args.cost().flops == 4 * 2 * 3 * world.dim * world.inter);
}

TEST_CASE("the AVX2 swiglu is within four units of the last place and the same at every position") {
  if (!runs(isa::avx2)) return;
  floats gate, up;
  for (int i = -2000; i <= 2000; ++i) {
    gate.push_back(static_cast<float>(i) * 0.06F);
    up.push_back(1);
  }
  const auto count = static_cast<std::int64_t>(gate.size());
  const auto run = [&](const floats& g) {
    floats y(g.size());
    swiglu_avx2({}, {.gate = g.data(),
                     .up = up.data(),
                     .y = y.data(),
                     .rows = 1,
                     .inter = static_cast<std::int64_t>(g.size())});
    return y;
  };
  const auto y = run(gate);
  for (std::size_t i = 0; i < gate.size(); ++i) {
    const double exact = gate[i] / (1 + std::exp(-double{gate[i]}));
    CHECK(std::fabs(y[i] - exact) <= 4 * std::ldexp(std::fabs(exact), -24) + 0x1p-121);
  }
  for (const std::int64_t start : {1, 3, 8, 2001}) {
    const auto part = run(floats(gate.begin() + start, gate.end()));
    CHECK(same_bits(part, rows_of(y, start, count - start, 1)));
  }
  const float infinity = std::numeric_limits<float>::infinity();
  const auto special = run({infinity, -1e30F, std::numeric_limits<float>::quiet_NaN(), 0});
  CHECK(special[0] == infinity);
  CHECK(special[1] == 0);
  CHECK(std::isnan(special[2]));
  CHECK(special[3] == 0);
}
