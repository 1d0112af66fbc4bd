#include "config/units.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace deepinfer {

namespace {

struct unit {
  std::string_view name;
  std::int64_t factor;
};

constexpr std::array<unit, 4> times{{{"h", 3'600'000}, {"m", 60'000}, {"s", 1'000}, {"ms", 1}}};
constexpr std::array<unit, 3> short_times{{{"s", 1'000'000}, {"ms", 1'000}, {"us", 1}}};
constexpr std::array<unit, 10> sizes{{{"TiB", std::int64_t{1} << 40},
                                      {"GiB", std::int64_t{1} << 30},
                                      {"MiB", std::int64_t{1} << 20},
                                      {"KiB", std::int64_t{1} << 10},
                                      {"TB", 1'000'000'000'000},
                                      {"GB", 1'000'000'000},
                                      {"MB", 1'000'000},
                                      {"kB", 1'000},
                                      {"B", 1},
                                      {"", 1}}};

/// `text` as number and unit; nothing where it is neither, does not fit, or has to be rounded and
/// may not.
std::optional<std::int64_t> parse(std::string_view text, std::span<const unit> units,
                                  bool may_round = true) {
  const auto digits = text.find_first_not_of("0123456789.");
  const auto number = text.substr(0, digits);
  auto name = digits == std::string_view::npos ? std::string_view() : text.substr(digits);
  if (name.starts_with(' ')) name.remove_prefix(1);
  double value = 0;
  const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), value);
  if (number.empty() || code != std::errc() || end != number.data() + number.size()) return {};
  for (const auto& candidate : units) {
    if (candidate.name != name) continue;
    const double scaled = value * static_cast<double>(candidate.factor);
    // Beyond 2^53 a double is no longer exact; nobody has such durations or sizes.
    if (!(scaled <= 0x1p53)) return {};
    // A fraction such as 10.3 is not exact in binary; what is left of it then is far below 1e-6.
    if (!may_round && std::abs(scaled - std::round(scaled)) > 1e-6) return {};
    return static_cast<std::int64_t>(std::llround(scaled));
  }
  return {};
}

}  // namespace

result<std::int64_t> parse_milliseconds(std::string_view text) {
  if (text == "0") return 0;
  if (const auto value = parse(text, times)) return *value;
  return fail(errc::invalid_argument,
              fmt::format("found '{}', expected a duration such as 500ms, 30s, 2m or 1h", text));
}

result<std::int64_t> parse_microseconds(std::string_view text) {
  if (text == "0") return 0;
  if (const auto value = parse(text, short_times, false)) return *value;
  return fail(
    errc::invalid_argument,
    fmt::format("found '{}', expected a duration in whole microseconds such as 500us, 2ms or 1s",
                text));
}

result<std::int64_t> parse_bytes(std::string_view text) {
  if (const auto value = parse(text, sizes)) return *value;
  return fail(
    errc::invalid_argument,
    fmt::format("found '{}', expected a size such as 8GiB, 512MiB or 1000000, at most 8192TiB",
                text));
}

std::string duration_text(std::int64_t milliseconds) {
  for (const auto& candidate : times)
    if (milliseconds != 0 && milliseconds % candidate.factor == 0)
      return fmt::format("{}{}", milliseconds / candidate.factor, candidate.name);
  return fmt::format("{}", milliseconds);
}

std::string microseconds_text(std::int64_t microseconds) {
  for (const auto& candidate : short_times)
    if (microseconds != 0 && microseconds % candidate.factor == 0)
      return fmt::format("{}{}", microseconds / candidate.factor, candidate.name);
  return fmt::format("{}us", microseconds);
}

std::string size_text(std::int64_t bytes) {
  for (const auto& candidate : std::span(sizes).first(4))
    if (bytes != 0 && bytes % candidate.factor == 0)
      return fmt::format("{}{}", bytes / candidate.factor, candidate.name);
  return fmt::format("{}", bytes);
}

}  // namespace deepinfer
