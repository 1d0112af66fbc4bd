#include "runtime/model/drawn_weights.hpp"

#include <fmt/format.h>

#include "runtime/model/make_model.hpp"

namespace deepinfer {

drawn_weights::drawn_weights(const model_config& config, std::uint64_t seed)
  : seed_(seed),
    bytes_(random_checkpoint_bytes(config)) {
  for (auto& tensor : random_tensors(config)) {
    auto name = tensor.name;
    tensors_.emplace(std::move(name), std::move(tensor));
  }
}

result<std::vector<std::byte>> drawn_weights::draw(const std::string& name,
                                                   tensor_view& out) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return fail(errc::bad_checkpoint,
                fmt::format("tensor {}: a model of this config has none to draw", name));
  const auto& tensor = found->second;
  out.type = tensor.type;
  out.shape = tensor.shape;
  std::vector<std::byte> bytes(static_cast<std::size_t>(out.bytes()));
  random_values(tensor, seed_).fill(bytes);
  return bytes;
}

result<weight_tensor> drawn_weights::get(std::string_view name, const std::vector<std::int64_t>&,
                                         scale_layout) {
  struct parts {
    std::vector<std::byte> values, scale;
  };
  const auto made = std::make_shared<parts>();
  weight_tensor out;
  DI_TRY(made->values, draw(std::string(name), out.values));
  out.values.data = made->values.data();
  if (out.values.type == dtype::f8_e4m3 || out.values.type == dtype::i8) {
    DI_TRY(made->scale, draw(scale_name(name), out.scale));
    out.scale.data = made->scale.data();
  }
  out.owner = made;
  return out;
}

}  // namespace deepinfer
