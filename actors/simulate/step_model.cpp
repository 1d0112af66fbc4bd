#include "actors/simulate/step_model.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "runtime/base/random.hpp"

namespace deepinfer {

namespace {

/// Draws of acceptance have their own second counter word; those of a workload have 0.
constexpr std::uint32_t acceptance_stream = 1;
constexpr std::int32_t words_per_draw = 4;
constexpr double most_ns = 3.6e12;  // an hour

std::optional<double> parse_nanoseconds(std::string_view text) {
  constexpr std::array<std::pair<std::string_view, double>, 4> units{
    {{"ns", 1}, {"us", 1e3}, {"ms", 1e6}, {"s", 1e9}}};
  double value = 0;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || !(value >= 0)) return {};
  const auto name = text.substr(static_cast<std::size_t>(end - text.data()));
  if (name.empty() && value == 0) return 0.0;
  for (const auto& [unit, factor] : units)
    if (unit == name && value * factor <= most_ns) return value * factor;
  return {};
}

/// The text before the next comma, taken off `text`.
std::string_view next_entry(std::string_view& text) {
  const auto comma = std::min(text.find(','), text.size());
  const auto out = text.substr(0, comma);
  text.remove_prefix(std::min(text.size(), comma + 1));
  return out;
}

}  // namespace

std::int64_t step_model::forward_ns(const step_plan& plan) const {
  std::int64_t context = 0;
  for (std::size_t i = 0; i < plan.positions.size(); ++i)
    context += plan.positions[i] + plan.widths[i];
  return std::llround(base_ns + token_ns * plan.total_width + row_ns * plan.rows() +
                      context_ns * static_cast<double>(context));
}

std::int64_t step_model::sampling_ns() const {
  return std::llround(sample_ns);
}

std::int64_t step_model::copying_ns() const {
  return std::llround(copy_ns);
}

result<step_model> parse_step_model(std::string_view text) {
  step_model out;
  const std::array<std::pair<std::string_view, double*>, 6> keys{{{"base", &out.base_ns},
                                                                  {"token", &out.token_ns},
                                                                  {"row", &out.row_ns},
                                                                  {"context", &out.context_ns},
                                                                  {"sample", &out.sample_ns},
                                                                  {"copy", &out.copy_ns}}};
  while (!text.empty()) {
    const auto entry = next_entry(text);
    const auto equals = std::min(entry.find('='), entry.size());
    const auto key = entry.substr(0, equals);
    const auto found =
      std::find_if(keys.begin(), keys.end(), [&](const auto& it) { return it.first == key; });
    if (found == keys.end() || equals == entry.size())
      return fail(errc::bad_config, fmt::format("found '{}', expected KEY=TIME with one of base, "
                                                "token, row, context, sample, copy",
                                                entry.substr(0, 60)));
    const auto value = parse_nanoseconds(entry.substr(equals + 1));
    if (!value)
      return fail(errc::bad_config, fmt::format("{}: found '{}', expected a time such as 3ms, 20us "
                                                "or 1.5ns, at most 3600s",
                                                key, entry.substr(equals + 1).substr(0, 60)));
    *found->second = *value;
  }
  return out;
}

result<acceptance_model> parse_acceptance(std::string_view text) {
  acceptance_model out;
  do {
    const auto entry = next_entry(text);
    double value = 0;
    const auto* last = entry.data() + entry.size();
    const auto [end, code] = std::from_chars(entry.data(), last, value);
    if (entry.empty() || code != std::errc() || end != last || !(value >= 0 && value <= 1))
      return fail(errc::bad_config,
                  fmt::format("found '{}', expected probabilities from 0 to 1, such as 0.8,0.6",
                              entry.substr(0, 60)));
    out.push_back(value);
  } while (!text.empty());
  return out;
}

std::vector<std::int32_t> draw_acceptance(const acceptance_model& model, std::uint64_t seed,
                                          std::uint32_t request, std::int32_t rows,
                                          std::int32_t num_drafts) {
  std::vector<std::int32_t> out;
  if (model.empty() || num_drafts == 0) return out;
  for (std::int32_t row = 0; row < rows; ++row) {
    std::int32_t right = 0;
    for (; right < num_drafts; ++right) {
      const auto words =
        philox4x32({request, acceptance_stream, static_cast<std::uint32_t>(row),
                    static_cast<std::uint32_t>(right / words_per_draw)},
                   {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
      const auto chance = model[std::min(static_cast<std::size_t>(right), model.size() - 1)];
      if (unit_real(words[static_cast<std::size_t>(right % words_per_draw)]) >= chance) break;
    }
    out.push_back(right);
  }
  return out;
}

}  // namespace deepinfer
