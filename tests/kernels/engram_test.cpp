#include "kernel_support.hpp"

#include <cmath>
#include <map>
#include <numeric>

#include "kernels/common/formats.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

using longs = std::vector<std::int64_t>;

/// Hash constants of one layer of the release.
struct release_layer {
  longs multiplier, prime, offset;

  release_layer(longs multipliers, const std::vector<std::int64_t>& above_16m)
    : multiplier(std::move(multipliers)) {
    std::int64_t sum = 0;
    for (const auto extra : above_16m) {
      prime.push_back(16000000 + extra);
      offset.push_back(sum);
      sum += prime.back();
    }
    rows = sum;
  }
  std::int64_t rows = 0;
};

const release_layer& layer_1() {
  static const release_layer layer({76632096046245, 4839876093313, 35959672319349, 73987337458391},
                                   {57,  79,  81,  97,  121, 129, 133, 183, 189, 207, 211, 253,
                                    277, 289, 307, 321, 339, 381, 393, 399, 403, 409, 447, 463});
  return layer;
}

const release_layer& layer_14() {
  static const release_layer layer({67716810739261, 51510806800915, 30921347202721, 82619226485591},
                                   {477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697,
                                    711, 729, 759, 769, 781, 799, 813, 819, 841, 877, 879, 889});
  return layer;
}

struct history_world {
  test_batch layout{3, 4, 4};
  ints history, token_class;

  history_world() : history(48, -7), token_class(129280, 1) {
    const std::map<std::int32_t, std::int32_t> classes{{0, 0}, {128803, 98615}, {19923, 15844},
                                                       {3, 3}, {128804, 98616}, {128822, 98634}};
    for (const auto& [id, number] : classes) token_class[size(id)] = number;
  }

  void put(std::int32_t slot, std::int32_t position, std::int32_t id) {
    history[size(layout.table[size(slot * 4 + position / 4)] * 4 + position % 4)] = id;
  }

  longs ids(const stream_ref& stream, const test_batch& batch, const release_layer& layer,
            std::int32_t pad_class) const {
    longs out(size(batch.tokens() * 24), 9);
    ngram_ids_ref(stream, {.batch = batch.view(),
                           .history = history.data(),
                           .token_class = token_class.data(),
                           .vocab = 129280,
                           .pad_class = pad_class,
                           .ngram = 4,
                           .heads = 8,
                           .multiplier = layer.multiplier.data(),
                           .prime = layer.prime.data(),
                           .offset = layer.offset.data(),
                           .id = out.data()});
    return out;
  }
};

}  // namespace

TEST_CASE("ngram_ids: rows of the release's tables, from the paged history, in any chunking") {
  CHECK(layer_1().rows == 384006168);
  CHECK(layer_14().rows == 384016682);
  history_world world;
  const ints ids{0, 128803, 19923, 3, 128804, 128822};
  for (std::int32_t p = 0; p < 6; ++p) world.put(2, p, ids[size(p)]);
  auto batch = world.layout;
  batch.row(2, 0, 6).padding(2);
  const auto first =
    on_every_team([&](const stream_ref& s) { return world.ids(s, batch, layer_1(), 2); });
  CHECK(longs(first.begin(), first.begin() + 4) == longs{5702652, 24393184, 39183301, 61503783});
  CHECK(first[23] == 380066193);
  CHECK(longs(first.begin() + 120, first.begin() + 122) == longs{6145177, 29200083});
  CHECK(first[143] == 379947736);
  const auto other = world.ids({}, batch, layer_14(), 2);
  CHECK(longs(other.begin() + 24, other.begin() + 26) == longs{5519679, 29666556});
  CHECK(other[47] == 383764017);
  CHECK(longs(first.end() - 48, first.end()) == longs(48, -1));

  auto late = world.layout;
  late.row(2, 4, 2);
  const auto part = world.ids({}, late, layer_1(), 2);
  CHECK(part == longs(first.begin() + 96, first.begin() + 144));
}

