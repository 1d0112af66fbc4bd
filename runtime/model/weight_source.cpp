#include "runtime/model/weight_source.hpp"

#include <fmt/core.h>

#include <algorithm>
#include <string>

#include "runtime/model/safetensors.hpp"

namespace deepinfer {

namespace {

constexpr std::int64_t scale_group = 32;

std::int64_t groups_of(std::int64_t extent) {
  return (extent + scale_group - 1) / scale_group;
}

result<void> check_shape(const std::string& place, const tensor_view& found,
                         const std::vector<std::int64_t>& expected) {
  if (found.shape == expected) return {};
  return fail(errc::bad_checkpoint, fmt::format("{}: found shape {}, expected {}", place,
                                                shape_text(found.shape), shape_text(expected)));
}

/// A scale that is NaN would spread over a whole block. Tables of rows are not scanned: they may be
/// larger than memory, and one lookup reads little of them.
result<void> check_scale_values(const std::string& place, const tensor_view& scale, bool is_table) {
  if (is_table) return {};
  const auto bytes = std::span(scale.data, scale.bytes());
  const auto bad = std::find(bytes.begin(), bytes.end(), std::byte{255});
  if (bad == bytes.end()) return {};
  return fail(
    errc::bad_checkpoint,
    fmt::format("{}: found NaN at element {}, expected a power of 2", place, bad - bytes.begin()));
}

}  // namespace

std::string scale_name(std::string_view name) {
  constexpr std::string_view suffix = ".weight";
  if (name.ends_with(suffix)) name.remove_suffix(suffix.size());
  return std::string(name) + ".scale";
}

checkpoint_weights::checkpoint_weights(std::shared_ptr<const tensor_set> tensors)
  : tensors_(std::move(tensors)) {}

std::uint64_t checkpoint_weights::total_bytes() const {
  return tensors_->tensor_bytes();
}

result<weight_tensor> checkpoint_weights::get(std::string_view name,
                                              const std::vector<std::int64_t>& shape,
                                              scale_layout scales) {
  weight_tensor found;
  DI_TRY(found.values, tensors_->need(name));
  found.owner = tensors_;
  const auto place = fmt::format("{}: tensor {}", tensors_->file_of(name), name);
  auto stored_shape = shape;
  const auto type = found.values.type;
  if (type == dtype::i8) stored_shape.back() /= 2;
  DI_TRY_VOID(check_shape(place, found.values, stored_shape));
  if (type == dtype::f32 || type == dtype::bf16) return found;
  if ((type != dtype::f8_e4m3 && type != dtype::i8) || shape.size() != 2)
    return fail(errc::bad_checkpoint,
                fmt::format("{}: found type {}, expected F32 or BF16, or F8_E4M3 or I8 of a matrix",
                            place, name_of(type)));
  const auto scale = scale_name(name);
  DI_TRY(found.scale, tensors_->need(scale));
  const auto scale_place = fmt::format("{}: tensor {}", tensors_->file_of(scale), scale);
  if (found.scale.type != dtype::f8_e8m0)
    return fail(errc::bad_checkpoint, fmt::format("{}: found type {}, expected F8_E8M0",
                                                  scale_place, name_of(found.scale.type)));
  const bool is_table = scales == scale_layout::rows && type == dtype::f8_e4m3;
  const auto rows = is_table || type == dtype::i8 ? shape[0] : groups_of(shape[0]);
  DI_TRY_VOID(check_shape(scale_place, found.scale, {rows, groups_of(shape[1])}));
  DI_TRY_VOID(check_scale_values(scale_place, found.scale, is_table));
  return found;
}

generated_weights::generated_weights(weight_generator generate) : generate_(std::move(generate)) {}

result<weight_tensor> generated_weights::get(std::string_view name,
                                             const std::vector<std::int64_t>& shape, scale_layout) {
  weight_tensor made;
  made.values = {dtype::f32, shape, nullptr};
  auto values =
    std::make_shared<std::vector<float>>(static_cast<std::size_t>(made.values.elements()));
  generate_(name, shape.empty() ? 1 : shape.back(), *values);
  made.values.data = reinterpret_cast<const std::byte*>(values->data());
  made.owner = std::move(values);
  return made;
}

}  // namespace deepinfer
