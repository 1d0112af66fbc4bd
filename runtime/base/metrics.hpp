/// Counters, gauges and histograms of a process, as Prometheus text. One list: metrics.def.
///
/// Thread-safe; `add`, `set` and `observe` of a series that exists take no lock and allocate
/// nothing. Series without labels exist from the start, at 0, and so do those of the label values
/// that metrics.def lists. Names, units and buckets are those of interfaces users know from vLLM;
/// base units: seconds, bytes, ratios 0 to 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

enum class metric_kind : std::uint8_t { counter, gauge, histogram };

enum class metric : std::uint16_t {
#define DI_METRIC(name, kind, labels, buckets, help) name,
#include "runtime/base/metrics.def"
#undef DI_METRIC
  count
};

/// What is known of a metric before anything has been counted.
struct metric_info {
  std::string_view name;
  metric_kind kind;
  std::vector<std::string_view> labels;
  std::vector<double> buckets;
  std::string_view help;
};

const metric_info& info_of(metric m);

class metrics {
public:
  /// `prefix` goes before every name; `model_name` and `engine` are labels of every series.
  explicit metrics(std::string prefix = "deepinfer:", std::string model_name = {},
                   std::string engine = "0");
  ~metrics();
  metrics(const metrics&) = delete;
  metrics& operator=(const metrics&) = delete;

  /// Label values in the order of the list.
  void add(metric m, double by = 1.0, std::initializer_list<std::string_view> labels = {});
  void set(metric m, double value, std::initializer_list<std::string_view> labels = {});
  void observe(metric m, double value, std::initializer_list<std::string_view> labels = {});

  /// The current value of a counter or gauge, the count of a histogram; 0 where there is none.
  double value(metric m, std::initializer_list<std::string_view> labels = {}) const;

  /// Text format 0.0.4.
  std::string text() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

/// config/metrics.md: the whole list with kinds, labels and help.
std::string metrics_reference();

}  // namespace deepinfer
