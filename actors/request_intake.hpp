/// From what a client asked for to what the scheduler gets: prompt ids, checked sampling
/// parameters, and how the output is to be shown. A plain class without clock, I/O or random
/// numbers: the drawn seed is an argument.
///
/// Errors name the field in `param`: invalid_argument, context_length_exceeded, model_not_found,
/// and those of the chat request reader. Nothing is changed by a refused request.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/output_stream.hpp"
#include "config/engine_settings.hpp"
#include "messages/client.hpp"
#include "runtime/base/error.hpp"
#include "runtime/text/chat_conversation.hpp"
#include "runtime/text/sampling_policy.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

/// What the intake must know of the model and of the node's settings.
struct intake_facts {
  std::string model_name;
  std::vector<std::string> served_names{};  ///< that requests may use; empty: the name alone
  chat_variant variant = chat_variant::v41;
  std::int32_t vocab_size = 0;
  std::int32_t max_model_len = 0;
  token_id bos = 0;
  std::vector<token_id> eos_ids{};  ///< end a sequence unless it ignores them
  sampling_policy policy = sampling_policy::as_requested;
  bool stop_in_reasoning = false;  ///< stop strings of a chat apply before the end of reasoning
};

/// What the settings say of it. The model's own (vocabulary, ids, variant) is the caller's to fill
/// in.
intake_facts intake_facts_of(const engine_settings& settings, std::string model_name,
                             std::int32_t max_model_len);

/// A request that may start.
struct accepted_request {
  std::shared_ptr<const std::vector<token_id>> prompt;
  std::shared_ptr<const sampling_params> params;
  output_stream_options output;
  std::uint64_t cache_salt = 0;
  std::optional<std::int32_t> asked_max_tokens{};  ///< where the client has set it
};

class request_intake {
public:
  static constexpr std::int32_t most_answers = 128;

  request_intake(tokenizer words, intake_facts facts)
    : words_(std::move(words)),
      facts_(std::move(facts)) {}

  /// `drawn_seed` is used where the request brings none.
  result<accepted_request> accept(const generate_request& request, std::uint64_t drawn_seed) const;

  /// A client's chat request; one that names no model means the one that is served.
  result<chat_request> read_chat(const std::string& text) const;

  const intake_facts& facts() const { return facts_; }
  const tokenizer& words() const { return words_; }

private:
  result<accepted_request> accept_chat(const generate_request& request,
                                       std::uint64_t drawn_seed) const;
  result<std::vector<token_id>> plain_prompt(const generate_request& request) const;
  result<void> check_model(const std::string& name) const;
  result<void> check(const sampling_params& params) const;
  result<void> check_stop_ids(const sampling_params& params) const;
  result<void> check_prompt(const std::vector<token_id>& prompt) const;
  result<void> check_limit(std::size_t prompt_tokens, std::optional<std::int32_t> wanted) const;

  tokenizer words_;
  intake_facts facts_;
};

}  // namespace deepinfer
