#include "runtime/http/openai_sampling.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/positive_float.hpp"
#include "runtime/base/quoted.hpp"

namespace deepinfer {
namespace {

constexpr std::size_t most_stops = 16;
constexpr std::size_t most_stop_ids = 256;
constexpr std::size_t most_biases = 4096;
constexpr std::int64_t most_whole = std::numeric_limits<std::int32_t>::max();

std::optional<float> as_float(const std::optional<double>& value) {
  if (!value) return std::nullopt;
  return static_cast<float>(*value);
}

result<void> read_shape(json_fields& body, sampling_request& s) {
  DI_TRY(const auto temperature, body.number("temperature", 0.0, 2.0));
  s.temperature = as_float(temperature);
  DI_TRY(const auto top_p, body.positive("top_p", 1.0));
  if (top_p) s.top_p = positive_float(*top_p);
  DI_TRY(const auto top_k, body.integer("top_k", -1, most_whole));
  if (top_k) s.top_k = static_cast<std::int32_t>(std::max<std::int64_t>(*top_k, 0));
  DI_TRY(const auto min_p, body.number("min_p", 0.0, 1.0));
  s.min_p = as_float(min_p);
  DI_TRY(const auto presence, body.number("presence_penalty", -2.0, 2.0));
  s.presence_penalty = as_float(presence);
  DI_TRY(const auto frequency, body.number("frequency_penalty", -2.0, 2.0));
  s.frequency_penalty = as_float(frequency);
  DI_TRY(const auto repetition, body.number("repetition_penalty", 0.01, 10.0));
  s.repetition_penalty = as_float(repetition);
  DI_TRY(const auto seed, body.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  if (seed) s.seed = static_cast<std::uint64_t>(*seed);
  return {};
}

result<void> read_stops(json_fields& body, sampling_request& s) {
  const auto* stop = body.find("stop");
  if (stop && stop->is_string()) {
    s.stop = {std::string(stop->get_string())};
  } else if (stop && !stop->is_array()) {
    return body.wrong("stop", *stop, "a string or a list of strings");
  } else {
    DI_TRY(s.stop, body.texts("stop", most_stops));
  }
  for (const auto& text : s.stop)
    if (text.empty()) return body.failure("stop", "found an empty string, which stops nothing");
  DI_TRY(s.stop_token_ids, body.ids("stop_token_ids", most_stop_ids));
  return {};
}

result<void> read_bias(json_fields& body, sampling_request& s) {
  DI_TRY(auto map, body.object("logit_bias"));
  if (!map) return {};
  if (map->entries().size() > most_biases)
    return body.failure("logit_bias", fmt::format("found {} entries, expected at most {}",
                                                  map->entries().size(), most_biases));
  for (const auto& [key, value] : map->entries()) {
    const auto id = token_id_of(key);
    if (!id)
      return body.failure("logit_bias",
                          fmt::format("found the key {}, expected a token id", quoted(key)));
    DI_TRY(const auto bias, map->number(key, -100.0, 100.0));
    if (bias) s.logit_bias.emplace_back(*id, static_cast<float>(*bias));
  }
  return {};
}

}  // namespace

result<void> read_sampling(json_fields& body, sampling_request& sampling) {
  DI_TRY_VOID(read_shape(body, sampling));
  DI_TRY_VOID(read_stops(body, sampling));
  DI_TRY_VOID(read_bias(body, sampling));
  DI_TRY(sampling.ignore_eos, body.flag("ignore_eos", false));
  DI_TRY(sampling.include_stop, body.flag("include_stop_str_in_output", false));
  DI_TRY(sampling.skip_special_tokens, body.flag("skip_special_tokens", true));
  return {};
}

result<std::vector<named_length>> read_lengths(json_fields& body, sampling_request& sampling) {
  std::vector<named_length> given;
  const auto read = [&](const char* name, std::int64_t least) -> result<void> {
    DI_TRY(const auto tokens, body.whole(name, least));
    if (tokens) given.push_back({name, *tokens});
    return {};
  };
  // The newer name wins.
  DI_TRY_VOID(read("max_tokens", 1));
  DI_TRY_VOID(read("max_completion_tokens", 1));
  const auto most = given.empty() ? std::nullopt : std::optional(given.back().tokens);
  if (most) sampling.max_tokens = static_cast<std::int32_t>(std::min(*most, most_whole));
  DI_TRY(const auto least, body.whole("min_tokens", 0));
  if (!least) return given;
  given.push_back({"min_tokens", *least});
  sampling.min_tokens = static_cast<std::int32_t>(std::min(*least, most_whole));
  if (most && *least > *most)
    return body.failure("min_tokens",
                        fmt::format("found {}, expected at most max_tokens = {}", *least, *most));
  return given;
}

result<void> read_response_format(json_fields& body, sampling_request& sampling) {
  DI_TRY(auto format, body.object("response_format"));
  if (!format) return {};
  DI_TRY(const auto type, format->text("type"));
  if (!type) return format->failure("type", "is missing");
  if (*type == "text") return {};
  if (*type == "json_schema" || *type == "regex")
    return format->failure("type",
                           fmt::format("{} is not supported yet, json_object and text are", *type));
  if (*type != "json_object")
    return format->failure("type",
                           fmt::format("found {}, expected json_object or text", quoted(*type)));
  if (sampling.min_tokens > 0)
    return body.failure("min_tokens", "with json_object the answer ends where its JSON does");
  sampling.grammar = "json_object";
  return {};
}

}  // namespace deepinfer
