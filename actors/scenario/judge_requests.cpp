#include <cmath>

#include "actors/scenario/counts.hpp"
#include "actors/scenario/judge_context.hpp"

namespace deepinfer {

namespace {

/// What is known of a request on the way through the log.
struct request_record {
  bool is_submitted = false;
  bool has_final = false;
  std::int64_t tokens = 0;
};

class request_judge {
public:
  explicit request_judge(const judge_context& context)
    : context_(context),
      records_(context.of.requests.size()) {}

  void run() {
    for (const auto& entry : context_.log().entries()) {
      if (entry.kind == audit_kind::settled) check_range(entry);
      if (entry.kind == audit_kind::submitted) record_of(entry).is_submitted = true;
      if (entry.kind == audit_kind::tokens) take_tokens(entry);
      if (entry.kind == audit_kind::finished) take_final(entry);
    }
    // A run that the player has cut short ends nobody.
    for (std::size_t i = 0; context_.outcome.violations.empty() && i < records_.size(); ++i) {
      const judge_spot spot{context_.outcome.end_us, -1, 0, static_cast<std::int32_t>(i)};
      if (!records_[i].is_submitted)
        context_.add("", "no_final_record", spot, "a submit", "its moment never came");
      else if (!records_[i].has_final)
        context_.add("", "no_final_record", spot, "one final record", "none");
    }
  }

private:
  request_record& record_of(const audit_entry& entry) {
    return records_[static_cast<std::size_t>(entry.request)];
  }
  static judge_spot spot_of(const audit_entry& entry) {
    return {entry.us, entry.rank, entry.step, entry.request};
  }

  /// Ids as the device gave them: those of over-run rows too.
  void check_range(const audit_entry& entry) const {
    for (const auto id : context_.log().ids_of(entry))
      if (id < 1 || id >= context_.it.model.vocab)
        context_.add("", "token_id_out_of_range", {entry.us, entry.rank, entry.number, -1},
                     fmt::format("1 to {}", context_.it.model.vocab - 1), fmt::format("{}", id));
  }

  void take_tokens(const audit_entry& entry) {
    auto& record = record_of(entry);
    const auto spot = spot_of(entry);
    const auto ids = context_.log().ids_of(entry);
    if (record.has_final)
      context_.add("", "token_after_final", spot, "nothing", fmt::format("{} tokens", ids.size()));
    if (entry.number != record.tokens)
      context_.add("", "token_gap", spot, fmt::format("output {}", record.tokens + 1),
                   fmt::format("output {}", entry.number + 1));
    record.tokens = entry.number + entry.count;
    const auto& wanted = context_.answer(entry.request).tokens;
    for (std::size_t i = 0; i < ids.size(); ++i) {
      const auto output = static_cast<std::size_t>(entry.number) + i;
      if (output < wanted.size() && wanted[output] == ids[i]) continue;
      context_.add("", "wrong_token", spot,
                   output < wanted.size()
                     ? fmt::format("output {} = {}", output + 1, wanted[output])
                     : fmt::format("{} outputs", wanted.size()),
                   fmt::format("output {} = {}", output + 1, ids[i]));
      break;  // what follows a wrong token is wrong as well
    }
    check_logprobs(entry, spot);
  }

  void check_logprobs(const audit_entry& entry, const judge_spot& spot) const {
    const auto seen = context_.log().logprobs_of(entry);
    const auto& request = context_.of.requests[static_cast<std::size_t>(entry.request)];
    const auto count = request.logprobs ? static_cast<std::size_t>(entry.count) : 0;
    if (seen.size() != count) {
      context_.add("", "wrong_logprob", spot, fmt::format("{} of {} tokens", count, entry.count),
                   fmt::format("{}", seen.size()));
      return;
    }
    const auto& wanted = context_.answer(entry.request).logprobs;
    for (std::size_t i = 0; i < seen.size(); ++i) {
      const auto output = static_cast<std::size_t>(entry.number) + i;
      if (output >= wanted.size() || std::abs(wanted[output] - seen[i]) <= 1e-6f) continue;
      context_.add("", "wrong_logprob", spot,
                   fmt::format("output {}: {:.3f}", output + 1, wanted[output]),
                   fmt::format("{:.3f}", seen[i]));
      return;
    }
  }

  void take_final(const audit_entry& entry) {
    auto& record = record_of(entry);
    const auto& final = context_.log().final_of(entry);
    if (record.has_final) {
      context_.add("", "second_final_record", spot_of(entry), "one final record",
                   fmt::format("another one, {}", name_of(final.finish)));
      return;
    }
    record.has_final = true;
    check_finish(entry, final, record.tokens);
    check_usage(entry, final, record.tokens);
  }

  /// Who ends by itself ends as the oracle does; who is ended from outside has a part of it.
  void check_finish(const audit_entry& entry, const audit_final& final, std::int64_t tokens) const {
    const auto& answer = context_.answer(entry.request);
    const auto wanted_tokens = static_cast<std::int64_t>(answer.tokens.size());
    const bool ends_itself =
      final.finish == scenario_finish::stop || final.finish == scenario_finish::length;
    const bool can_start = answer.finish != scenario_finish::rejected;
    const bool is_right = ends_itself ? final.finish == answer.finish && tokens == wanted_tokens
                                      : can_start || final.finish == scenario_finish::rejected ||
                                          final.finish == scenario_finish::abort;
    if (is_right) return;
    context_.add("", "wrong_finish", spot_of(entry),
                 fmt::format("{} with {} tokens", name_of(answer.finish), wanted_tokens),
                 fmt::format("{} with {} tokens", name_of(final.finish), tokens));
  }

  void check_usage(const audit_entry& entry, const audit_final& final, std::int64_t tokens) const {
    const auto request = entry.request;
    const auto check = [&](const char* what, std::int64_t wanted, std::int64_t seen) {
      if (wanted != seen)
        context_.add("", "wrong_usage", spot_of(entry), fmt::format("{} {}", what, wanted),
                     fmt::format("{}", seen));
    };
    check("completion_tokens", tokens, final.usage.completion_tokens);
    if (final.finish == scenario_finish::rejected) return;  // it was never counted
    check("prompt_tokens", std::ssize(context_.answer(request).prompt), final.usage.prompt_tokens);
    if (!context_.of.requests[static_cast<std::size_t>(request)].reasoning) return;
    const auto order = static_cast<std::size_t>(&entry - context_.log().entries().data());
    check("reasoning_tokens", reasoning_tokens_of(tokens_of(context_.log(), request, order)),
          final.usage.reasoning_tokens);
  }

  const judge_context& context_;
  std::vector<request_record> records_;
};

}  // namespace

void judge_requests(const judge_context& context) {
  request_judge(context).run();
}

}  // namespace deepinfer
