#include "config/scenario_load.hpp"

#include <algorithm>
#include <charconv>
#include <filesystem>

#include "config/nearest.hpp"
#include "config/scenario_names.hpp"
#include "config/scenario_read.hpp"
#include "runtime/base/file.hpp"

namespace deepinfer {

namespace {

/// The line in "NAME:LINE:COLUMN", for sorting; the column decides within it.
std::pair<int, int> line_and_column(const std::string& place) {
  const auto column = place.rfind(':');
  const auto line = column == std::string::npos ? column : place.rfind(':', column - 1);
  std::pair<int, int> out{0, 0};
  if (line == std::string::npos) return out;
  std::from_chars(place.data() + line + 1, place.data() + column, out.first);
  std::from_chars(place.data() + column + 1, place.data() + place.size(), out.second);
  return out;
}

result<std::string> read_story(std::string_view text, const std::string& path) {
  const auto line = text.substr(0, text.find('\n'));
  const auto begin = line.find_first_not_of("# ");
  if (!line.starts_with('#') || begin == std::string_view::npos)
    return fail(errc::bad_config,
                fmt::format("{}:1: found '{}', expected a comment that tells the story in one "
                            "sentence",
                            path, line.substr(0, 60)));
  return std::string(line.substr(begin));
}

bool is_kebab(std::string_view name) {
  if (name.empty() || name.front() == '-' || name.back() == '-') return false;
  if (name.find("--") != std::string_view::npos) return false;
  return name.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

/// A letter that names a list, and a number in it.
bool is_cover(std::string_view cover) {
  const auto digits = cover.substr(std::min<std::size_t>(1, cover.size()));
  return !cover.empty() && std::string_view("IBGKDE").find(cover[0]) != std::string_view::npos &&
         digits.size() >= 2 && digits.size() <= 3 &&
         digits.find_first_not_of("0123456789") == std::string_view::npos;
}

result<void> check_head(const scenario_reading& reading) {
  const auto& in = reading.in;
  const auto at = reading.place("name");
  const auto stem = std::filesystem::path(reading.out.path).stem().string();
  if (!is_kebab(in.name()))
    return reading.wrong(at, "name: found '{}', expected words of a-z and 0-9 joined by '-'",
                         in.name());
  if (in.name() != stem)
    return reading.wrong(at, "name: found '{}', expected that of the file, '{}'", in.name(), stem);
  for (const auto& cover : in.covers())
    if (!is_cover(cover))
      return reading.wrong(reading.place("covers"),
                           "covers: found '{}', expected one of I, B, G, K, D, E and a number of "
                           "two or three digits",
                           cover);
  return {};
}

/// Most ranks and drafts of any case.
std::int32_t most(const scenario& of, std::int32_t base,
                  std::optional<std::int32_t> case_settings::*field) {
  for (const auto& axis : of.axes)
    for (const auto& value : axis.values) base = std::max(base, (value.*field).value_or(base));
  return base;
}

result<void> check_drafts(const scenario_reading& reading) {
  const auto& out = reading.out;
  if (most(out, out.engine.num_drafts, &case_settings::num_drafts) <= 0) return {};
  const bool is_axis = std::any_of(out.axes.begin(), out.axes.end(),
                                   [](const auto& axis) { return axis.key == "accept"; });
  if (is_axis || !out.model.accept.empty()) return {};
  for (const auto& request : out.requests)
    if (request.accept.empty())
      return reading.wrong(reading.place("engine.num_drafts"),
                           "model.accept: found nothing, expected the drafts that are accepted, "
                           "because engine.num_drafts is above 0 and '{}' has none of its own",
                           request.id);
  return {};
}

result<void> check_experts(const scenario_reading& reading) {
  if (!reading.out.model.experts) return {};
  const auto& experts = *reading.out.model.experts;
  const auto at = reading.place("model.experts.picks");
  if (experts.layers < 1 || experts.experts < 1 || experts.top_k < 1 || experts.picks.empty())
    return reading.wrong(reading.place("model.experts.layers"),
                         "model.experts: expected layers, experts, top_k and picks");
  for (const auto& pick : experts.picks) {
    if (static_cast<std::int32_t>(pick.size()) != experts.top_k)
      return reading.wrong(at, "model.experts.picks: found {} experts, expected top_k = {}",
                           pick.size(), experts.top_k);
    for (const auto expert : pick)
      if (expert >= experts.experts)
        return reading.wrong(at, "model.experts.picks: found expert {}, expected 0 to {}", expert,
                             experts.experts - 1);
  }
  return {};
}

void read_top(scenario_reading& reading) {
  const auto& in = reading.in;
  auto& out = reading.out;
  out.name = in.name();
  out.covers.assign(in.covers().begin(), in.covers().end());
  for (const auto need : in.needs())
    out.needs.push_back(plain_enum<scenario_feature>(static_cast<scenario_pb::Feature>(need)));
  if (in.has_seed()) out.seed = in.seed();
  if (in.has_limit()) out.limit_us = in.limit();
  out.engine = read_engine(in.engine());
  out.model = read_model(in.model());
  out.device = read_device(in.device());
  out.axes = read_axes(in.matrix());
  std::sort(out.axes.begin(), out.axes.end(), [&](const auto& a, const auto& b) {
    const auto place_of = [&](const matrix_axis& axis) {
      return line_and_column(reading.places.at("matrix." + axis.key));
    };
    return place_of(a) < place_of(b);
  });
  if (in.matrix().has_seeds()) out.seeds = in.matrix().seeds();
  if (in.matrix().has_interleavings()) out.interleavings = in.matrix().interleavings();
  for (const auto& shadow : in.same_tokens_as()) out.shadows.push_back(read_settings(shadow));
  reading.ranks_max = std::max(1, most(out, out.engine.ranks, &case_settings::ranks));
}

}  // namespace

std::string scenario_reading::place(const std::string& key) const {
  const auto found = places.find(key);
  if (found == places.end()) return out.path;
  return fmt::format("{}:{}", out.path, line_and_column(found->second).first);
}

result<std::int32_t> read_id(const scenario_reading& reading, const std::string& at,
                             const std::string& key, const std::string& id) {
  const auto found = reading.out.request_of(id);
  if (found >= 0) return found;
  std::vector<std::string> ids;
  for (const auto& request : reading.out.requests) ids.push_back(request.id);
  if (!is_legal_id(id))
    return reading.wrong(at, "{}: found '{}', expected an id such as a, long_one or a.2", key, id);
  return reading.wrong(at, "{}: no request has the id '{}'{}", key, id, did_you_mean(id, ids));
}

result<std::vector<std::int32_t>>
read_ids(const scenario_reading& reading, const std::string& at, const std::string& key,
         const google::protobuf::RepeatedPtrField<std::string>& ids) {
  std::vector<std::int32_t> out;
  for (const auto& id : ids) {
    if (!id.ends_with('*')) {
      DI_TRY(const auto request, read_id(reading, at, key, id));
      out.push_back(request);
      continue;
    }
    const auto before = out.size();
    for (std::size_t i = 0; i < reading.out.requests.size(); ++i)
      if (matches_id(id, reading.out.requests[i].id)) out.push_back(static_cast<std::int32_t>(i));
    if (out.size() == before)
      return reading.wrong(at, "{}: no request matches '{}', expected an id, x.* or *", key, id);
  }
  std::sort(out.begin(), out.end());
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

result<scenario> parse_scenario(std::string_view text, const std::string& path) {
  scenario out;
  out.path = path;
  DI_TRY(out.story, read_story(text, path));
  scenario_pb::Scenario in;
  yaml_places places;
  DI_TRY_VOID(yaml_to_proto(text, path, in, &places));
  scenario_reading reading{in, places, out};
  DI_TRY_VOID(check_head(reading));
  read_top(reading);
  DI_TRY_VOID(check_experts(reading));
  DI_TRY_VOID(read_script(reading));
  DI_TRY_VOID(check_drafts(reading));
  return out;
}

result<scenario> load_scenario(const std::string& path) {
  constexpr std::int64_t most_bytes = 16 << 20;
  DI_TRY(const auto text, read_small_file(path, most_bytes));
  return parse_scenario(text, path);
}

result<std::vector<std::string>> scenario_files(const std::string& path) {
  namespace fs = std::filesystem;
  std::error_code code;
  if (!fs::exists(path, code))
    return fail(errc::io_failed, fmt::format("{}: no such file or directory", path));
  if (!fs::is_directory(path, code)) return std::vector<std::string>{path};
  std::vector<std::string> out;
  for (auto it = fs::directory_iterator(path, code); !code && it != fs::directory_iterator();
       it.increment(code))
    if (it->path().extension() == ".yaml") out.push_back(it->path().string());
  if (code) return fail(errc::io_failed, fmt::format("{}: {}", path, code.message()));
  std::sort(out.begin(), out.end());
  return out;
}

}  // namespace deepinfer
