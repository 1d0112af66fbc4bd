/// The tensors that a model_config asks for: names, types, shapes, what each is for.
///
/// With `quantization` the linears are FP8 (e4m3 with one e8m0 scale per 32 x 32 block) and routed
/// experts FP4 (pairs in i8, one e8m0 scale per row and 32 inputs); without it everything is BF16
/// or F32. Some tensors are F32 in every form. Names carry no `model.` prefix.
/// Source: model-v41.md 3. For the released config: 95,819 tensors, the `bias_vl` ones included.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/tensor_view.hpp"
#include "runtime/model/model_config.hpp"

namespace deepinfer {

/// How a tensor must be stored.
enum class storage_rule : std::uint8_t {
  plain,  ///< BF16 or F32
  f32,    ///< F32 in every form
  fp8,    ///< F8_E4M3
  fp4,    ///< I8: two E2M1 codes, low nibble = even input
  scale,  ///< F8_E8M0
};

/// What a tensor is for: the rows of a byte table.
enum class tensor_kind : std::uint8_t {
  embeddings,  ///< embed, head, final norm
  attention,   ///< with compressors, indexers, norms and sinks
  mixing,      ///< hc_*
  routers,
  experts,  ///< routed experts of decoder layers
  shared_experts,
  engram_tables,
  engram,  ///< projections and gates of Engram
  draft,   ///< draft stages without their routed experts
  draft_experts,
};
inline constexpr std::array all_tensor_kinds{
  tensor_kind::embeddings,    tensor_kind::attention, tensor_kind::mixing,
  tensor_kind::routers,       tensor_kind::experts,   tensor_kind::shared_experts,
  tensor_kind::engram_tables, tensor_kind::engram,    tensor_kind::draft,
  tensor_kind::draft_experts};

std::string_view name_of(tensor_kind kind);

struct expected_tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  storage_rule rule = storage_rule::plain;
  tensor_kind kind = tensor_kind::embeddings;
  bool is_optional = false;  ///< may be absent; not read by a text engine
};

/// All of them, grouped by layer, embeddings first, draft stages last.
std::vector<expected_tensor> expected_tensors(const model_config& config);

/// True if `type` satisfies `rule`.
bool allows(storage_rule rule, dtype type);
/// "BF16 or F32", "F8_E4M3", ...
std::string_view text_of(storage_rule rule);

/// Tensors that a text engine passes over: the vision part, and copies of embed and head that a
/// file may repeat in its draft stages.
bool is_skipped(std::string_view name, const model_config& config);

}  // namespace deepinfer
