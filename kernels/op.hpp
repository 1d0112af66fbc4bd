/// One entry of a device's table of functions: a plain function, and the place where its time and
/// cost are counted when the stream carries a meter.
///
/// An args struct has `op_name`, and `work_cost cost() const` where bytes or operations matter.
#pragma once

#include "runtime/base/stream.hpp"

namespace deepinfer::kernels {

template <class Args>
class op {
public:
  using function = void (*)(const stream_ref&, const Args&);

  constexpr op() = default;
  constexpr op(function run) : run_(run) {}

  constexpr explicit operator bool() const { return run_ != nullptr; }

  void operator()(const stream_ref& stream, const Args& args) const {
    if (!stream.meter) return run_(stream, args);
    const auto began = work_meter::now_ns();
    run_(stream, args);
    const auto ended = work_meter::now_ns();
    work_cost cost;
    if constexpr (requires { args.cost(); }) cost = args.cost();
    stream.meter->add_op(Args::op_name, ended - began, cost);
  }

private:
  function run_ = nullptr;
};

}  // namespace deepinfer::kernels
