/// Weights drawn in memory: what `write_random_checkpoint` would write, without the files. For
/// measurements of a model whose config is there and whose weights are not.
/// Errors: bad_checkpoint for a tensor that the config does not have.
#pragma once

#include <map>
#include <string>

#include "runtime/model/make_model_values.hpp"
#include "runtime/model/weight_source.hpp"

namespace deepinfer {

class drawn_weights final : public weight_source {
public:
  drawn_weights(const model_config& config, std::uint64_t seed);

  result<weight_tensor> get(std::string_view name, const std::vector<std::int64_t>& shape,
                            scale_layout scales) override;
  std::uint64_t total_bytes() const override { return bytes_; }

private:
  result<std::vector<std::byte>> draw(const std::string& name, tensor_view& out) const;

  std::map<std::string, random_tensor> tensors_;
  std::uint64_t seed_;
  std::uint64_t bytes_ = 0;
};

}  // namespace deepinfer
