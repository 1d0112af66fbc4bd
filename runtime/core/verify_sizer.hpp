/// How many query tokens a decode step gets when drafts have confidences: the total that promises
/// the most tokens per time. The device splits it (`step_plan::total_width`).
///
///   expected(b) = rows + sum of the b - rows largest cumulative confidences
///   time(b)     = curve(g) + slope * g + sampler,   g = the smallest measured size >= b
/// The result is the first b that maximises expected(b) / time(b); sizes beyond the curve are not
/// considered. A cumulative confidence is the product of a row's confidences so far.
/// The caller hands in confidences that are max(2, depth) steps old: were they of the drafts that
/// are being decided about, the outputs' distribution would depend on them.
/// Slope: the median over sizes (with >= slope_samples samples in the window of slope_window steps)
/// of the median of (measured - curve(g)) / g, at least 0. Sampler: the median of the latest
/// sampler_samples times of as many rows (of at least 5), else of any rows, else as announced. The
/// median of an even number of values is the mean of the middle two.
/// Units: microseconds, tokens. Single-threaded, no clock; nothing allocates after construction.
/// Errors: DI_CHECK on a curve that is not ascending in tokens or not positive, and on more rows or
/// drafts than announced. Source: confidence-scheduled verification, as DeepInfer does it.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace deepinfer {

/// Median of `values`, which it reorders; not of nothing.
double median_of(std::span<double> values);

/// The latest values of several keys, and the median of each: `size` values in all.
class window_medians {
public:
  window_medians(std::size_t keys, std::size_t size);

  void add(std::size_t key, double value);
  std::size_t count(std::size_t key) const { return counts_[key]; }
  std::size_t keys() const { return counts_.size(); }
  /// Of the values of `key` that are among the latest; not of nothing.
  double median(std::size_t key) const;

private:
  using entry = std::pair<std::size_t, double>;
  std::size_t size_;
  std::size_t oldest_ = 0;
  std::vector<entry> latest_;  ///< a ring once it is full
  std::vector<entry> sorted_;
  std::vector<std::size_t> counts_;
};

/// One decode row: its confidences draft by draft; a missing one is 1.
struct verify_row {
  std::span<const float> confidences;
  std::int32_t width = 1;  ///< most query tokens it may have: 1 + drafts
};

class verify_sizer {
public:
  static constexpr std::size_t slope_window = 5000;
  static constexpr std::size_t slope_samples = 10;
  static constexpr std::size_t sampler_samples = 9;
  static constexpr std::size_t sampler_samples_min = 5;

  struct measured_size {
    std::int32_t tokens = 0;
    double us = 0.0;
  };

  /// `curve`: ascending in tokens; empty: every draft is always verified. `sampler_us`: the
  /// sampler's time while none has been observed.
  verify_sizer(std::vector<measured_size> curve, std::int32_t max_rows, std::int32_t max_drafts,
               double sampler_us = 0.0);

  /// Query tokens of a decode step of `rows`: at least one each, at most the sum of their widths.
  std::int32_t total(std::span<const verify_row> rows);

  /// A decode step of that many rows and query tokens, padding left out, has settled.
  void observe(std::int32_t rows, std::int32_t tokens, double forward_us, double sample_us);

  double slope_us() const { return slope_us_; }  ///< per token
  double sampler_us(std::int32_t rows) const;

private:
  struct latest_times {
    std::array<double, sampler_samples> us{};
    std::size_t added = 0;
    void add(double value) { us[added++ % sampler_samples] = value; }
    std::size_t count() const { return added < sampler_samples ? added : sampler_samples; }
    double median() const;
  };

  std::size_t size_for(std::int32_t tokens) const;  ///< index into the curve; its size: none
  void update_slope();

  std::vector<measured_size> curve_;
  window_medians errors_;
  std::vector<double> medians_;    // of sizes, while the slope is made
  std::vector<double> survivals_;  // cumulative confidences of all rows
  std::size_t most_drafts_ = 0;    // of a step
  std::vector<latest_times> sampler_by_rows_;
  latest_times sampler_;
  double sampler_announced_us_;
  double slope_us_ = 0.0;
};

}  // namespace deepinfer