TEST_CASE("ngram_ids: before the start and for unknown ids the class is the pad class, whatever "
          "its number") {
  history_world world;
  world.put(0, 0, 3);
  world.put(0, 1, 129280);
  world.put(1, 0, 5);  // class 1
  world.put(1, 1, 5);
  world.put(1, 2, 3);
  world.put(1, 3, 5);
  auto start = world.layout;
  start.row(0, 0, 2);
  auto spelled = world.layout;
  spelled.row(1, 2, 2);
  const auto got = world.ids({}, start, layer_1(), 1),
             expected = world.ids({}, spelled, layer_1(), 1);
  // With pad class 1, position 0 of [3] hashes like [1, 1, 3]: the bigram and trigram columns
  // agree.
  CHECK(longs(got.begin(), got.begin() + 16) == longs(expected.begin(), expected.begin() + 16));
  CHECK(longs(got.begin() + 24, got.begin() + 48) ==
        longs(expected.begin() + 24, expected.begin() + 48));
  CHECK(world.ids({}, start, layer_1(), 2) != got);
}

TEST_CASE("engram_gate adds the gated value to each stream, in double precision's company") {
  const std::int32_t streams = 4;
  const std::int64_t tokens = 5, dim = 50;
  const auto x = noise(1, tokens * streams * dim, 2),
             kv = noise(2, tokens * (streams + 1) * dim, 3), q = noise(3, streams * dim, 2),
             k = noise(4, streams * dim, 2);
  std::vector<double> expected;
  for (std::int64_t t = 0; t < tokens; ++t)
    for (std::int64_t s = 0; s < streams; ++s) {
      double rho = 0, xx = 0, kk = 0;
      for (std::int64_t d = 0; d < dim; ++d) {
        const double xv = x[size((t * streams + s) * dim + d)],
                     key = kv[size((t * (streams + 1) + s) * dim + d)];
        rho += xv * q[size(s * dim + d)] * k[size(s * dim + d)] * key;
        xx += xv * xv;
        kk += key * key;
      }
      const auto n = static_cast<double>(dim);
      rho = rho / std::sqrt(xx / n + 1e-6) / std::sqrt(kk / n + 1e-6) / std::sqrt(n);
      const double gate =
        1 / (1 + std::exp(-std::copysign(std::sqrt(std::max(std::fabs(rho), 1e-6)), rho)));
      for (std::int64_t d = 0; d < dim; ++d)
        expected.push_back(x[size((t * streams + s) * dim + d)] +
                           gate * kv[size((t * (streams + 1) + streams) * dim + d)]);
    }
  const auto run = [&](const stream_ref& stream, floats in, std::int64_t first, bool bf16) {
    engram_gate_ref(stream, {.x = in.data(),
                             .kv = kv.data() + first * (streams + 1) * dim,
                             .q_weight = q.data(),
                             .k_weight = k.data(),
                             .tokens = static_cast<std::int64_t>(in.size()) / streams / dim,
                             .streams = streams,
                             .dim = dim,
                             .eps = 1e-6F,
                             .bf16 = bf16});
    return in;
  };
  const auto y = on_every_team([&](const stream_ref& s) { return run(s, x, 0, false); });
  CHECK(distance(y, expected) < 2e-6);
  for (std::int64_t t = 0; t < tokens; ++t)
    CHECK(same_bits(run({}, rows_of(x, t, 1, streams * dim), t, false),
                    rows_of(y, t, 1, streams * dim)));
  auto rounded = y;
  for (auto& v : rounded) v = bf16_round(v);
  CHECK(run({}, x, 0, true) == rounded);
}

TEST_CASE("engram_gate: a product near zero still opens the gate by sigmoid of 0.001, and zeros "
          "stay zero") {
  floats x(4, 0), kv{1, 1, 1, 1, 8, 8, 8, 8};
  const floats weight(4, 1);
  engram_gate_ref({}, {.x = x.data(),
                       .kv = kv.data(),
                       .q_weight = weight.data(),
                       .k_weight = weight.data(),
                       .tokens = 1,
                       .streams = 1,
                       .dim = 4,
                       .eps = 1e-20F});
  CHECK(x[0] == doctest::Approx(8 / (1 + std::exp(-.001))).epsilon(1e-6));
  floats zero(4, 0), nothing(8, 0);
  engram_gate_ref({}, {.x = zero.data(),
                       .kv = nothing.data(),
                       .q_weight = weight.data(),
                       .k_weight = weight.data(),
                       .tokens = 1,
                       .streams = 1,
                       .dim = 4,
                       .eps = 1e-20F});
  CHECK(zero == floats(4, 0));
}
