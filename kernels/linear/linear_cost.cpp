#include "kernels/linear/linear.hpp"

namespace deepinfer::kernels {

work_cost linear_args::cost() const {
  work_cost cost;
  if (rows == 0) return cost;
  cost.bytes = static_cast<std::int64_t>(weight->bytes());
  (reads_int8(weight->type) ? cost.int8_ops : cost.flops) = 2 * rows * weight->out * weight->in;
  return cost;
}

work_cost linears_args::cost() const {
  work_cost cost;
  for (std::int32_t i = 0; i < count; ++i) cost += products[i].cost();
  return cost;
}

work_cost grouped_linear_args::cost() const {
  work_cost cost;
  for (std::int64_t group = 0; group < groups; ++group) {
    linear_args part;
    part.weight = weights + group;
    part.rows = rows;
    cost += part.cost();
  }
  return cost;
}

}  // namespace deepinfer::kernels
