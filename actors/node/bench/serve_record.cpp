#include "actors/node/bench/serve_record.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>

#include <fmt/format.h>

namespace deepinfer {
namespace {

std::int32_t count_in(const json::object& it, std::string_view key) {
  const auto* found = it.if_contains(key);
  return found && found->is_int64() ? static_cast<std::int32_t>(found->as_int64()) : 0;
}

bool has_text(const json::object& it, std::string_view key) {
  const auto* found = it.if_contains(key);
  return found && found->is_string() && !found->as_string().empty();
}

/// Whether a choice of an event brings something to read.
bool has_content(const json::value& choice) {
  const auto* object = choice.if_object();
  if (!object) return false;
  if (has_text(*object, "text")) return true;
  const auto* delta = object->if_contains("delta");
  if (!delta || !delta->is_object()) return false;
  const auto& it = delta->as_object();
  const auto* calls = it.if_contains("tool_calls");
  return has_text(it, "content") || has_text(it, "reasoning_content") ||
         (calls && calls->is_array() && !calls->as_array().empty());
}

std::string message_in(const json::object& error) {
  const auto* message = error.if_contains("message");
  return message && message->is_string() ? std::string(message->as_string()) : std::string();
}

std::string code_in(const json::object& error) {
  const auto* code = error.if_contains("code");
  return code && code->is_string() ? std::string(code->as_string()) : "error";
}

double ms(std::int64_t ns) {
  return static_cast<double>(ns) / 1e6;
}

}  // namespace

void serve_record::take_usage(const json::object& usage) {
  has_usage = true;
  prompt_tokens = count_in(usage, "prompt_tokens");
  output_tokens = count_in(usage, "completion_tokens");
  const auto* details = usage.if_contains("prompt_tokens_details");
  if (details && details->is_object())
    cached_tokens = count_in(details->as_object(), "cached_tokens");
}

void serve_record::take_event(std::string_view data, std::int64_t now_ns) {
  if (data == "[DONE]") return;
  const auto read = parse_json(data);
  const auto* object = read ? read->if_object() : nullptr;
  if (!object) {
    failure = "bad_event";
    return;
  }
  if (const auto* error = object->if_contains("error"); error && error->is_object())
    failure = code_in(error->as_object());
  if (const auto* usage = object->if_contains("usage"); usage && usage->is_object())
    take_usage(usage->as_object());
  const auto* choices = object->if_contains("choices");
  if (!choices || !choices->is_array()) return;
  const auto& list = choices->as_array();
  if (std::none_of(list.begin(), list.end(), has_content)) return;
  if (first_ns < 0)
    first_ns = now_ns;
  else
    gaps_ns.push_back(now_ns - last_ns);
  last_ns = now_ns;
}

void serve_record::take_body(std::string_view body, std::int64_t now_ns) {
  const auto read = parse_json(body);
  const auto* object = read ? read->if_object() : nullptr;
  if (!object) {
    failure = "bad_body";
    return;
  }
  if (const auto* usage = object->if_contains("usage"); usage && usage->is_object())
    take_usage(usage->as_object());
  first_ns = last_ns = now_ns;
}

void serve_record::end(const result<int>& status, std::string_view body, std::int64_t now_ns) {
  end_ns = now_ns;
  if (!status) {
    failure = name_of(status.error().code);
    failure_text = status.error().message;
    return;
  }
  if (*status == 200) return;
  const auto read = parse_json(body);
  const auto* object = read ? read->if_object() : nullptr;
  const auto* error = object ? object->if_contains("error") : nullptr;
  const bool is_told = error && error->is_object();
  failure = is_told ? code_in(error->as_object()) : fmt::format("http_{}", *status);
  failure_text = is_told ? message_in(error->as_object()) : std::string(body.substr(0, 200));
}

result<goodput_bounds> parse_goodput(std::string_view text) {
  goodput_bounds out;
  const auto wrong = [text] {
    return fail(errc::bad_config, fmt::format("--goodput: found '{}', expected such as "
                                              "ttft:500ms,itl:50ms of ttft, tpot, itl, e2el",
                                              text));
  };
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    const auto item = text.substr(begin, end - begin);
    begin = end + 1;
    const auto colon = item.find(':');
    if (colon == std::string_view::npos) return wrong();
    const auto name = item.substr(0, colon);
    auto number = item.substr(colon + 1);
    double factor = 1;
    if (number.ends_with("ms")) {
      number.remove_suffix(2);
    } else if (number.ends_with("s")) {
      number.remove_suffix(1);
      factor = 1000;
    }
    double value = 0;
    const auto read = std::from_chars(number.data(), number.data() + number.size(), value);
    if (read.ec != std::errc{} || read.ptr != number.data() + number.size() || !(value > 0))
      return wrong();
    value *= factor;
    if (name == "ttft")
      out.ttft_ms = value;
    else if (name == "tpot")
      out.tpot_ms = value;
    else if (name == "itl")
      out.itl_ms = value;
    else if (name == "e2el")
      out.e2el_ms = value;
    else
      return wrong();
  }
  return out;
}

