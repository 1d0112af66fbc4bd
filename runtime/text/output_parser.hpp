/// Splits a model's answer, while it streams, into reasoning, content and tool calls.
///
/// Text enters in chunks of any size and leaves as deltas; the concatenation of the deltas does not
/// depend on the chunks, and no delta is ever taken back. What might still turn out to be a marker,
/// or line breaks before one, is held until it is certain.
///
/// Two markers matter: `</think>` and `｜DSML｜`. With `feed` their spelling is all there is, so it
/// counts. With token ids (`token_output_parser`) only the special tokens count, and the same
/// letters from ordinary tokens stay text. Both spellings of the tags are understood:
/// `<｜DSML｜ calls>` (V4.1) and `<｜DSML｜tool_calls>` (V4).
///
/// Rules: reasoning ends at `</think>`, without the line breaks that begin it and the ones before
/// the marker; content loses its leading line breaks; line breaks before a calls block are not
/// content; a further `</think>` in content is dropped; the answer ends with the calls block, and
/// what follows it is ignored. Arguments are JSON text `{"k": "v", "n": 3}`: strings are escaped
/// here, other values pass as the model wrote them, or as a JSON string where they are none. Only
/// an answer that was cut inside of a call gives arguments that are not JSON: they end where it
/// does, so that nobody takes the call for whole. A block in which no call begins is text of the
/// part it stands in, unless it is empty; one that is cut off in its first tags leaves nothing
/// behind. Stop strings are looked for in content, and in reasoning where the mode says so, never
/// across the border of the two. Names of tools are not checked.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "messages/request.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/text/chat_conversation.hpp"

namespace deepinfer {

class tokenizer;

struct output_mode {
  parse_start start = parse_start::reasoning;
  bool parse_tool_calls = false;
  bool json_output = false;       ///< keep one JSON value of the content, blank the text around it
  std::vector<std::string> stop;  ///< none of them empty
  bool stop_in_reasoning = false;
};

/// One piece of the answer. Pieces of a kind concatenate; calls are numbered from 0 as they begin.
struct output_delta {
  enum class part : std::uint8_t { reasoning, content, call_begin, call_arguments };

  part what = part::content;
  std::string text;        ///< the piece; the tool's name for call_begin
  std::int32_t call = -1;  ///< which call, for the last two
};

using output_deltas = std::vector<output_delta>;

/// A whole answer, put together from deltas.
struct parsed_call {
  std::string name;
  std::string arguments;

  friend bool operator==(const parsed_call&, const parsed_call&) = default;
};

struct parsed_output {
  std::string reasoning;
  std::string content;
  std::vector<parsed_call> calls;

  void add(const output_delta& delta);
};

class output_parser {
public:
  explicit output_parser(output_mode mode);
  output_parser(output_parser&&) noexcept;
  output_parser& operator=(output_parser&&) noexcept;
  ~output_parser();

  /// Text in which markers are recognised by their spelling. UTF-8, cut anywhere.
  void feed(std::string_view text, output_deltas& out);

  /// Text that is only text, whatever it spells: what ordinary tokens decode to.
  void feed_plain(std::string_view text, output_deltas& out);

  /// The special token `</think>` or `｜DSML｜`.
  void feed_think_end(output_deltas& out);
  void feed_dsml(output_deltas& out);

  /// The end of the output. Releases what was held; no further feeding.
  void finish(output_deltas& out);

  /// True once nothing that follows can change the answer: a stop string matched, or the calls
  /// block has ended. The engine may stop the sequence here.
  bool ended() const;

  /// A stop string matched; its text is not part of the answer.
  bool stopped() const;

  /// Bytes of text so far, and how many of them are known to be in front of the answer's end: what
  /// may begin a stop string is not, nor what is behind one that matched.
  std::int64_t fed() const;
  std::int64_t decided() const;

  /// Why the answer ended, given why the sampler stopped: `tool_calls` where `stop` left at least
  /// one complete call, else `reported`.
  finish_reason finish_of(finish_reason reported) const;

private:
  class machine;
  std::unique_ptr<machine> machine_;
};

/// Feeds an output parser with token ids.
class token_output_parser {
public:
  /// `vocabulary` must outlive this.
  token_output_parser(output_mode mode, const tokenizer& vocabulary);
  token_output_parser(token_output_parser&&) noexcept;
  token_output_parser& operator=(token_output_parser&&) noexcept;
  ~token_output_parser();

  void feed(token_id id, output_deltas& out);
  void finish(output_deltas& out);

  const output_parser& parser() const;

private:
  struct state;
  std::unique_ptr<state> state_;
};

}  // namespace deepinfer
