/// Repeated measurements of one quantity, summed up: median and how far values lie from it.
///
/// Any unit. The median of an even number of values is the mean of the middle two; `mad` is the
/// median of the distances from the median. Without a value all of them are 0.
#pragma once

#include <cstddef>
#include <vector>

#include "runtime/base/json.hpp"

namespace deepinfer {

class sample_list {
public:
  void add(double value) { values_.push_back(value); }
  void add(const sample_list& more);

  std::size_t count() const { return values_.size(); }
  double median() const;
  double mad() const;
  double min() const;
  double max() const;
  double sum() const;

private:
  std::vector<double> values_;
};

/// {"count", "median", "mad", "min", "max"}, each value times `factor`.
json::object summary_of(const sample_list& samples, double factor = 1.0);

}  // namespace deepinfer
