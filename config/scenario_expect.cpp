#include <algorithm>
#include <charconv>
#include <map>

#include <fmt/ranges.h>

#include "config/nearest.hpp"
#include "config/scenario_names.hpp"
#include "config/scenario_read.hpp"
#include "config/units.hpp"

namespace deepinfer {

namespace {

namespace pb = google::protobuf;
using names = std::vector<std::string>;

/// Fields that may stand beside each form; at, after, for and rank may beside all.
const std::map<std::string, names>& fields_by_form() {
  static const std::map<std::string, names> table{
    {"request",
     {"finish", "tokens", "tokens_min", "tokens_max", "ids", "within", "first_token_within",
      "cached_min", "cached_max", "reasoning_tokens", "code"}},
    {"metric", {"value", "min", "max"}},
    {"count", {"value", "min", "max", "of", "kind", "from", "to"}},
    {"never", {}},
    {"step", {"kind", "rows", "row_count", "width", "bucket"}},
    {"order", {}},
    {"decisions", {"from"}},
    {"equal", {"what"}},
    {"start", {"field"}},
  };
  return table;
}

result<std::string> form_of(const scenario_reading& reading, const std::string& at,
                            const scenario_pb::Expect& in) {
  std::vector<const pb::FieldDescriptor*> set;
  in.GetReflection()->ListFields(in, &set);
  names forms, all_forms;
  for (const auto& [form, fields] : fields_by_form()) all_forms.push_back(form);
  for (const auto* field : set)
    if (fields_by_form().contains(field->name())) forms.push_back(field->name());
  if (forms.empty())
    return reading.wrong(at, "expect: found no form, expected one of {}",
                         fmt::join(all_forms, ", "));
  if (forms.size() > 1)
    return reading.wrong(at, "expect: found the forms {}, expected exactly one",
                         fmt::join(forms, " and "));
  auto allowed = fields_by_form().at(forms[0]);
  allowed.insert(allowed.end(), {"at", "after", "for", "rank", forms[0]});
  for (const auto* field : set)
    if (std::find(allowed.begin(), allowed.end(), field->name()) == allowed.end())
      return reading.wrong(at, "expect: '{}' says nothing about a {}", field->name(), forms[0]);
  return forms[0];
}

result<std::int64_t> read_number(const scenario_reading& reading, const std::string& at,
                                 const char* key, const std::string& text, bool is_time) {
  std::int64_t value = 0;
  if (is_time) {
    const auto parsed = parse_microseconds(text);
    if (!parsed) return reading.wrong(at, "{}: {}", key, parsed.error().message);
    return *parsed;
  }
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || code != std::errc() || end != text.data() + text.size())
    return reading.wrong(at, "{}: found '{}', expected a whole number", key, text);
  return value;
}

result<scenario_bounds> read_bounds(const scenario_reading& reading, const std::string& at,
                                    const scenario_pb::Expect& in, bool is_time) {
  scenario_bounds out;
  out.is_time = is_time;
  if (in.has_value() == (in.has_min() || in.has_max()))
    return reading.wrong(at, "expect: expected either value, or min, max or both");
  if (in.has_value()) {
    DI_TRY(out.min, read_number(reading, at, "value", in.value(), is_time));
    out.max = out.min;
  }
  if (in.has_min()) {
    DI_TRY(out.min, read_number(reading, at, "min", in.min(), is_time));
  }
  if (in.has_max()) {
    DI_TRY(out.max, read_number(reading, at, "max", in.max(), is_time));
  }
  if (out.min && out.max && *out.min > *out.max)
    return reading.wrong(at, "expect: min {} is above max {}", *out.min, *out.max);
  return out;
}

result<void> check_name(const scenario_reading& reading, const std::string& at, const char* what,
                        const std::string& name, std::span<const std::string> known) {
  if (std::find(known.begin(), known.end(), name) != known.end()) return {};
  return reading.wrong(at, "unknown {} '{}'{}", what, name, did_you_mean(name, known));
}

result<scenario_form> read_request_form(const scenario_reading& reading, const std::string& at,
                                        const scenario_pb::Expect& in) {
  request_form out;
  DI_TRY(out.requests, read_ids(reading, at, "request", in.request()));
  for (const auto finish : in.finish())
    out.finish.push_back(static_cast<scenario_finish>(finish));  // none stands for an absent one
  if (in.has_tokens() && (in.has_tokens_min() || in.has_tokens_max()))
    return reading.wrong(at, "expect: expected either tokens, or tokens_min, tokens_max or both");
  if (in.has_tokens()) out.tokens.min = out.tokens.max = in.tokens();
  if (in.has_tokens_min()) out.tokens.min = in.tokens_min();
  if (in.has_tokens_max()) out.tokens.max = in.tokens_max();
  if (in.has_ids()) out.ids.emplace(in.ids().ids().begin(), in.ids().ids().end());
  if (in.has_within()) out.within_us = in.within();
  if (in.has_first_token_within()) out.first_token_within_us = in.first_token_within();
  if (in.has_cached_min()) out.cached.min = in.cached_min();
  if (in.has_cached_max()) out.cached.max = in.cached_max();
  if (in.has_reasoning_tokens()) out.reasoning_tokens = in.reasoning_tokens();
  out.code = in.code();
  names codes;
  for (int code = 1; code <= static_cast<int>(errc::deadline_exceeded); ++code)
    codes.emplace_back(name_of(static_cast<errc>(code)));
  if (!out.code.empty()) DI_TRY_VOID(check_name(reading, at, "code", out.code, codes));
  return scenario_form{std::move(out)};
}

result<scenario_form> read_count_form(const scenario_reading& reading, const std::string& at,
                                      const scenario_pb::Expect& in) {
  count_form out;
  out.count = in.count();
  DI_TRY_VOID(check_name(reading, at, "count", out.count, scenario_counts()));
  if (!in.of().empty()) {
    DI_TRY(out.of, read_ids(reading, at, "of", in.of()));
  }
  if (in.has_kind()) out.kind = plain_step_kind(in.kind());
  if (in.has_from()) {
    DI_TRY(out.from_us, read_number(reading, at, "from", in.from(), true));
  }
  if (in.has_to()) {
    DI_TRY(out.to_us, read_number(reading, at, "to", in.to(), true));
  }
  DI_TRY(out.bounds, read_bounds(reading, at, in, false));
  return scenario_form{std::move(out)};
}

/// "launched_after" and "token_after".
result<scenario_form> read_after_property(const scenario_reading& reading, const std::string& at,
                                          std::string name, const scenario_pb::RequestEvent& in) {
  never_form out;
  out.name = std::move(name);
  DI_TRY(const auto request, read_id(reading, at, out.name, in.request()));
  out.requests = {request};
  auto event = parse_event(in.event(), reading.out, reading.ranks_max);
  if (!event) return reading.wrong(at, "{}: {}", out.name, event.error().message);
  out.event = *event;
  return scenario_form{std::move(out)};
}

result<scenario_form> read_never_form(const scenario_reading& reading, const std::string& at,
                                      const scenario_pb::Property& in) {
  never_form out;
  std::vector<const pb::FieldDescriptor*> set;
  in.GetReflection()->ListFields(in, &set);
  if (set.size() != 1)
    return reading.wrong(at, "never: found {} properties, expected one", set.size());
  out.name = set[0]->name();
  if (in.has_launched_after())
    return read_after_property(reading, at, out.name, in.launched_after());
  if (in.has_token_after()) return read_after_property(reading, at, out.name, in.token_after());
  if (!in.name().empty()) {
    out.name = in.name();
    DI_TRY_VOID(check_name(reading, at, "property", out.name, scenario_properties()));
  } else if (!in.preempted().empty()) {
    DI_TRY(out.requests, read_ids(reading, at, out.name, in.preempted()));
  } else {
    DI_TRY(out.requests, read_ids(reading, at, out.name, in.block_shared_by()));
    if (out.requests.size() < 2)
      return reading.wrong(at, "block_shared_by: expected two or more requests");
  }
  return scenario_form{std::move(out)};
}

result<scenario_form> read_step_form(const scenario_reading& reading, const std::string& at,
                                     const scenario_pb::Expect& in) {
  step_form out;
  out.step = in.step();
  if (in.has_kind()) out.kind = plain_step_kind(in.kind());
  for (const auto& [id, width] : in.rows()) {
    DI_TRY(const auto request, read_id(reading, at, "rows", id));
    out.rows[request] = width;
  }
  if (in.has_row_count()) out.row_count = in.row_count();
  if (in.has_width()) out.width = in.width();
  if (in.has_bucket()) out.bucket = in.bucket();
  return scenario_form{std::move(out)};
}

result<scenario_form> read_order_form(const scenario_reading& reading, const std::string& at,
                                      const scenario_pb::Expect& in) {
  order_form out;
  if (in.order_size() < 2) return reading.wrong(at, "order: expected two or more events");
  for (const auto& name : in.order()) {
    auto event = parse_event(name, reading.out, reading.ranks_max);
    if (!event) return reading.wrong(at, "order: {}", event.error().message);
    out.events.push_back(*event);
    out.names.push_back(name);
  }
  return scenario_form{std::move(out)};
}

result<scenario_form> read_equal_form(const scenario_reading& reading, const std::string& at,
                                      const scenario_pb::Expect& in) {
  equal_form out;
  if (in.equal_size() < 2) return reading.wrong(at, "equal: expected two or more of a kind");
  if (in.has_what()) out.what = plain_enum<scenario_equal>(in.what());
  if (out.what == scenario_equal::tokens || out.what == scenario_equal::logprobs) {
    DI_TRY(out.of, read_ids(reading, at, "equal", in.equal()));
    return scenario_form{std::move(out)};
  }
  for (const auto& word : in.equal()) {
    const auto* begin = word.data() + (word.starts_with("rank") ? 4 : word.size());
    std::int32_t rank = -1;
    const auto [end, code] = std::from_chars(begin, word.data() + word.size(), rank);
    if (code != std::errc() || end != word.data() + word.size() || rank < 0 ||
        rank >= reading.ranks_max)
      return reading.wrong(at, "equal: found '{}', expected rank0 to rank{}", word,
                           reading.ranks_max - 1);
    out.of.push_back(rank);
  }
  return scenario_form{std::move(out)};
}

result<scenario_form> read_form(const scenario_reading& reading, const std::string& at,
                                const scenario_pb::Expect& in, const std::string& form) {
  if (form == "request") return read_request_form(reading, at, in);
  if (form == "count") return read_count_form(reading, at, in);
  if (form == "never") return read_never_form(reading, at, in.never());
  if (form == "step") return read_step_form(reading, at, in);
  if (form == "order") return read_order_form(reading, at, in);
  if (form == "equal") return read_equal_form(reading, at, in);
  if (form == "metric") {
    metric_form out;
    out.metric = in.metric();
    DI_TRY_VOID(check_name(reading, at, "metric", out.metric, scenario_metrics()));
    DI_TRY(out.bounds, read_bounds(reading, at, in, is_time_metric(out.metric)));
    return scenario_form{std::move(out)};
  }
  if (form == "decisions") {
    decisions_form out;
    for (const auto kind : in.decisions())
      out.kinds.push_back(plain_step_kind(static_cast<scenario_pb::Kind>(kind)));
    if (in.has_from()) {
      DI_TRY(out.from, read_number(reading, at, "from", in.from(), false));
    }
    if (out.from < 1) return reading.wrong(at, "from: found {}, expected a step from 1", out.from);
    return scenario_form{std::move(out)};
  }
  if (in.field().empty()) return reading.wrong(at, "start: expected the field that is refused");
  return scenario_form{refused_form{in.field()}};
}

/// Values of `for` must be some of the matrix: others would never be looked at.
result<void> check_only_for(const scenario_reading& reading, const std::string& at,
                            const scenario_pb::Overrides& in) {
  std::vector<const pb::FieldDescriptor*> set;
  in.GetReflection()->ListFields(in, &set);
  for (const auto* field : set) {
    scenario_pb::Overrides one;
    one.CopyFrom(in);
    std::vector<const pb::FieldDescriptor*> others;
    one.GetReflection()->ListFields(one, &others);
    for (const auto* other : others)
      if (other != field) one.GetReflection()->ClearField(&one, other);
    bool is_there = false;
    for (const auto& axis : reading.out.axes)
      for (const auto& value : axis.values) is_there |= value == read_settings(one);
    if (!is_there)
      return reading.wrong(at, "for: the matrix has no case with this {}", field->name());
  }
  return {};
}

}  // namespace

result<scenario_expectation> read_expectation(const scenario_reading& reading,
                                              const std::string& at,
                                              const scenario_pb::Expect& in) {
  scenario_expectation out;
  out.place = at;
  DI_TRY(const auto form, form_of(reading, at, in));
  DI_TRY_VOID(check_only_for(reading, at, in.for_()));
  out.only_for = read_settings(in.for_());
  if (in.has_rank()) out.rank = in.rank();
  if (out.rank && *out.rank >= reading.ranks_max)
    return reading.wrong(at, "rank: found {}, expected 0 to {}", *out.rank, reading.ranks_max - 1);
  DI_TRY(out.form, read_form(reading, at, in, form));
  return out;
}

}  // namespace deepinfer
