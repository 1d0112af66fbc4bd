/// A model whose answers a file gives, for testing clients: `deepinfer serve --script FILE`.
///
/// It is the hash model (runtime/model/hash_model.hpp) behind the same scheduler, KV pool, device
/// and text pipeline as a real one: prompts are tokenized, answers are detokenized and parsed, and
/// a wrong read of KV is logged as an error that names step, sequence and place. The file is JSON:
///
///   {"step_ms": 2,                       time a step takes, simulated by waiting on the device's
///                                        own thread; absent: none
///    "answers": [                        the first whose `when` is found in the prompt's text is
///      {"when": "weather",               taken; absent: any prompt. Prompts include the template,
///                                        so `<｜User｜>` and `<tool_result>` can be asked for
///       "say": "</think>It rains.",      text; special tokens are read as such
///       "ids": [5, 17],                  token ids, instead of `say`
///       "then": "stop",                  stop: the end-of-sequence id comes behind it, once
///                                        min_tokens allows that. go on: words of printable ASCII.
///                                        any: ids of the whole vocabulary, broken UTF-8 and
///                                        markers among them
///       "first_ms": 50}],                time that its first prefill step takes in addition
///    "otherwise": {"say": "OK."}}        for all other prompts; this is the default
///
/// What goes on depends on prompt, position, seed (above temperature 0) and penalties, as with a
/// real model, and on nothing else. Logit bias, top-k and the like do not change an answer. Under
/// `json_object` the next allowed id takes the place of one that is not.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "actors/node.hpp"
#include "config/engine_settings.hpp"
#include "messages/request.hpp"
#include "runtime/base/error.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

struct hash_script;

/// A script that has been read: which answer a prompt gets. Immutable.
class answer_script {
public:
  /// Error bad_config names the answer and the key.
  static result<answer_script> parse(std::string_view json_text, const tokenizer& words);

  enum class ending : std::uint8_t { stop, go_on, any };
  struct answer {
    std::string when;
    std::vector<token_id> ids;
    ending then = ending::stop;
    std::chrono::milliseconds first{0};
  };

  const answer& answer_to(std::string_view prompt_text) const;
  std::chrono::milliseconds step() const { return step_; }

private:
  std::chrono::milliseconds step_{0};
  std::vector<answer> answers_;
  answer otherwise_;
};

/// The ids of `words` that are text of printable ASCII and nothing else.
std::vector<token_id> harmless_words(const tokenizer& words);

/// Everything `node::start` needs for one rank.
struct scripted_model {
  rank_machines machines;
  node_facts facts;
};

/// Reads `settings.model.script`, with the tokenizer of the model directory `model_path`. Errors:
/// io_failed, bad_config (both name the file), those of the tokenizer.
result<scripted_model> load_script(const engine_settings& settings, const std::string& model_path);

}  // namespace deepinfer
