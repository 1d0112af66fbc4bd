#include "runtime/base/metrics.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <deque>
#include <limits>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/check.hpp"
#include "runtime/base/process_facts.hpp"

#ifndef DI_VERSION
#define DI_VERSION "0.0.0"
#endif

namespace deepinfer {
namespace {

constexpr auto metric_count = static_cast<std::size_t>(metric::count);

#if defined(__clang__)
constexpr std::string_view compiler = "clang " __clang_version__;
#else
constexpr std::string_view compiler = "g++ " __VERSION__;
#endif

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> out;
  while (!text.empty()) {
    const auto end = std::min(text.find(at), text.size());
    out.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return out;
}

/// Bounds of a named row of buckets. Those of seconds and of tokens are vLLM's, with finer ones
/// below for small models and steps.
std::vector<double> buckets_of(std::string_view name) {
  if (name == "seconds")
    return {0.001, 0.0025, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
            1,     2.5,    5,     7.5,  10,   20,   40,   80,   160, 640,  2560};
  if (name == "short_seconds")
    return {0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.0075, 0.01, 0.015, 0.025, 0.05,
            0.075,  0.1,     0.15,   0.2,   0.3,    0.4,   0.5,    0.75, 1,     2.5,   10};
  if (name == "tiny_seconds")
    return {0.000001, 0.0000025, 0.000005, 0.00001, 0.000025, 0.00005, 0.0001,
            0.00025,  0.0005,    0.001,    0.0025,  0.005,    0.01,    0.1};
  if (name == "tokens")
    return {1,    2,    5,     10,    20,    50,     100,    200,    500,    1000,
            2000, 5000, 10000, 20000, 50000, 100000, 200000, 500000, 1000000};
  return {};
}

metric_info make_info(std::string_view name, metric_kind kind, std::string_view labels,
                      std::string_view buckets, std::string_view help) {
  metric_info out{name, kind, {}, {}, buckets_of(buckets), help};
  for (const auto label : split(labels, ' ')) {
    const auto parts = split(label, '=');
    out.labels.push_back(parts[0]);
    out.values.push_back(parts.size() > 1 ? split(parts[1], '|') : std::vector<std::string_view>{});
  }
  return out;
}

std::string_view kind_name(metric_kind kind) {
  switch (kind) {
  case metric_kind::counter: return "counter";
  case metric_kind::gauge: return "gauge";
  case metric_kind::histogram: break;
  }
  return "histogram";
}

/// A label value between its quotation marks.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') out += '\\';
    if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
  return out;
}

std::string number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "+Inf" : "-Inf";
  // Whole numbers without an exponent, as long as a double holds them exactly.
  if (value == std::floor(value) && std::abs(value) < 9e15) return fmt::format("{:.0f}", value);
  return fmt::format("{}", value);
}

struct series {
  std::vector<std::string> values;
  std::string shown;                                ///< its own labels, as text shows them
  std::atomic<double> value{0.0};                   ///< of a histogram: the sum
  std::vector<std::atomic<std::uint64_t>> buckets;  ///< not cumulative; the last one: beyond
  std::atomic<series*> next{nullptr};

  bool has(std::initializer_list<std::string_view> labels) const {
    return std::equal(labels.begin(), labels.end(), values.begin(), values.end());
  }
};

/// One metric: a list that only grows, so that readers and counters need no lock.
struct family {
  std::atomic<series*> first{nullptr};
  std::deque<series> owned;
  std::mutex growing;

  series* find(std::initializer_list<std::string_view> labels) const {
    auto* it = first.load(std::memory_order_acquire);
    while (it && !it->has(labels)) it = it->next.load(std::memory_order_acquire);
    return it;
  }
};

}  // namespace

