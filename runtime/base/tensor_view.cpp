#include "runtime/base/tensor_view.hpp"

namespace deepinfer {

std::string_view name_of(dtype type) {
  switch (type) {
  case dtype::f32: return "F32";
  case dtype::f64: return "F64";
  case dtype::bf16: return "BF16";
  case dtype::f16: return "F16";
  case dtype::f8_e4m3: return "F8_E4M3";
  case dtype::f8_e8m0: return "F8_E8M0";
  case dtype::i8: return "I8";
  case dtype::u8: return "U8";
  case dtype::i32: return "I32";
  case dtype::i64: return "I64";
  case dtype::boolean: return "BOOL";
  }
  return "?";
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto extent : shape) {
    if (text.size() > 1) text += ", ";
    text += std::to_string(extent);
  }
  return text + "]";
}

}  // namespace deepinfer
