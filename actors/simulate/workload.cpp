#include "actors/simulate/workload.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/file.hpp"
#include "runtime/base/random.hpp"
#include "runtime/base/trim.hpp"

namespace deepinfer {

namespace {

constexpr std::int32_t most_tokens = 1 << 24;
constexpr double most_arrival_ms = 1e9;  // eleven days

enum class column : std::uint8_t {
  arrival_ms,
  prompt_tokens,
  output_tokens,
  prefix_group,
  prefix_tokens,
  priority,
};
constexpr std::array<std::string_view, 6> column_names{
  "arrival_ms", "prompt_tokens", "output_tokens", "prefix_group", "prefix_tokens", "priority"};
constexpr std::size_t required_columns = 3;

std::vector<std::string_view> cells_of(std::string_view line) {
  std::vector<std::string_view> out;
  for (;;) {
    const auto comma = line.find(',');
    out.push_back(trimmed(line.substr(0, comma)));
    if (comma == std::string_view::npos) return out;
    line.remove_prefix(comma + 1);
  }
}

template <typename Number>
std::optional<Number> number_in(std::string_view text, Number min, Number max) {
  Number value{};
  const auto* last = text.data() + text.size();
  const auto [end, code] = std::from_chars(text.data(), last, value);
  if (text.empty() || code != std::errc() || end != last || !(value >= min && value <= max))
    return {};
  return value;
}

/// A line that is being read, and where it is.
struct csv_line {
  std::string_view file;
  std::size_t number = 0;
  std::vector<std::string_view> cells;

  tl::unexpected<error> wrong(std::string_view what, std::string_view found,
                              std::string_view expected) const {
    return fail(errc::bad_config, fmt::format("{}:{}: {}: found '{}', expected {}", file, number,
                                              what, found.substr(0, 60), expected));
  }
};

result<std::vector<column>> read_header(const csv_line& line) {
  std::vector<column> out;
  for (const auto cell : line.cells) {
    const auto found = std::find(column_names.begin(), column_names.end(), cell);
    if (found == column_names.end())
      return line.wrong("column", cell, fmt::format("one of {}", fmt::join(column_names, ", ")));
    const auto what = static_cast<column>(found - column_names.begin());
    if (std::find(out.begin(), out.end(), what) != out.end())
      return line.wrong("column", cell, "each column once");
    out.push_back(what);
  }
  for (std::size_t i = 0; i < required_columns; ++i)
    if (std::find(out.begin(), out.end(), static_cast<column>(i)) == out.end())
      return line.wrong("header", fmt::format("{}", fmt::join(line.cells, ",")),
                        fmt::format("a column {}", column_names[i]));
  return out;
}

result<void> take_whole(const csv_line& line, std::string_view name, std::string_view cell,
                        std::int32_t min, std::int32_t max, std::int32_t& to) {
  const auto value = number_in(cell, min, max);
  if (!value) return line.wrong(name, cell, fmt::format("a whole number from {} to {}", min, max));
  to = *value;
  return {};
}

result<void> take_cell(const csv_line& line, column what, std::string_view cell,
                       workload_request& to) {
  const auto name = column_names[static_cast<std::size_t>(what)];
  const bool is_absent = cell.empty() && static_cast<std::size_t>(what) >= required_columns;
  if (is_absent) return {};
  switch (what) {
  case column::arrival_ms: {
    const auto value = number_in(cell, 0.0, most_arrival_ms);
    if (!value) return line.wrong(name, cell, "milliseconds from 0 to 1e9");
    to.arrival_ns = std::llround(*value * 1e6);
    return {};
  }
  case column::prompt_tokens: return take_whole(line, name, cell, 1, most_tokens, to.prompt_tokens);
  case column::output_tokens: return take_whole(line, name, cell, 1, most_tokens, to.output_tokens);
  case column::prefix_tokens: return take_whole(line, name, cell, 0, most_tokens, to.prefix_tokens);
  case column::priority: return take_whole(line, name, cell, -1000, 1000, to.priority);
  case column::prefix_group: to.prefix_group = cell; return {};
  }
  return {};
}

result<workload_request> read_request(const csv_line& line, const std::vector<column>& columns) {
  if (line.cells.size() != columns.size())
    return line.wrong("line", fmt::format("{}", fmt::join(line.cells, ",")),
                      fmt::format("{} values, as in the header", columns.size()));
  workload_request out;
  for (std::size_t i = 0; i < columns.size(); ++i)
    DI_TRY_VOID(take_cell(line, columns[i], line.cells[i], out));
  if (out.prefix_tokens > out.prompt_tokens)
    return line.wrong("prefix_tokens", std::to_string(out.prefix_tokens),
                      fmt::format("at most prompt_tokens, {}", out.prompt_tokens));
  if (out.prefix_tokens > 0 && out.prefix_group.empty())
    return line.wrong("prefix_group", "", "a group that the prefix_tokens are shared with");
  return out;
}

std::int32_t draw_length(const length_range& range, std::uint32_t word) {
  const auto lengths = 2.0 * range.spread + 1.0;
  const auto above = static_cast<std::int32_t>(unit_real(word) * lengths);
  return std::max(1, range.mean - range.spread + above);
}

}  // namespace

result<std::vector<workload_request>> parse_workload(std::string_view text, std::string_view name) {
  std::vector<workload_request> out;
  std::vector<column> columns;
  csv_line line;
  line.file = name;
  constexpr std::string_view byte_order_mark = "\xEF\xBB\xBF";  // spreadsheets write it
  if (text.starts_with(byte_order_mark)) text.remove_prefix(byte_order_mark.size());
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    const auto content = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(text.size(), end + 1));
    ++line.number;
    if (content.empty()) continue;
    line.cells = cells_of(content);
    if (columns.empty()) {
      DI_TRY(columns, read_header(line));
      continue;
    }
    DI_TRY(auto request, read_request(line, columns));
    out.push_back(std::move(request));
  }
  if (out.empty())
    return fail(errc::bad_config, fmt::format("{}: found no request, expected a header and a line "
                                              "for each request",
                                              name));
  std::stable_sort(out.begin(), out.end(),
                   [](const auto& a, const auto& b) { return a.arrival_ns < b.arrival_ns; });
  return out;
}

