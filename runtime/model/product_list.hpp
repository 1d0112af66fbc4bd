/// Independent products over the step's tokens, run together as one device op.
#pragma once

#include <array>
#include <cstddef>

#include "runtime/model/forward_context.hpp"

namespace deepinfer {

class product_list {
public:
  explicit product_list(const forward_context& context) : context_(context) {}

  void add(const kernels::packed_matrix& weight, const product_input& input, float* y, bool bf16) {
    if (count_ == list_.size()) run();
    list_[count_++] = context_.linear_args(weight, input, y, context_.tokens(), bf16);
  }
  void run() {
    context_.ops.linears(context_.stream, {list_.data(), static_cast<std::int32_t>(count_)});
    count_ = 0;
  }

private:
  const forward_context& context_;
  std::array<kernels::linear_args, 8> list_;
  std::size_t count_ = 0;
};

}  // namespace deepinfer
