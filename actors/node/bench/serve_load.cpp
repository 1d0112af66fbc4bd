#include "actors/node/bench/serve_load.hpp"

#include <cmath>

#include <fmt/format.h>

#include "runtime/base/file.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {
namespace {

/// Numbers that follow from a seed and a name of what they are for.
class draws {
public:
  draws(std::uint64_t seed, std::uint64_t of) : seed_(split_mix64(seed ^ split_mix64(of))) {}

  double unit() { return unit_real(word()); }
  std::int32_t below(std::int32_t bound) {
    return static_cast<std::int32_t>(word() % static_cast<std::uint32_t>(bound));
  }

  /// Mean 0, variance 1: Box and Muller.
  double normal() {
    return std::sqrt(-2 * std::log(unit())) * std::cos(2 * 3.14159265358979323846 * unit());
  }

  /// Gamma of mean 1 with this shape. Source: Marsaglia and Tsang (2000), with their boost below 1.
  double gamma(double shape) {
    if (shape == 1) return -std::log(unit());
    if (shape < 1) return gamma_above(shape + 1) * std::pow(unit(), 1 / shape) / shape;
    return gamma_above(shape) / shape;
  }

private:
  std::uint32_t word() { return random_words(seed_, drawn_++, draw_purpose::target, 0)[0]; }

  double gamma_above(double shape) {
    const double d = shape - 1.0 / 3;
    const double c = 1 / std::sqrt(9 * d);
    while (true) {
      const double x = normal();
      const double v = std::pow(1 + c * x, 3);
      if (v > 0 && std::log(unit()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
    }
  }

  std::uint64_t seed_;
  std::uint32_t drawn_ = 0;
};

json::array random_ids_of(draws& from, std::int32_t count, std::int32_t vocab) {
  json::array out;
  for (std::int32_t i = 0; i < count; ++i)
    out.push_back(first_random_id + from.below(vocab - first_random_id));
  return out;
}

std::vector<serve_prompt> random_prompts(const serve_load_settings& it, std::int32_t prefix_len) {
  std::vector<serve_prompt> out;
  draws shared(it.seed, 0);
  const auto prefix = random_ids_of(shared, prefix_len, it.vocab_size);
  for (std::int32_t i = 0; i < it.requests; ++i) {
    draws own(it.seed, static_cast<std::uint64_t>(i) + 1);
    auto ids = prefix;
    for (auto& id : random_ids_of(own, it.input_len - prefix_len, it.vocab_size))
      ids.push_back(std::move(id));
    out.push_back({std::move(ids), nullptr, it.output_len});
  }
  return out;
}

tl::unexpected<error> bad(const std::string& where, std::string_view what) {
  return fail(errc::bad_config, fmt::format("{}: {}", where, what));
}

/// Who names a file that can't be read has made a mistake on the command line.
template <class T>
result<T> as_config(result<T> read) {
  if (read) return read;
  return bad("--dataset", read.error().message);
}

/// A line of a .jsonl file.
result<serve_prompt> read_line(std::string_view line, const std::string& where,
                               std::int32_t output_len) {
  DI_TRY(const auto read, parse_json(line), where);
  const auto* object = read.if_object();
  if (!object) return bad(where, "expected an object");
  serve_prompt out;
  out.output_len = output_len;
  if (const auto* length = object->if_contains("output_len")) {
    if (!length->is_int64() || length->as_int64() < 1 || length->as_int64() > 1 << 20)
      return bad(where, "output_len: expected a whole number from 1 up");
    out.output_len = static_cast<std::int32_t>(length->as_int64());
  }
  if (const auto* prompt = object->if_contains("prompt")) out.prompt = *prompt;
  if (const auto* messages = object->if_contains("messages")) out.messages = *messages;
  if (out.prompt.is_null() == out.messages.is_null())
    return bad(where, "expected one of prompt and messages");
  return out;
}

result<std::vector<serve_prompt>> read_lines(const serve_load_settings& it) {
  DI_TRY(const auto text, as_config(read_file(it.dataset)));
  std::vector<serve_prompt> out;
  std::size_t number = 0;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    ++number;
    const auto line = std::string_view(text).substr(begin, end - begin);
    begin = end + 1;
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    DI_TRY(auto prompt, read_line(line, fmt::format("{}:{}", it.dataset, number), it.output_len));
    out.push_back(std::move(prompt));
  }
  return out;
}

/// {"conversations": [{"value": prompt}, {"value": answer}, ...]} each; an answer's length in
/// tokens is taken as a quarter of its bytes.
result<std::vector<serve_prompt>> read_sharegpt(const serve_load_settings& it) {
  DI_TRY(const auto read, as_config(read_json_file(it.dataset)));
  const auto* list = read.if_array();
  if (!list) return bad(it.dataset, "expected an array of conversations, or lines of a .jsonl");
  std::vector<serve_prompt> out;
  for (const auto& entry : *list) {
    const auto* object = entry.if_object();
    const auto* turns = object ? object->if_contains("conversations") : nullptr;
    if (!turns || !turns->is_array() || turns->as_array().size() < 2) continue;
    const auto value = [&](std::size_t i) -> const json::string* {
      const auto* turn = turns->as_array()[i].if_object();
      const auto* text = turn ? turn->if_contains("value") : nullptr;
      return text ? text->if_string() : nullptr;
    };
    const auto* prompt = value(0);
    const auto* answer = value(1);
    if (!prompt || !answer || prompt->empty() || answer->size() < 4) continue;
    out.push_back({*prompt, nullptr, static_cast<std::int32_t>(answer->size() / 4)});
  }
  if (out.empty()) return bad(it.dataset, "found no conversation of two turns");
  return out;
}

}  // namespace

result<std::vector<serve_prompt>> make_prompts(const serve_load_settings& it) {
  if (it.vocab_size <= first_random_id)
    return fail(errc::bad_config, fmt::format("--vocab-size: found {}, expected more than {}",
                                              it.vocab_size, first_random_id));
  if (it.dataset == "random") return random_prompts(it, 0);
  if (it.dataset == "prefix-repeat") {
    if (it.prefix_len >= it.input_len)
      return fail(errc::bad_config, fmt::format("--prefix-len: found {}, expected less than "
                                                "--input-len, {}",
                                                it.prefix_len, it.input_len));
    return random_prompts(it, it.prefix_len);
  }
  DI_TRY(auto all, it.dataset.ends_with(".jsonl") ? read_lines(it) : read_sharegpt(it));
  if (all.empty()) return bad(it.dataset, "found no request");
  std::vector<serve_prompt> out;
  for (std::int32_t i = 0; i < it.requests; ++i)
    out.push_back(all[static_cast<std::size_t>(i) % all.size()]);
  return out;
}

std::vector<std::int64_t> arrival_times(const serve_load_settings& it) {
  std::vector<std::int64_t> out;
  draws gaps(it.seed, ~std::uint64_t{0});
  double seconds = 0;
  for (std::int32_t i = 0; i < it.requests; ++i) {
    out.push_back(static_cast<std::int64_t>(seconds * 1e9));
    if (it.rate > 0) seconds += gaps.gamma(it.burstiness) / it.rate;
  }
  return out;
}

}  // namespace deepinfer
