#include "kernels/moe/expert_ffn.hpp"

namespace deepinfer::kernels {
namespace {

void add_expert(const expert_weights& e, std::int64_t pairs, work_cost& cost) {
  if (pairs == 0) return;
  for (const auto* m : {&e.w1, &e.w3, &e.w2}) {
    cost.bytes += static_cast<std::int64_t>(m->bytes());
    (reads_int8(m->type) ? cost.int8_ops : cost.flops) += 2 * pairs * m->out * m->in;
  }
}

}  // namespace

work_cost expert_ffn_args::cost() const {
  work_cost cost;
  for (std::int32_t e = 0; e < expert_count; ++e)
    add_expert(experts[e], offset[e + 1] - offset[e], cost);
  if (shared) add_expert(*shared, tokens, cost);
  return cost;
}

}  // namespace deepinfer::kernels
