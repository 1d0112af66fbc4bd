#include "runtime/model/checkpoint_identity.hpp"

#include <algorithm>

#include "runtime/base/fingerprint.hpp"

namespace deepinfer {
namespace {

/// Each sample may cost a read from a disk; weights that were trained or drawn anew differ in all.
constexpr std::size_t sampled_tensors = 2048;
constexpr std::size_t sample_bytes = 64;

fingerprint begin(std::string_view kind, const model_texts& texts) {
  fingerprint out;
  out.add(kind).add(texts.config).add(texts.tokenizer);
  return out;
}

/// Its beginning, its middle and its end.
void add_samples(fingerprint& to, const tensor_view& view) {
  const std::string_view bytes(reinterpret_cast<const char*>(view.data), view.bytes());
  const auto last = bytes.size() - std::min(bytes.size(), sample_bytes);
  for (const auto at : {std::size_t{0}, last / 2, last}) to.add(bytes.substr(at, sample_bytes));
}

}  // namespace

std::string checkpoint_identity(const model_texts& texts, const tensor_set& tensors) {
  auto out = begin("checkpoint", texts);
  const auto& all = tensors.tensors();
  const auto every = all.size() / sampled_tensors + 1;
  std::size_t number = 0;
  for (const auto& [name, at] : all) {
    out.add(name).add(name_of(at.view->type)).add(shape_text(at.view->shape));
    if (number++ % every == 0) add_samples(out, *at.view);
  }
  return out.text();
}

std::string drawn_identity(const model_texts& texts, std::uint64_t seed) {
  return begin("drawn", texts).add(seed).text();
}

}  // namespace deepinfer
