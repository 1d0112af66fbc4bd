/// Answers of the OpenAI-style API as text: whole ones and the events of a stream.
///
/// Per token a few appends to one string: the part that all chunks of an answer share is prepared.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "messages/client.hpp"
#include "runtime/http/openai_request.hpp"

namespace deepinfer {

/// What every chunk of an answer says alike.
struct openai_frame {
  openai_endpoint endpoint = openai_endpoint::chat;
  std::string id;
  std::int64_t created = 0;  ///< seconds since 1970
  std::string model;
  std::string fingerprint;
  std::int32_t n = 1;  ///< answers of each prompt
  bool thinking = false;
  bool logprobs = false;
  bool include_usage = false;
  bool timings = false;
};

/// Tokens of all answers, each prompt once.
class usage_sum {
public:
  /// `first_of_prompt`: the answer that speaks for its prompt.
  void add(const usage_counts& usage, bool first_of_prompt);
  void append(std::string& out) const;  ///< the object

private:
  std::int64_t prompt_ = 0, completion_ = 0, cached_ = 0, reasoning_ = 0;
};

/// Logprobs of an answer or of one of its chunks, gathered as JSON.
class logprob_text {
public:
  /// `text_offset`: characters of the answer before this.
  explicit logprob_text(openai_endpoint endpoint, std::int64_t text_offset = 0)
    : endpoint_(endpoint),
      offset_(text_offset) {}

  void add(const token_logprobs& token);
  void append(std::string& out) const;  ///< the object
  bool empty() const { return is_empty_; }
  std::int64_t offset() const { return offset_; }

private:
  void add_chat(const token_logprobs& token);
  void add_completion(const token_logprobs& token);

  openai_endpoint endpoint_;
  std::int64_t offset_;
  bool is_empty_ = true;
  std::string content_;                            // of a chat
  std::string tokens_, numbers_, tops_, offsets_;  // of a completion
};

/// The wire's word for how an answer ended.
std::string_view finish_word(const sequence_finish& finish);

/// The error an answer that ended so is, where it is one: an answer cut short for want of room is
/// none once it has said something.
result<void> finish_error(const sequence_finish& finish);

/// {"queued_ms":..., ...} and what repeats the answer: `seed`, or `seeds` where prompts of one
/// request have each their own.
void append_timings(std::string& out, const request_timings& timings,
                    std::int64_t completion_tokens, std::span<const std::uint64_t> seeds);

/// One stream, all of its answers: data lines of server-sent events.
class openai_stream {
public:
  openai_stream(openai_frame frame, std::int32_t num_answers);

  /// Who speaks: one chunk for each answer of a chat.
  void begin(std::string& out) const;
  /// What answer `index` gained; nothing if that shows nothing.
  void add(const token_chunk& chunk, std::int32_t index, std::string& out);
  /// The usage chunk, where wanted, and the end.
  void end(std::string& out) const;

  static void append_error(std::string& out, const error& why);

private:
  void open(std::string& out, std::int32_t index) const;
  void close(std::string& out, std::string_view finish, const token_chunk* timed) const;
  void append_delta(std::string& out, const token_chunk& chunk) const;

  openai_frame frame_;
  std::string head_;
  std::vector<std::int64_t> offsets_;
  usage_sum usage_;
};

/// All answers of a request that does not stream.
class openai_answers {
public:
  openai_answers(openai_frame frame, std::int32_t num_answers);

  void add(const token_chunk& chunk, std::int32_t index);
  std::string text() const;

private:
  struct answer {
    explicit answer(openai_endpoint endpoint) : logprobs(endpoint) {}
    std::string text, reasoning;
    std::vector<tool_call_delta> calls;
    logprob_text logprobs;
    sequence_finish finish;
  };
  void append_choice(std::string& out, const answer& it, std::int32_t index) const;

  openai_frame frame_;
  std::vector<answer> answers_;
  usage_sum usage_;
  request_timings timings_;
  std::vector<std::uint64_t> seeds_;  ///< of each prompt
  std::int64_t completion_tokens_ = 0;
};

}  // namespace deepinfer
