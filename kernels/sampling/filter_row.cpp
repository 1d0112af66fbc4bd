#include "kernels/sampling/filter_row.hpp"

#include <cmath>
#include <cstring>
#include <utility>

#include "kernels/sampling/keep_candidates.hpp"
#include "kernels/sampling/row_steps.hpp"

namespace deepinfer::kernels {

namespace {

constexpr std::size_t line_bytes = 64;

std::size_t column_bytes(std::int32_t vocab, std::size_t each) {
  return (static_cast<std::size_t>(vocab) * each + line_bytes - 1) / line_bytes * line_bytes;
}

}  // namespace

std::size_t filter_scratch_bytes(std::int32_t vocab) {
  return column_bytes(vocab, sizeof(std::uint64_t)) + 3 * column_bytes(vocab, sizeof(float));
}

filter_scratch filter_scratch_of(void* memory, std::int32_t vocab, std::int64_t part) {
  auto* next =
    static_cast<std::byte*>(memory) + static_cast<std::size_t>(part) * filter_scratch_bytes(vocab);
  const auto take = [&](std::size_t each) {
    return std::exchange(next, next + column_bytes(vocab, each));
  };
  filter_scratch scratch;
  scratch.keys = reinterpret_cast<std::uint64_t*>(take(sizeof(std::uint64_t)));
  scratch.x = reinterpret_cast<float*>(take(sizeof(float)));
  scratch.counts = reinterpret_cast<std::uint32_t*>(take(sizeof(float)));
  scratch.touched = reinterpret_cast<std::int32_t*>(take(sizeof(float)));
  return scratch;
}

double filtered_row::probability(std::uint64_t key) const {
  return std::exp(static_cast<double>(x_of(key))) / sum;
}

double filtered_row::probability_of(std::int32_t id) const {
  for (std::int32_t i = 0; i < size; ++i)
    if (id_of(keys[i]) == id) return probability(keys[i]);
  return 0;
}

filtered_row filter_row(const filter_row_args& args) {
  const auto& s = *args.sampling;
  const auto& scratch = args.scratch;
  auto* x = scratch.x;
  filtered_row made;
  std::memcpy(x, args.logits, static_cast<std::size_t>(args.vocab) * sizeof(float));
  if (find_peak_ref(x, args.vocab, nullptr).is_bad) return {.status = sample_status::bad_logits};
  made.status = adjust_logits_ref({x, args.vocab, args.position, &s, args.history, args.table,
                                   args.block_size, args.mask, scratch.counts, scratch.touched});
  if (made.status != sample_status::ok) return made;
  const auto top = find_peak_ref(x, args.vocab, nullptr);
  if (top.is_bad || top.id < 0) {
    made.status = top.is_bad ? sample_status::bad_logits : sample_status::no_candidate;
    return made;
  }
  for (std::int32_t id = 0; id < args.vocab; ++id) x[id] = scale_logit(x[id], top.x, s.temperature);
  auto* keys = scratch.keys;
  made.keys = keys;
  made.size = list_candidates(x, args.vocab, keys);
  if (has_cuts(s, args.vocab)) made.size = keep_candidates_ref(s, keys, made.size);
  for (std::int32_t i = 0; i < made.size; ++i)
    made.sum += std::exp(static_cast<double>(x_of(keys[i])));
  return made;
}

void weight_race::enter(std::int32_t id, double weight) {
  if (!(weight > 0)) return;
  const double score =
    std::log(weight) +
    static_cast<double>(gumbel_noise(seed_, position_, purpose_, static_cast<std::uint32_t>(id)));
  if (best_id_ >= 0 && (score < best_score_ || (score == best_score_ && id > best_id_))) return;
  best_score_ = score;
  best_id_ = id;
}

}  // namespace deepinfer::kernels