result<std::vector<workload_request>> read_workload(const std::string& path) {
  constexpr std::int64_t most_bytes = 256 << 20;
  auto text = read_small_file(path, most_bytes);
  if (!text) return fail(errc::bad_config, std::move(text).error().message);
  return parse_workload(*text, path);
}

std::vector<workload_request> draw_workload(const synthetic_workload& like) {
  std::vector<workload_request> out;
  double seconds = 0;
  for (std::int32_t i = 0; i < like.requests; ++i) {
    const auto words = philox4x32(
      {static_cast<std::uint32_t>(i), 0, 0, 0},
      {static_cast<std::uint32_t>(like.seed), static_cast<std::uint32_t>(like.seed >> 32)});
    if (like.rate > 0) seconds -= std::log(unit_real(words[0])) / like.rate;
    workload_request request;
    request.arrival_ns = std::llround(seconds * 1e9);
    request.prompt_tokens = draw_length(like.prompt, words[1]);
    request.output_tokens = draw_length(like.output, words[2]);
    if (like.prefix_tokens > 0 && unit_real(words[3]) < like.prefix_share) {
      request.prefix_group = "shared";
      request.prefix_tokens = std::min(like.prefix_tokens, request.prompt_tokens);
    }
    out.push_back(std::move(request));
  }
  return out;
}

result<length_range> parse_length_range(std::string_view text) {
  const auto colon = text.find(':');
  const auto mean = number_in(text.substr(0, colon), 1, most_tokens);
  auto spread = std::optional<std::int32_t>(0);
  if (mean && colon != std::string_view::npos)
    spread = number_in(text.substr(colon + 1), 0, *mean - 1);
  if (mean && spread) return length_range{*mean, *spread};
  return fail(errc::bad_config,
              fmt::format("found '{}', expected MEAN or MEAN:SPREAD in whole tokens, 1 to {}, the "
                          "spread below the mean",
                          text.substr(0, 60), most_tokens));
}

}  // namespace deepinfer
