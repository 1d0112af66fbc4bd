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
  call(o.ngram_ids), call(o.engram_gate), call(o.group_by_expert);
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

TEST_CASE("the CPU's table has every op, and zero rows is a legal call that touches nothing") {
  threads_team three(3);
  std::size_t count = 0;
  for_each_op(cpu_ops(), [&]<class Args>(op<Args> entry) {
    const bool is_there = entry != nullptr;
    REQUIRE(is_there);
    for (const auto& stream : {stream_ref{}, stream_ref{&three}}) entry(stream, zero_rows<Args>());
    ++count;
  });
  CHECK(count * sizeof(void*) + sizeof(const char*) == sizeof(ops));
}
