#include "runtime/base/metrics.hpp"

namespace deepinfer {

struct metrics::state {};

metrics::metrics(std::string, std::string, std::string) : state_(std::make_unique<state>()) {}
metrics::~metrics() = default;
void metrics::add(metric, double, std::initializer_list<std::string_view>) {}
void metrics::set(metric, double, std::initializer_list<std::string_view>) {}
void metrics::observe(metric, double, std::initializer_list<std::string_view>) {}
double metrics::value(metric, std::initializer_list<std::string_view>) const {
  return 0.0;
}
std::string metrics::text() const {
  return {};
}

}  // namespace deepinfer