const metric_info& info_of(metric m) {
  static const std::array<metric_info, metric_count> table{
#define DI_METRIC(name, kind, labels, buckets, help)                                               \
  make_info(#name, metric_kind::kind, labels, #buckets, help),
#include "runtime/base/metrics.def"
#undef DI_METRIC
  };
  return table[static_cast<std::size_t>(m)];
}

struct metrics::state {
  std::string prefix;
  std::string engine;
  std::string model_name;
  mutable std::mutex naming;  ///< of `model_name`
  std::array<family, metric_count> families;

  /// Labels of every series.
  std::string common() const {
    const std::lock_guard lock(naming);
    return fmt::format("model_name=\"{}\",engine=\"{}\"", escaped(model_name), escaped(engine));
  }

  const family& of(metric m) const { return families[static_cast<std::size_t>(m)]; }

  series& make(metric m, std::initializer_list<std::string_view> labels) {
    auto& in = families[static_cast<std::size_t>(m)];
    const auto& info = info_of(m);
    const std::lock_guard lock(in.growing);
    if (auto* known = in.find(labels)) return *known;
    std::vector<std::string> values(labels.begin(), labels.end());
    if (in.owned.size() + 1 >= series_limit) {
      for (auto& value : values) value = "other";
      for (auto& it : in.owned)
        if (it.values == values) return it;
    }
    auto* last = in.owned.empty() ? nullptr : &in.owned.back();
    auto& made = in.owned.emplace_back();
    for (std::size_t i = 0; i < values.size(); ++i)
      made.shown += fmt::format(",{}=\"{}\"", info.labels[i], escaped(values[i]));
    made.values = std::move(values);
    if (info.kind == metric_kind::histogram)
      made.buckets = std::vector<std::atomic<std::uint64_t>>(info.buckets.size() + 1);
    (last ? last->next : in.first).store(&made, std::memory_order_release);
    return made;
  }

  series& at(metric m, std::initializer_list<std::string_view> labels) {
    DI_CHECK(labels.size() == info_of(m).labels.size(), "{} has {} labels, found {}",
             info_of(m).name, info_of(m).labels.size(), labels.size());
    auto* known = of(m).find(labels);
    return known ? *known : make(m, labels);
  }

  const series* known(metric m, std::initializer_list<std::string_view> labels) const {
    DI_CHECK(labels.size() == info_of(m).labels.size(), "{} has {} labels, found {}",
             info_of(m).name, info_of(m).labels.size(), labels.size());
    return of(m).find(labels);
  }

  /// Every combination of the values that the list names.
  void make_listed(metric m) {
    const auto& values = info_of(m).values;
    if (values.empty()) make(m, {});
    if (values.size() == 1)
      for (const auto value : values[0]) make(m, {value});
    if (values.size() == 2)
      for (const auto a : values[0])
        for (const auto b : values[1]) make(m, {a, b});
    DI_CHECK(values.size() < 3 || values[0].empty(), "{}: values of three labels", info_of(m).name);
  }

  void write(std::string& out, metric m, const series& it, const std::string& common) const {
    const auto& info = info_of(m);
    const auto labels = common + it.shown;
    if (info.kind != metric_kind::histogram) {
      out += fmt::format("{}{}{{{}}} {}\n", prefix, info.name, labels, number(it.value.load()));
      return;
    }
    std::uint64_t count = 0;
    for (std::size_t i = 0; i < it.buckets.size(); ++i) {
      count += it.buckets[i].load(std::memory_order_relaxed);
      const auto bound =
        i < info.buckets.size() ? info.buckets[i] : std::numeric_limits<double>::infinity();
      out += fmt::format("{}{}_bucket{{{},le=\"{}\"}} {}\n", prefix, info.name, labels,
                         number(bound), count);
    }
    out += fmt::format("{}{}_sum{{{}}} {}\n", prefix, info.name, labels, number(it.value.load()));
    out += fmt::format("{}{}_count{{{}}} {}\n", prefix, info.name, labels, count);
  }
};

metrics::metrics(std::string prefix, std::string model_name, std::string engine)
  : state_(std::make_unique<state>()) {
  for (auto& c : prefix)
    if (!((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == ':'))
      c = '_';
  if (!prefix.empty() && prefix[0] >= '0' && prefix[0] <= '9') prefix.insert(0, "_");
  state_->prefix = std::move(prefix);
  state_->model_name = std::move(model_name);
  state_->engine = std::move(engine);
  for (std::size_t i = 0; i < metric_count; ++i) state_->make_listed(static_cast<metric>(i));
  set(metric::build_info, 1.0, {DI_VERSION, compiler});
}

metrics::~metrics() = default;

void metrics::name_model(std::string name) {
  const std::lock_guard lock(state_->naming);
  state_->model_name = std::move(name);
}

void metrics::add(metric m, double by, std::initializer_list<std::string_view> labels) {
  const auto& info = info_of(m);
  DI_CHECK(info.kind != metric_kind::histogram, "{} is a histogram", info.name);
  DI_CHECK(info.kind == metric_kind::gauge || !(by < 0.0), "{} only grows, found {}", info.name,
           by);
  if (std::isnan(by)) return;
  state_->at(m, labels).value.fetch_add(by, std::memory_order_relaxed);
}

void metrics::set(metric m, double value, std::initializer_list<std::string_view> labels) {
  DI_CHECK(info_of(m).kind == metric_kind::gauge, "{} is no gauge", info_of(m).name);
  if (std::isnan(value)) return;
  state_->at(m, labels).value.store(value, std::memory_order_relaxed);
}

void metrics::observe(metric m, double value, std::initializer_list<std::string_view> labels) {
  const auto& info = info_of(m);
  DI_CHECK(info.kind == metric_kind::histogram, "{} is no histogram", info.name);
  if (std::isnan(value)) return;
  auto& into = state_->at(m, labels);
  const auto bucket = std::lower_bound(info.buckets.begin(), info.buckets.end(), value);
  into.buckets[static_cast<std::size_t>(bucket - info.buckets.begin())].fetch_add(
    1, std::memory_order_relaxed);
  into.value.fetch_add(value, std::memory_order_relaxed);
}

double metrics::value(metric m, std::initializer_list<std::string_view> labels) const {
  const auto* known = state_->known(m, labels);
  if (!known) return 0.0;
  if (info_of(m).kind != metric_kind::histogram) return known->value.load();
  std::uint64_t count = 0;
  for (const auto& bucket : known->buckets) count += bucket.load(std::memory_order_relaxed);
  return static_cast<double>(count);
}

std::optional<double> metrics::quantile(metric m, double q,
                                        std::initializer_list<std::string_view> labels) const {
  const auto& info = info_of(m);
  DI_CHECK(info.kind == metric_kind::histogram, "{} is no histogram", info.name);
  const auto* known = state_->known(m, labels);
  if (!known) return std::nullopt;
  std::vector<double> counts;
  double sum = 0.0;
  for (const auto& bucket : known->buckets) {
    counts.push_back(static_cast<double>(bucket.load(std::memory_order_relaxed)));
    sum += counts.back();
  }
  if (sum == 0.0) return std::nullopt;
  const auto rank = q * sum;
  double below = 0.0;
  for (std::size_t i = 0; i < info.buckets.size(); ++i) {
    if (counts[i] > 0.0 && below + counts[i] >= rank) {
      const auto begin = i == 0 ? 0.0 : info.buckets[i - 1];
      return begin + (info.buckets[i] - begin) * std::max(0.0, rank - below) / counts[i];
    }
    below += counts[i];
  }
  return info.buckets.back();
}

std::string metrics::text() const {
  std::string out;
  const auto common = state_->common();
  const auto head = [&out](std::string_view prefix, std::string_view name, std::string_view help,
                           std::string_view kind) {
    out += fmt::format("# HELP {0}{1} {2}\n# TYPE {0}{1} {3}\n", prefix, name, help, kind);
  };
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto m = static_cast<metric>(i);
    const auto& info = info_of(m);
    head(state_->prefix, info.name, info.help, kind_name(info.kind));
    const auto* it = state_->of(m).first.load(std::memory_order_acquire);
    for (; it; it = it->next.load(std::memory_order_acquire)) state_->write(out, m, *it, common);
  }
  for (const auto& fact : process_facts()) {
    head({}, fact.name, fact.help,
         kind_name(fact.is_counter ? metric_kind::counter : metric_kind::gauge));
    out += fmt::format("{}{{{}}} {}\n", fact.name, common, number(fact.value));
  }
  return out;
}

std::string metrics_reference() {
  std::string out =
    "# Metrics\n\n"
    "Made by `deepinfer config metrics` from `runtime/base/metrics.def`. `GET /metrics` gives "
    "them\n"
    "in text format 0.0.4. Every name begins with `deepinfer:` (`--metrics-prefix`), those of the\n"
    "process excepted; every series has the labels `model_name` and `engine`. A gateway's model "
    "is\n"
    "that of its nodes: the name is empty until the first of them has said it. Series exist from "
    "the\n"
    "start, at 0, but for labels whose values are not listed here. Times are in seconds, sizes in\n"
    "bytes, ratios from 0 to 1. At most 1000 series of a metric are kept; what would be one more "
    "is\n"
    "counted under the label values `other`.\n\n"
    "| name | kind | labels | what |\n|---|---|---|---|\n";
  std::vector<std::pair<std::string, std::string>> rows;  // bounds, and who has them
  for (std::size_t i = 0; i < metric_count; ++i) {
    const auto& info = info_of(static_cast<metric>(i));
    std::string labels;
    for (std::size_t label = 0; label < info.labels.size(); ++label) {
      labels += fmt::format("{}`{}`", label == 0 ? "" : ", ", info.labels[label]);
      const auto& values = info.values[label];
      for (std::size_t v = 0; v < values.size(); ++v)
        labels += fmt::format("{}{}", v == 0 ? ": " : " ", values[v]);
    }
    out +=
      fmt::format("| `{}` | {} | {} | {} |\n", info.name, kind_name(info.kind), labels, info.help);
    if (info.buckets.empty()) continue;
    std::string bounds;
    for (const auto bound : info.buckets) bounds += (bounds.empty() ? "" : " ") + number(bound);
    auto row =
      std::find_if(rows.begin(), rows.end(), [&](const auto& it) { return it.first == bounds; });
    if (row == rows.end()) row = rows.insert(row, {bounds, {}});
    row->second += fmt::format("{}`{}`", row->second.empty() ? "" : ", ", info.name);
  }
  for (const auto& fact : process_facts())
    out += fmt::format("| `{}` | {} |  | {} |\n", fact.name, fact.is_counter ? "counter" : "gauge",
                       fact.help);
  out += "\n## Buckets\n\n| upper bounds | of |\n|---|---|\n";
  for (const auto& [bounds, names] : rows) out += fmt::format("| {} | {} |\n", bounds, names);
  return out;
}

}  // namespace deepinfer
