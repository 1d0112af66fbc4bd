/// Counters, gauges and histograms of a process, as Prometheus text. One list: metrics.def.
///
/// Thread-safe; `add`, `set` and `observe` of a series that exists take no lock and allocate
/// nothing. Series without labels exist from the start, at 0, and so do those of the label values
/// that metrics.def lists. Names, units and buckets are those of interfaces users know from vLLM;
/// base units: seconds, bytes, ratios 0 to 1.
///
/// A metric keeps at most `series_limit` series; what would be one more is counted under the label
/// values "other". Errors: none at run time; a wrong number of labels, or a call that does not fit
/// the kind, is a DI_CHECK.
#pragma once

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
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
  std::vector<std::vector<std::string_view>> values;  ///< of each label, that exist from the start
  std::vector<double> buckets;                        ///< upper bounds, without infinity
  std::string_view help;
};

const metric_info& info_of(metric m);

class metrics {
public:
  static constexpr std::size_t series_limit = 1000;

  /// `prefix` goes before every name; what a name may not hold becomes '_'. `model_name` and
  /// `engine` are labels of every series.
  explicit metrics(std::string prefix = "deepinfer:", std::string model_name = {},
                   std::string engine = "0");
  ~metrics();
  metrics(const metrics&) = delete;
  metrics& operator=(const metrics&) = delete;

  /// Another `model_name` from now on: who serves through others learns it late.
  void name_model(std::string name);

  /// Label values in the order of the list. `add`: counters, by no less than 0, and gauges; `set`:
  /// gauges; `observe`: histograms. What is no number is not counted.
  void add(metric m, double by = 1.0, std::initializer_list<std::string_view> labels = {});
  void set(metric m, double value, std::initializer_list<std::string_view> labels = {});
  void observe(metric m, double value, std::initializer_list<std::string_view> labels = {});

  /// The current value of a counter or gauge, the count of a histogram; 0 where there is none.
  double value(metric m, std::initializer_list<std::string_view> labels = {}) const;

  /// The value that a share `q` of a histogram's observations does not exceed, linear within its
  /// bucket; the last bound where it lies beyond; nothing without observations.
  std::optional<double> quantile(metric m, double q,
                                 std::initializer_list<std::string_view> labels = {}) const;

  /// Text format 0.0.4: every series, and what the system tells of this process (process_*, without
  /// the prefix).
  std::string text() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

/// The part that one of several owners has in a gauge that is their sum: setting it changes the
/// gauge by the difference, and it is taken out when its owner leaves.
class gauge_share {
public:
  gauge_share(metrics* counts, metric m) : counts_(counts), metric_(m) {}
  ~gauge_share() { set(0); }
  gauge_share(const gauge_share&) = delete;
  gauge_share& operator=(const gauge_share&) = delete;

  /// Whole numbers, so that the sum stays exact.
  void set(std::int64_t value) {
    if (value == value_) return;
    counts_->add(metric_, static_cast<double>(value - value_));
    value_ = value;
  }
  std::int64_t value() const { return value_; }

private:
  metrics* counts_;
  metric metric_;
  std::int64_t value_ = 0;
};

/// config/metrics.md: the whole list with kinds, labels and help.
std::string metrics_reference();

}  // namespace deepinfer
