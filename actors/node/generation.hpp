/// What `generate` and `chat` share: sampling flags, opening the engine, streaming an answer, the
/// line of figures, the JSON object.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "actors/client.hpp"
#include "actors/node.hpp"
#include "actors/node/cli.hpp"
#include "actors/node/interrupt.hpp"
#include "messages/client.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// --max-tokens, --temperature, --top-p, ... with their defaults.
std::vector<flag> sampling_flags();

/// --stats.
flag stats_flag();

/// --cache-salt; its value is the request's `cache_salt`.
flag cache_salt_flag();

/// Reads them. Errors: bad_config naming the flag.
result<sampling_request> read_sampling(const parsed_flags& flags);

/// Who answers: a node of this process, or one elsewhere.
struct opened_engine {
  std::unique_ptr<node> here;  ///< null: it is elsewhere
  client engine;
  std::string model_name;
  std::string device_name;
  std::string model_path;  ///< empty: it is elsewhere
};

/// The node that --connect names; without it the model that the settings name, loaded with a
/// progress bar on a terminal.
result<opened_engine> open_engine(const cli_context& context, const parsed_flags& flags,
                                  const effective_config& config);

/// An answer and how long it took.
struct answer {
  generate_result content;
  double first_token_seconds = 0.0;
  double total_seconds = 0.0;
  bool was_interrupted = false;
};

/// Starts `request` and waits for its end. With `stream_text` the text is written to the context's
/// output as it comes (reasoning to stderr); an interrupt cancels the request.
result<answer> run_request(const cli_context& context, const client& engine,
                           const generate_request& request, bool stream_text,
                           const interrupt_guard& interrupts);

/// "32 tokens, 812.4 tok/s, first token after 9.1 ms, device idle 7 % (plan 5, settle 2), seed 4".
std::string figures_line(const answer& it, const node_stats& stats);

/// That line, unless --quiet asks for none, and what --stats asks for: on stderr.
void show_figures(const cli_context& context, const answer& it, const client& engine,
                  bool with_stats);

/// The object of --json; with `with_stats` what the engine counted so far as well.
json::object answer_object(const answer& it, const client& engine, bool is_chat, bool with_stats);

/// Writes the step trace where --trace-file asks for one.
result<void> write_trace(const cli_context& context, const effective_config& config,
                         const opened_engine& opened);

}  // namespace deepinfer
