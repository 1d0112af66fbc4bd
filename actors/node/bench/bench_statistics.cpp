#include "actors/node/bench/bench_statistics.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace deepinfer {
namespace {

double median_of(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  const auto half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

void sample_list::add(const sample_list& more) {
  values_.insert(values_.end(), more.values_.begin(), more.values_.end());
}

double sample_list::median() const {
  return median_of(values_);
}

double sample_list::mad() const {
  auto distances = values_;
  const auto middle = median();
  for (auto& it : distances) it = std::fabs(it - middle);
  return median_of(std::move(distances));
}

double sample_list::min() const {
  return values_.empty() ? 0.0 : *std::min_element(values_.begin(), values_.end());
}

double sample_list::max() const {
  return values_.empty() ? 0.0 : *std::max_element(values_.begin(), values_.end());
}

double sample_list::sum() const {
  return std::accumulate(values_.begin(), values_.end(), 0.0);
}

json::object summary_of(const sample_list& samples, double factor) {
  return {{"count", samples.count()},
          {"median", samples.median() * factor},
          {"mad", samples.mad() * factor},
          {"min", samples.min() * factor},
          {"max", samples.max() * factor}};
}

}  // namespace deepinfer
