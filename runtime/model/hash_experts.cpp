#include "runtime/model/hash_experts.hpp"

#include "runtime/base/check.hpp"
#include "runtime/model/hash_ids.hpp"

namespace deepinfer {

namespace {

__extension__ using wide = unsigned __int128;

constexpr std::uint64_t modulus = (std::uint64_t{1} << 61) - 1;

std::uint64_t apply(const hash_expert& it, std::uint64_t x) {
  return static_cast<std::uint64_t>((wide{it.factor} * x + it.offset) % modulus);
}

}  // namespace

hash_expert hash_expert_of(const hash_expert_shape& shape, std::int32_t layer,
                           std::int32_t expert) {
  const auto place = std::int64_t{layer} * shape.experts + expert;
  const auto factor = 1 + hash_mix(static_cast<std::uint64_t>(place)) % (modulus - 1);
  return {factor, hash_mix(factor) % modulus};
}

std::vector<hash_expert> hash_experts_of(const hash_expert_shape& shape) {
  std::vector<hash_expert> out;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer)
    for (std::int32_t expert = 0; expert < shape.experts; ++expert)
      out.push_back(hash_expert_of(shape, layer, expert));
  return out;
}

void hash_check_experts(const hash_expert_shape& shape) {
  if (shape.layers == 0) return;
  DI_CHECK(!shape.picks.empty(), "{} layers of experts and no picks", shape.layers);
  for (const auto& list : shape.picks) {
    DI_CHECK(std::ssize(list) == shape.top_k, "{} picks, top_k {}", list.size(), shape.top_k);
    for (const auto expert : list)
      DI_CHECK(expert >= 0 && expert < shape.experts, "expert {} of {}", expert, shape.experts);
  }
}

std::uint64_t hash_through_experts(const hash_expert_shape& shape,
                                   std::span<const hash_expert> records, std::uint64_t chain,
                                   std::int32_t position) {
  if (shape.layers == 0) return chain;
  const auto& list = shape.picks[static_cast<std::size_t>(position) % shape.picks.size()];
  const auto x = chain % modulus;
  std::uint64_t sum = 0;
  for (std::int32_t layer = 0; layer < shape.layers; ++layer)
    for (const auto expert : list) {
      const auto place = static_cast<std::size_t>(std::int64_t{layer} * shape.experts + expert);
      sum += apply(records.empty() ? hash_expert_of(shape, layer, expert) : records[place], x);
    }
  return hash_mix(chain ^ sum);
}

}  // namespace deepinfer
