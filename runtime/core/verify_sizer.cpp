#include "runtime/core/verify_sizer.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include "runtime/base/check.hpp"

namespace deepinfer {

double median_of(std::span<double> values) {
  DI_CHECK(!values.empty(), "the median of nothing");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*std::max_element(values.begin(), middle) + *middle) / 2;
}

window_medians::window_medians(std::size_t keys, std::size_t size) : size_(size), counts_(keys) {
  DI_CHECK(size > 0, "a window of no values");
  latest_.reserve(size);
  sorted_.reserve(size);
}

void window_medians::add(std::size_t key, double value) {
  const entry added{key, value};
  if (latest_.size() < size_) {
    latest_.push_back(added);
  } else {
    auto& oldest = latest_[oldest_];
    sorted_.erase(std::lower_bound(sorted_.begin(), sorted_.end(), oldest));
    --counts_[oldest.first];
    oldest = added;
    oldest_ = (oldest_ + 1) % size_;
  }
  sorted_.insert(std::upper_bound(sorted_.begin(), sorted_.end(), added), added);
  ++counts_[key];
}

double window_medians::median(std::size_t key) const {
  DI_CHECK(counts_[key] > 0, "the median of nothing: key {}", key);
  const auto first = std::accumulate(
    counts_.begin(), counts_.begin() + static_cast<std::ptrdiff_t>(key), std::size_t{0});
  const auto upper = sorted_[first + counts_[key] / 2].second;
  return counts_[key] % 2 == 1 ? upper : (sorted_[first + counts_[key] / 2 - 1].second + upper) / 2;
}

double verify_sizer::latest_times::median() const {
  auto sorted = us;
  return median_of(std::span(sorted).first(count()));
}

verify_sizer::verify_sizer(std::vector<measured_size> curve, std::int32_t max_rows,
                           std::int32_t max_drafts, double sampler_us)
  : curve_(std::move(curve)),
    errors_(curve_.size(), slope_window),
    sampler_announced_us_(sampler_us) {
  DI_CHECK(max_rows > 0 && max_drafts >= 0, "{} rows of {} drafts", max_rows, max_drafts);
  DI_CHECK(sampler_us >= 0.0, "a sampler of {} us", sampler_us);
  std::int32_t before = 0;
  for (const auto& size : curve_) {
    DI_CHECK(size.tokens > before && size.us > 0.0, "{} tokens after {} in {} us", size.tokens,
             before, size.us);
    before = size.tokens;
  }
  const auto rows = static_cast<std::size_t>(max_rows);
  most_drafts_ = rows * static_cast<std::size_t>(max_drafts);
  sampler_by_rows_.resize(rows + 1);
}

std::size_t verify_sizer::size_for(std::int32_t tokens) const {
  const auto found =
    std::lower_bound(curve_.begin(), curve_.end(), tokens,
                     [](const measured_size& size, std::int32_t n) { return size.tokens < n; });
  return static_cast<std::size_t>(found - curve_.begin());
}

std::int32_t verify_sizer::total(std::span<const verify_row> rows) {
  survivals_.clear();
  survivals_.reserve(most_drafts_);  // a copy of a sizer has none of its room
  for (const auto& row : rows) {
    double survival = 1.0;
    for (std::int32_t draft = 0; draft + 1 < row.width; ++draft) {
      const auto i = static_cast<std::size_t>(draft);
      if (i < row.confidences.size()) {
        // Out of [0, 1], or no number at all: as if at its nearer end, or 0.
        const double raw = row.confidences[i];
        survival *= raw > 0.0 ? std::min(raw, 1.0) : 0.0;
      }
      DI_CHECK(survivals_.size() < most_drafts_, "more than {} drafts", most_drafts_);
      survivals_.push_back(survival);
    }
  }
  const auto widest = static_cast<std::int32_t>(rows.size() + survivals_.size());
  if (curve_.empty() || rows.empty()) return widest;
  std::sort(survivals_.begin(), survivals_.end(), std::greater<>());

  auto best = static_cast<std::int32_t>(rows.size());
  double best_rate = 0.0;
  double expected = best;
  const auto sampler = sampler_us(best);
  for (auto tokens = best; tokens <= widest; ++tokens) {
    if (tokens > static_cast<std::int32_t>(rows.size()))
      expected += survivals_[static_cast<std::size_t>(tokens) - rows.size() - 1];
    const auto size = size_for(tokens);
    if (size == curve_.size()) break;
    const auto rate = expected / (curve_[size].us + slope_us_ * curve_[size].tokens + sampler);
    if (rate <= best_rate) continue;
    best = tokens;
    best_rate = rate;
  }
  return best;
}

void verify_sizer::observe(std::int32_t rows, std::int32_t tokens, double forward_us,
                           double sample_us) {
  DI_CHECK(rows > 0 && static_cast<std::size_t>(rows) < sampler_by_rows_.size(), "{} rows", rows);
  sampler_.add(sample_us);
  sampler_by_rows_[static_cast<std::size_t>(rows)].add(sample_us);
  const auto size = size_for(tokens);
  if (size == curve_.size()) return;
  errors_.add(size, (forward_us - curve_[size].us) / curve_[size].tokens);
  update_slope();
}

void verify_sizer::update_slope() {
  medians_.clear();
  medians_.reserve(errors_.keys());
  for (std::size_t size = 0; size < errors_.keys(); ++size)
    if (errors_.count(size) >= slope_samples) medians_.push_back(errors_.median(size));
  slope_us_ = medians_.empty() ? 0.0 : std::max(median_of(medians_), 0.0);
}

double verify_sizer::sampler_us(std::int32_t rows) const {
  const auto at = static_cast<std::size_t>(rows);
  DI_CHECK(rows >= 0 && at < sampler_by_rows_.size(), "{} rows", rows);
  const auto& same = sampler_by_rows_[at];
  if (same.count() >= sampler_samples_min) return same.median();
  return sampler_.count() > 0 ? sampler_.median() : sampler_announced_us_;
}

}  // namespace deepinfer
