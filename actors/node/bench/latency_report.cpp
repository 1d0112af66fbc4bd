#include <fmt/format.h>

#include "actors/node/bench/latency_bench.hpp"

namespace deepinfer {
namespace {

double ms(const sample_list& it) {
  return 1e3 * it.median();
}

std::string line(std::string_view what, std::string_view value, std::string_view note = "") {
  return fmt::format("{:<38} {:>10}{}{}\n", what, value, note.empty() ? "" : "  ", note);
}

std::string milliseconds(const sample_list& it) {
  return fmt::format("{:.3f} ms", ms(it));
}

std::string decode_text(const decode_latency& it, const latency_settings& settings) {
  const auto k = settings.drafts;
  auto out = fmt::format("decode: {} tokens, greedy, after \"{:.30}\"{}\n", settings.tokens,
                         settings.text, settings.text.size() > 30 ? "..." : "");
  out += line("  t(1), a step of one id", milliseconds(it.step));
  out += line(fmt::format("  t(1+k), a step that verifies {}", k), milliseconds(it.verify));
  out += line("  t(draft), the pass that makes them", milliseconds(it.draft));
  out += line("  E, tokens of a step with drafts", fmt::format("{:.3f}", it.tokens_per_step()));
  out += line("  without drafts", fmt::format("{:.0f} tok/s", it.plain_rate.median()));
  out += line("  with drafts", fmt::format("{:.0f} tok/s", it.rate.median()),
              fmt::format("gain {:.3f}, of the promised {:.3f}: {:.0f} %", it.gain(),
                          it.promised_gain(), 100.0 * it.gain() / it.promised_gain()));
  return out + "  promised: E t(1) / (t(1+k) + t(draft))\n\n";
}

std::string first_token_text(const first_token_latency& it, const latency_settings& settings) {
  auto out =
    fmt::format("first token after a prompt of {} ids, of which are cached\n", settings.prompt);
  const auto hit = [&](std::string_view what, const sample_list& seconds) {
    return line(what, milliseconds(seconds),
                fmt::format("{:.1f} times sooner", it.miss.median() / seconds.median()));
  };
  out += line("  none (miss)", milliseconds(it.miss));
  out += hit(fmt::format("  {}, in the device's blocks", it.hit_tokens), it.hit);
  out += hit(fmt::format("  {}, in host memory", it.host_hit_tokens), it.host_hit);
  return out;
}

}  // namespace

std::string latency_text(const latency_result& made, const latency_settings& settings) {
  const auto decode = made.decode ? decode_text(*made.decode, settings) : std::string();
  return decode + first_token_text(made.first_token, settings);
}

void add_latency(const latency_result& made, const latency_settings& settings, json::object& out) {
  out["decode"] = nullptr;
  if (made.decode) {
    const auto& it = *made.decode;
    out["decode"] = json::object{{"drafts", settings.drafts},
                                 {"step_seconds", summary_of(it.step)},
                                 {"verify_seconds", summary_of(it.verify)},
                                 {"draft_seconds", summary_of(it.draft)},
                                 {"tokens_per_step", it.tokens_per_step()},
                                 {"plain_tokens_per_second", summary_of(it.plain_rate)},
                                 {"tokens_per_second", summary_of(it.rate)},
                                 {"gain", it.gain()},
                                 {"promised_gain", it.promised_gain()},
                                 {"gain_share", it.gain() / it.promised_gain()}};
  }
  const auto& first = made.first_token;
  out["first_token"] =
    json::object{{"miss_seconds", summary_of(first.miss)},
                 {"hit_seconds", summary_of(first.hit)},
                 {"host_hit_seconds", summary_of(first.host_hit)},
                 {"hit_tokens", first.hit_tokens},
                 {"host_hit_tokens", first.host_hit_tokens},
                 {"hit_gain", first.miss.median() / first.hit.median()},
                 {"host_hit_gain", first.miss.median() / first.host_hit.median()}};
}

}  // namespace deepinfer
