#include "runtime/model/logit_error.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

struct distribution {
  explicit distribution(std::span<const float> logits)
    : x(logits),
      best(std::max_element(x.begin(), x.end()) - x.begin()) {
    double sum = 0;
    for (const float value : x) sum += std::exp(double{value} - top());
    log_sum = top() + std::log(sum);
  }

  double top() const { return x[static_cast<std::size_t>(best)]; }
  double log_probability(std::size_t id) const { return double{x[id]} - log_sum; }

  /// Distance of the best logit to the next one.
  double margin() const {
    double next = -std::numeric_limits<double>::infinity();
    for (std::size_t id = 0; id < x.size(); ++id)
      if (static_cast<std::ptrdiff_t>(id) != best) next = std::max(next, double{x[id]});
    return top() - next;
  }

  std::span<const float> x;
  std::ptrdiff_t best;
  double log_sum = 0;
};

double divergence(const distribution& exact, const distribution& other) {
  double sum = 0;
  for (std::size_t id = 0; id < exact.x.size(); ++id) {
    const double log_p = exact.log_probability(id);
    sum += std::exp(log_p) * (log_p - other.log_probability(id));
  }
  return std::isfinite(sum) ? std::max(sum, 0.0) : std::numeric_limits<double>::infinity();
}

}  // namespace

logit_error compare_logits(std::span<const float> exact, std::span<const float> other,
                           std::int64_t vocab) {
  DI_CHECK(vocab > 0 && exact.size() == other.size() &&
             exact.size() % static_cast<std::size_t>(vocab) == 0,
           "{} and {} logits of a vocabulary of {}", exact.size(), other.size(), vocab);
  logit_error made;
  const auto width = static_cast<std::size_t>(vocab);
  for (std::size_t at = 0; at < exact.size(); at += width) {
    const distribution a(exact.subspan(at, width)), b(other.subspan(at, width));
    const double kl = divergence(a, b);
    ++made.positions;
    made.mean_kl += kl;
    made.max_kl = std::max(made.max_kl, kl);
    for (std::size_t id = 0; id < width; ++id)
      made.max_difference = std::max(made.max_difference, std::abs(double{a.x[id]} - b.x[id]));
    // Without finite logits there is no arg-max to agree on.
    const bool is_equal = std::isfinite(kl) && a.best == b.best;
    const bool is_clear = a.margin() > logit_error::clear_margin;
    made.argmax_equal += is_equal;
    made.clear += is_clear;
    made.clear_and_equal += is_equal && is_clear;
  }
  if (made.positions > 0) made.mean_kl /= static_cast<double>(made.positions);
  return made;
}

}  // namespace deepinfer
