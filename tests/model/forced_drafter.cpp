#include "forced_drafter.hpp"

#include "runtime/base/random.hpp"

namespace deepinfer::test {

std::int32_t forced_drafter::true_id(std::uint64_t seed, std::int32_t position) const {
  for (const auto& it : given_.known) {
    if (it.seed != seed) continue;
    const auto output = static_cast<std::size_t>(position - it.prompt_tokens);
    if (output < it.outputs.size()) return it.outputs[output];
  }
  return 0;
}

void forced_drafter::draft(const stream_ref&, const draft_rows& rows) {
  const auto size = static_cast<std::int32_t>(given_.accepts.size());
  for (std::int32_t row = 0; row < rows.count; ++row) {
    if (rows.slot[row] < 0) continue;
    const auto anchor = rows.position[row] + 1;
    const auto seed = rows.sampling[rows.slot[row]].seed;
    const auto right = given_.accepts[static_cast<std::size_t>(anchor % size)];
    for (std::int32_t i = 0; i < rows.drafts; ++i) {
      const auto at = row * rows.drafts + i;
      const auto id = true_id(seed, anchor + 1 + i);
      rows.ids[at] = i < right ? id : (id + 1) % vocab_;
      // Any confidence will do; few values, so that some tie.
      const auto drawn = split_mix64(seed * 31 + static_cast<std::uint64_t>(anchor * 7 + i)) % 4;
      rows.confidence[at] = static_cast<float>(drawn) / 3.0f;
    }
  }
}

}  // namespace deepinfer::test
