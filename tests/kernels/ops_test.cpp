#include "kernel_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

/// Every entry of a table, called with `call`.
template <class Call>
void for_each_op(const ops& o, Call&& call) {
  call(o.quantise), call(o.lookup), call(o.gather), call(o.rms_norm), call(o.linear);
  call(o.grouped_linear), call(o.confidence), call(o.argmax), call(o.hyper_split),
    call(o.hyper_mix);
  call(o.collapse), call(o.hyper_post), call(o.stream_mean), call(o.rope_angles), call(o.rope);
  call(o.window_store), call(o.group_positions), call(o.pool), call(o.pool_store), call(o.append);
  call(o.index_scores), call(o.top_rows), call(o.candidate_blocks), call(o.sparse_attention);
  call(o.block_attention), call(o.route), call(o.swiglu), call(o.expert_ffn), call(o.combine);
  call(o.ngram_ids), call(o.engram_gate), call(o.group_by_expert), call(o.to_int8);
  call(o.linears), call(o.sublayer), call(o.memory_rows), call(o.index_rows);
  call(o.select_rows), call(o.attend_rows), call(o.sample_rows);
}

template <class Args>
Args zero_rows() {
  return {};
}

template <>
group_by_expert_args zero_rows() {  // always writes offset[0]
  static std::int32_t offset = 5;
  return {.offset = &offset};
}

}  // namespace

TEST_CASE("each CPU table has every op, and zero rows is a legal call that touches nothing") {
  threads_team three(3);
  for (const auto set : {isa::reference, isa::avx2}) {
    if (!runs(set)) continue;
    CAPTURE(name_of(set));
    const auto& table = cpu_ops(set);
    std::size_t count = 0;
    for_each_op(table, [&]<class Args>(const op<Args>& entry) {
      const bool is_there = static_cast<bool>(entry);
      REQUIRE(is_there);
      for (const auto& stream : {stream_ref{}, stream_ref{&three}})
        entry(stream, zero_rows<Args>());
      ++count;
    });
    CHECK(count * sizeof(void*) + sizeof(const char*) == sizeof(ops));
  }
}

TEST_CASE("a meter counts each call of an op with its cost, by op and by part, of all threads") {
  last_first_team team;
  work_meter meter;
  const stream_ref stream{&team, nullptr, &meter};
  const auto values = noise(1, 7 * 20);
  floats weights(packed_bytes(panel_type::f32, 5, 20) / sizeof(float));
  const auto packed =
    pack_matrix({dtype::f32, 5, 20, reinterpret_cast<const std::byte*>(values.data()), nullptr},
                packing::exact, reinterpret_cast<std::byte*>(weights.data()));
  floats x = noise(2, 3 * 20), y(size(3 * 5));
  linear_args args;
  args.weight = &packed;
  args.x = x.data();
  args.y = y.data();
  args.rows = 3;
  const auto& table = cpu_ops(isa::reference);
  meter.enter("first");
  table.linear(stream, args);
  table.linear(stream, args);
  meter.enter("second");
  args.rows = 0;
  table.linear(stream, args);
  REQUIRE(meter.ops().size() == 1);
  CHECK(std::string(meter.ops()[0].name) == "linear");
  CHECK(meter.ops()[0].calls == 3);
  CHECK(meter.total().flops == 2 * 2 * 3 * 5 * 20);
  CHECK(meter.total().bytes == 2 * 16 * 20 * 4);
  REQUIRE(meter.parts().size() == 2);
  CHECK(meter.parts()[0].calls == 2);
  CHECK(meter.parts()[1].cost.flops == 0);
  CHECK(meter.busy_ns() > 0);
  meter.clear();
  CHECK(meter.ops().empty());
}