latency_summary latency_of(std::vector<double> values) {
  latency_summary out;
  out.count = values.size();
  if (values.empty()) return out;
  std::sort(values.begin(), values.end());
  for (const auto value : values) out.mean += value;
  out.mean /= static_cast<double>(values.size());
  for (const auto value : values) out.deviation += (value - out.mean) * (value - out.mean);
  out.deviation = std::sqrt(out.deviation / static_cast<double>(values.size()));
  // Linear between neighbours, as numpy's.
  const auto at = [&values](double share) {
    const double place = share * static_cast<double>(values.size() - 1);
    const auto low = static_cast<std::size_t>(place);
    const auto high = std::min(low + 1, values.size() - 1);
    return values[low] + (place - static_cast<double>(low)) * (values[high] - values[low]);
  };
  out.median = at(0.5);
  out.p90 = at(0.9);
  out.p99 = at(0.99);
  return out;
}

serve_report report_of(const std::vector<serve_record>& records, const goodput_bounds& bounds) {
  serve_report out;
  std::vector<double> ttft, tpot, itl, e2el;
  std::int64_t begin = 0, end = 0;
  std::int64_t events = 0, in_events = 0;
  for (const auto& it : records) {
    if (begin == 0 || it.sent_ns < begin) begin = it.sent_ns;
    end = std::max(end, it.end_ns);
    if (!it.failure.empty()) {
      ++out.failures[it.failure];
      continue;
    }
    ++out.completed;
    out.input_tokens += it.prompt_tokens;
    out.output_tokens += it.output_tokens;
    out.cached_tokens += it.cached_tokens;
    const double whole = ms(it.end_ns - it.sent_ns);
    e2el.push_back(whole);
    bool is_good = !bounds.e2el_ms || whole <= *bounds.e2el_ms;
    if (it.first_ns < 0) continue;
    ttft.push_back(ms(it.first_ns - it.sent_ns));
    is_good = is_good && (!bounds.ttft_ms || ttft.back() <= *bounds.ttft_ms);
    if (it.output_tokens > 1) {
      tpot.push_back(ms(it.last_ns - it.first_ns) / (it.output_tokens - 1));
      is_good = is_good && (!bounds.tpot_ms || tpot.back() <= *bounds.tpot_ms);
    }
    for (const auto gap : it.gaps_ns) {
      itl.push_back(ms(gap));
      is_good = is_good && (!bounds.itl_ms || itl.back() <= *bounds.itl_ms);
    }
    events += static_cast<std::int64_t>(it.gaps_ns.size()) + 1;
    in_events += it.output_tokens;
    out.good += is_good ? 1 : 0;
  }
  out.seconds = static_cast<double>(end - begin) / 1e9;
  out.tokens_per_event =
    events > 0 ? static_cast<double>(in_events) / static_cast<double>(events) : 0;
  out.ttft = latency_of(std::move(ttft));
  out.tpot = latency_of(std::move(tpot));
  out.itl = latency_of(std::move(itl));
  out.e2el = latency_of(std::move(e2el));
  return out;
}

