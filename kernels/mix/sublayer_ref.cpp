#include "kernels/mix/sublayer.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void check_sublayer(const sublayer_args& a) {
  const auto check = [&a](const char* step, std::int64_t count) {
    DI_CHECK(count == a.tokens, "{} of {} tokens between sublayers of {}", step, count, a.tokens);
  };
  if (a.combine) check("combine", a.combine->tokens);
  if (a.post) check("post", a.post->tokens);
  if (a.tap) check("tap", a.tap->tokens);
  if (a.mix) check("mix", a.mix->split.tokens);
  if (a.collapse) check("collapse", a.collapse->tokens);
  if (a.norm) check("norm", a.norm->rows);
  if (a.quantise) check("quantise", a.quantise->rows);
  if (a.to_int8) check("to_int8", a.to_int8->rows);
  if (a.gate) check("gate", a.gate->rows);
  if (a.route) check("route", a.route->batch.tokens);
  if (a.combine) check_choices(a.combine->k);
  if (a.post) check_streams(a.post->streams);
  if (a.mix && a.tokens > 0) check_hyper_mix(*a.mix);
}

work_cost sublayer_args::cost() const {
  work_cost sum;
  if (mix) sum += mix->cost();
  if (gate) sum += gate->cost();
  return sum;
}

void sublayer_ref(const stream_ref& stream, const sublayer_args& a) {
  check_sublayer(a);
  if (a.combine) combine_ref(stream, *a.combine);
  if (a.post) hyper_post_ref(stream, *a.post);
  if (a.tap) stream_mean_ref(stream, *a.tap);
  if (a.mix) hyper_mix_ref(stream, *a.mix);
  if (a.collapse) collapse_ref(stream, *a.collapse);
  if (a.norm) rms_norm_ref(stream, *a.norm);
  if (a.quantise) quantise_ref(stream, *a.quantise);
  if (a.to_int8) to_int8_ref(stream, *a.to_int8);
  if (a.gate) linear_ref(stream, *a.gate);
  if (a.route) route_ref(stream, *a.route);
}

}  // namespace deepinfer::kernels
