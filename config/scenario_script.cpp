#include <array>

#include <fmt/ranges.h>

#include "config/scenario_names.hpp"
#include "config/scenario_read.hpp"

namespace deepinfer {

namespace {

namespace pb = google::protobuf;

constexpr std::int32_t most_prompt_tokens = 1 << 20;  // what a player has memory for

/// The verb of an entry: its one field.
result<std::string> verb_of(const scenario_reading& reading, const std::string& at,
                            const scenario_pb::Entry& entry) {
  std::vector<const pb::FieldDescriptor*> set;
  entry.GetReflection()->ListFields(entry, &set);
  if (set.size() == 1) return set[0]->name();
  std::vector<std::string> names;
  for (const auto* field : set) names.push_back(field->name());
  if (names.empty()) return reading.wrong(at, "found no verb, expected exactly one");
  return reading.wrong(at, "found the verbs {}, expected exactly one", fmt::join(names, " and "));
}

/// Fills in ids of all submits first, so that events may name requests of later lines.
result<void> add_requests(const scenario_reading& reading, const std::string& at,
                          const scenario_pb::Submit& in) {
  auto& requests = reading.out.requests;
  const bool is_many = in.has_count();
  if (!is_legal_id(in.id()) || (is_many && in.id().find('.') != std::string::npos))
    return reading.wrong(at, "submit: found the id '{}', expected [a-z][a-z0-9_]*{}", in.id(),
                         is_many ? "" : ", optionally .N");
  if (is_reserved_id(in.id()))
    return reading.wrong(at, "submit: the id '{}' would be read as an event or a rank", in.id());
  for (std::int32_t i = 1; i <= (is_many ? in.count() : 1); ++i) {
    scenario_request request;
    request.id = is_many ? fmt::format("{}.{}", in.id(), i) : in.id();
    request.place = at;
    if (reading.out.request_of(request.id) >= 0)
      return reading.wrong(at, "submit: the id '{}' is there twice", request.id);
    requests.push_back(std::move(request));
  }
  return {};
}

result<void> read_prompt(const scenario_reading& reading, const std::string& at,
                         const scenario_pb::Submit& in, std::int32_t index) {
  auto& out = reading.out.requests[static_cast<std::size_t>(index)];
  out.prompt = in.prompt().empty() ? out.id : in.prompt();
  out.prompt_tokens = in.prompt_tokens();
  if (out.prompt_tokens < 0 || out.prompt_tokens > most_prompt_tokens)
    return reading.wrong(at, "prompt_tokens: found {}, expected 0 to {}", out.prompt_tokens,
                         most_prompt_tokens);
  if (in.has_prompt_ids()) {
    if (in.has_prompt_tokens() || !in.prompt().empty() || !in.continues().empty())
      return reading.wrong(at, "submit: found prompt_ids and another prompt, expected one");
    out.prompt_ids.emplace(in.prompt_ids().ids().begin(), in.prompt_ids().ids().end());
  } else if (!in.has_prompt_tokens() && in.continues().empty()) {
    return reading.wrong(at, "submit: '{}' has no prompt, expected prompt_tokens or prompt_ids",
                         in.id());
  }
  if (in.continues().empty()) return {};
  DI_TRY(out.continues, read_id(reading, at, "continues", in.continues()));
  if (out.continues >= index)
    return reading.wrong(at, "continues: '{}' is not submitted before '{}'", in.continues(),
                         in.id());
  return {};
}

result<void> read_request(const scenario_reading& reading, const std::string& at,
                          const scenario_pb::Submit& in, std::int32_t index) {
  DI_TRY_VOID(read_prompt(reading, at, in, index));
  auto& out = reading.out.requests[static_cast<std::size_t>(index)];
  if (in.has_max_tokens()) out.max_tokens = in.max_tokens();
  out.min_tokens = in.min_tokens();
  out.stop_after = in.stop_after();
  out.tokens.insert(in.tokens().begin(), in.tokens().end());
  for (const auto& [output, id] : out.tokens)
    if (output < 1 || id < 1 || id >= reading.out.model.vocab)
      return reading.wrong(at,
                           "tokens: found output {} = {}, expected outputs from 1 and ids 1 to "
                           "{}",
                           output, id, reading.out.model.vocab - 1);
  out.stop.assign(in.stop().begin(), in.stop().end());
  out.stop_ids.assign(in.stop_ids().begin(), in.stop_ids().end());
  out.accept.assign(in.accept().begin(), in.accept().end());
  out.confidence.assign(in.confidence().begin(), in.confidence().end());
  if (in.has_sample_seed()) out.sample_seed = in.sample_seed();
  out.penalty = in.penalty();
  if (in.has_grammar()) {
    auto& grammar = out.grammar.emplace();
    grammar.ends_after = in.grammar().ends_after();
    grammar.dead_end_at = in.grammar().dead_end_at();
    grammar.build_time_us = in.grammar().build_time();
  }
  out.reasoning = in.reasoning();
  out.logprobs = in.logprobs();
  out.priority = in.priority();
  if (in.has_rank()) out.rank = in.rank();
  if (out.rank >= reading.ranks_max)
    return reading.wrong(at, "rank: found {}, expected 0 to {}", out.rank, reading.ranks_max - 1);
  out.client = in.client();
  if (in.has_remote_kv()) out.remote_kv_us = in.remote_kv().delay();
  out.remote_kv_fails = in.remote_kv().fails();
  if (in.has_hand_off()) out.hand_off_us = in.hand_off().delay();
  return {};
}

result<scenario_verb> read_submit(const scenario_reading& reading, const std::string& at,
                                  const scenario_pb::Submit& in) {
  submit_verb out;
  out.count = in.has_count() ? in.count() : 1;
  out.every_us = in.every();
  out.first = reading.out.request_of(in.has_count() ? in.id() + ".1" : in.id());
  for (std::int32_t i = 0; i < out.count; ++i)
    DI_TRY_VOID(read_request(reading, at, in, out.first + i));
  return scenario_verb{out};
}

/// Ids that nobody has are legal here.
result<scenario_verb> read_abort(const scenario_reading& reading, const std::string& at,
                                 const scenario_pb::Abort& in) {
  abort_verb out;
  scenario_pb::Abort known;
  for (const auto& id : in.request()) {
    if (id.ends_with('*') || reading.out.request_of(id) >= 0)
      known.add_request(id);
    else if (is_legal_id(id))
      out.unknown.push_back(id);
    else
      return reading.wrong(at, "abort: found '{}', expected ids, x.* or *", id);
  }
  if (in.request().empty()) return reading.wrong(at, "abort: found no request");
  DI_TRY(out.requests, read_ids(reading, at, "abort", known.request()));
  return scenario_verb{std::move(out)};
}

result<scenario_verb> read_kill(const scenario_reading& reading, const std::string& at,
                                const scenario_pb::Kill& in) {
  kill_verb out;
  if (in.has_rank() + in.has_worker() + !in.client().empty() != 1)
    return reading.wrong(at, "kill: expected exactly one of rank, worker, client");
  if (in.has_rank()) out.rank = in.rank();
  if (in.has_worker()) out.worker = in.worker();
  out.client = in.client();
  if (out.rank >= reading.ranks_max || out.worker >= reading.ranks_max)
    return reading.wrong(at, "kill: found rank {}, expected 0 to {}",
                         std::max(out.rank, out.worker), reading.ranks_max - 1);
  if (out.client.empty()) return scenario_verb{out};
  for (const auto& request : reading.out.requests)
    if (request.client == out.client) return scenario_verb{out};
  return reading.wrong(at, "kill: no request is of the client '{}'", out.client);
}

result<scenario_verb> read_deliver(const scenario_reading& reading, const std::string& at,
                                   const scenario_pb::Deliver& in) {
  deliver_verb out;
  if (!in.has_message()) return reading.wrong(at, "deliver: found no message");
  if (in.has_copies() + in.has_delay() + in.has_drop() + in.has_swap() != 1)
    return reading.wrong(at, "deliver: expected exactly one of copies, delay, drop, swap");
  out.message = plain_enum<scenario_message>(in.message());
  if (in.has_step()) out.step = in.step();
  if (in.has_rank()) out.rank = in.rank();
  if (!in.request().empty()) {
    DI_TRY(out.request, read_id(reading, at, "deliver", in.request()));
  }
  if (in.has_copies()) out.copies = in.copies();
  out.delay_us = in.delay();
  out.drop = in.drop();
  out.swap = in.swap();
  return scenario_verb{out};
}

result<scenario_verb> read_set(const scenario_reading& reading, const std::string& at,
                               const scenario_pb::Change& in) {
  set_verb out;
  if (!in.has_depth() && !in.has_vote() && !in.has_policy())
    return reading.wrong(at, "set: expected depth, vote or policy");
  if (in.has_depth()) out.depth = in.depth();
  if (out.depth && (*out.depth < 1 || *out.depth > 3))
    return reading.wrong(at, "set: depth: found {}, expected 1 to 3", *out.depth);
  if (in.has_vote()) out.vote = read_vote(in.vote(), reading.out.engine.vote);
  if (in.has_policy()) out.policy = read_policy(in.policy(), reading.out.engine.policy);
  return scenario_verb{out};
}

result<scenario_verb> read_consume(const scenario_reading& reading, const std::string& at,
                                   const scenario_pb::Consume& in) {
  consume_verb out;
  DI_TRY(out.requests, read_ids(reading, at, "consume", in.request()));
  if (out.requests.empty() || !in.has_chunks())
    return reading.wrong(at, "consume: expected request and chunks");
  out.chunks = in.chunks();
  out.every_us = in.every();
  return scenario_verb{std::move(out)};
}

result<scenario_verb> read_verb(const scenario_reading& reading, const std::string& at,
                                const scenario_pb::Entry& entry) {
  if (entry.has_submit()) return read_submit(reading, at, entry.submit());
  if (entry.has_abort()) return read_abort(reading, at, entry.abort());
  if (entry.has_pause()) return scenario_verb{pause_verb{}};
  if (entry.has_resume()) return scenario_verb{resume_verb{}};
  if (entry.has_flush()) return scenario_verb{flush_verb{entry.flush().running()}};
  if (entry.has_kill()) return read_kill(reading, at, entry.kill());
  if (entry.has_consume()) return read_consume(reading, at, entry.consume());
  if (entry.has_deliver()) return read_deliver(reading, at, entry.deliver());
  if (entry.has_set()) return read_set(reading, at, entry.set());
  if (entry.has_rebalance()) return scenario_verb{rebalance_verb{entry.rebalance().rotate()}};
  if (entry.has_preempt()) {
    preempt_verb out;
    DI_TRY(out.requests, read_ids(reading, at, "preempt", entry.preempt().request()));
    if (out.requests.empty()) return reading.wrong(at, "preempt: found no request");
    return scenario_verb{std::move(out)};
  }
  drain_verb out;
  if (entry.drain().has_deadline()) out.deadline_us = entry.drain().deadline();
  return scenario_verb{out};
}

/// `at` and `after` stand in every verb under the same names.
result<scenario_when> read_when(const scenario_reading& reading, const std::string& at,
                                const scenario_pb::Entry& entry, const std::string& verb) {
  const auto* field = entry.GetDescriptor()->FindFieldByName(verb);
  const auto& it = entry.GetReflection()->GetMessage(entry, field);
  const auto* time = it.GetDescriptor()->FindFieldByName("at");
  const auto* event = it.GetDescriptor()->FindFieldByName("after");
  scenario_when out;
  if (it.GetReflection()->HasField(it, time)) out.at_us = it.GetReflection()->GetInt64(it, time);
  const auto after = it.GetReflection()->GetString(it, event);
  if (after.empty()) return out;
  if (out.at_us) return reading.wrong(at, "{}: found at and after, expected one of them", verb);
  auto parsed = parse_event(after, reading.out, reading.ranks_max);
  if (!parsed) return reading.wrong(at, "after: {}", parsed.error().message);
  out.after = *parsed;
  return out;
}

}  // namespace

result<void> read_script(scenario_reading& reading) {
  const auto place_of = [&](int i) { return reading.place(fmt::format("script[{}]", i)); };
  for (int i = 0; i < reading.in.script_size(); ++i) {
    DI_TRY_VOID(verb_of(reading, place_of(i), reading.in.script(i)));
    if (reading.in.script(i).has_submit())
      DI_TRY_VOID(add_requests(reading, place_of(i), reading.in.script(i).submit()));
  }
  std::int64_t last_at = 0, last_action = 0;
  for (int i = 0; i < reading.in.script_size(); ++i) {
    const auto& entry = reading.in.script(i);
    const auto at = place_of(i);
    DI_TRY(const auto verb, verb_of(reading, at, entry));
    DI_TRY(auto when, read_when(reading, at, entry, verb));
    if (when.at_us) last_at = *when.at_us;
    if (entry.has_expect()) {
      DI_TRY(auto expectation, read_expectation(reading, at, entry.expect()));
      expectation.when = when;
      reading.out.expectations.push_back(std::move(expectation));
      continue;
    }
    if (!when.after && !when.at_us) when.at_us = last_at;
    if (when.at_us && *when.at_us < last_action)
      return reading.wrong(at,
                           "{}: found {}us, expected no time before that of the last action, "
                           "{}us",
                           verb, *when.at_us, last_action);
    if (when.at_us) last_action = *when.at_us;
    DI_TRY(auto action, read_verb(reading, at, entry));
    reading.out.actions.push_back({at, when, std::move(action)});
  }
  return {};
}

}  // namespace deepinfer