json::object report_object(const serve_report& it) {
  const double seconds = std::max(it.seconds, 1e-9);
  std::int32_t failed = 0;
  json::object failures;
  for (const auto& [code, count] : it.failures) {
    failed += count;
    failures[code] = count;
  }
  const auto rate = [seconds](auto count) { return static_cast<double>(count) / seconds; };
  json::object out{{"duration", it.seconds},
                   {"completed", it.completed},
                   {"failed", failed},
                   {"failures", std::move(failures)},
                   {"total_input_tokens", it.input_tokens},
                   {"total_output_tokens", it.output_tokens},
                   {"total_cached_tokens", it.cached_tokens},
                   {"request_throughput", rate(it.completed)},
                   {"request_goodput", rate(it.good)},
                   {"output_throughput", rate(it.output_tokens)},
                   {"total_token_throughput", rate(it.input_tokens + it.output_tokens)},
                   {"tokens_per_event", it.tokens_per_event}};
  const auto add = [&out](const char* name, const latency_summary& of) {
    out[fmt::format("mean_{}_ms", name)] = of.mean;
    out[fmt::format("median_{}_ms", name)] = of.median;
    out[fmt::format("std_{}_ms", name)] = of.deviation;
    out[fmt::format("p90_{}_ms", name)] = of.p90;
    out[fmt::format("p99_{}_ms", name)] = of.p99;
  };
  add("ttft", it.ttft);
  add("tpot", it.tpot);
  add("itl", it.itl);
  add("e2el", it.e2el);
  return out;
}

std::string report_text(const serve_report& it) {
  const double seconds = std::max(it.seconds, 1e-9);
  const auto rate = [seconds](auto count) { return static_cast<double>(count) / seconds; };
  std::string failures;
  for (const auto& [code, count] : it.failures) failures += fmt::format(", {} {}", count, code);
  auto out =
    fmt::format("requests    {} completed{}, {:.2f} s\n"
                "throughput  {:.2f} requests/s ({:.2f} good), {:.1f} tokens/s out, {:.1f} in\n"
                "cached      {:.1f} % of prompt tokens\n\n"
                "{:<22}{:>10}{:>10}{:>10}{:>10}\n",
                it.completed, failures, it.seconds, rate(it.completed), rate(it.good),
                rate(it.output_tokens), rate(it.input_tokens),
                it.input_tokens > 0 ? 100.0 * static_cast<double>(it.cached_tokens) /
                                        static_cast<double>(it.input_tokens)
                                    : 0.0,
                "milliseconds", "mean", "median", "p90", "p99");
  const auto line = [&out](const char* what, const latency_summary& of) {
    out += fmt::format("{:<22}{:>10.2f}{:>10.2f}{:>10.2f}{:>10.2f}\n", what, of.mean, of.median,
                       of.p90, of.p99);
  };
  line("time to first token", it.ttft);
  line("time per output token", it.tpot);
  line("inter-token latency", it.itl);
  line("whole request", it.e2el);
  if (it.tokens_per_event > 1.05)
    out += fmt::format("\nAn event brings {:.2f} tokens in the mean: inter-token latencies are "
                       "between events.\n",
                       it.tokens_per_event);
  return out;
}

std::optional<double> metric_in(std::string_view text, std::string_view name,
                                std::string_view label) {
  std::optional<double> out;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    const auto line = text.substr(begin, end - begin);
    begin = end + 1;
    if (line.empty() || line.front() == '#') continue;
    const auto stop = line.find_first_of("{ ");
    if (stop == std::string_view::npos) continue;
    const auto whole = line.substr(0, stop);
    if (!whole.ends_with(name)) continue;
    const auto before = whole.size() - name.size();
    if (before > 0 && whole[before - 1] != ':' && whole[before - 1] != '_') continue;
    const auto space = line.rfind(' ');
    if (line.substr(0, space).find(label) == std::string_view::npos) continue;
    out = out.value_or(0) + std::strtod(std::string(line.substr(space + 1)).c_str(), nullptr);
  }
  return out;
}

}  // namespace deepinfer
