/// The calls block of an answer: markup in, calls and JSON arguments out. Part of the output
/// parser, which has opened the block and tells markers (`｜DSML｜`) from text.
///
/// Tolerant: text between tags, unknown tags and malformed ones are ignored; a tag ends at `>`, and
/// a line break or a marker inside one makes it malformed. A missing closer of a parameter or an
/// invoke is made up for by the next tag that needs it closed. A parameter whose `string` is
/// neither "true" nor "false" disappears, and its name goes with the next value, as in DeepSeek's
/// own service; one without the attribute is a string. Inside a value only a closing marker counts.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

/// Where the pieces of calls go.
class call_sink {
public:
  virtual ~call_sink() = default;
  virtual void begin_call(std::string_view name) = 0;
  virtual void add_arguments(std::string_view text) = 0;
};

class calls_parser {
public:
  explicit calls_parser(call_sink& sink) : sink_(&sink) {}

  void byte(char c);
  void marker();

  /// The output ends here: what might have become a closing tag is part of the value after all. An
  /// open call stays open: its arguments are cut where the model was.
  void finish();

  /// The block's closing tag has been read.
  bool ended() const { return state_ == state::ended; }
  bool has_calls() const { return has_calls_; }

private:
  enum class state : std::uint8_t { between, tag, string_value, json_value, ended };

  void between_byte(char c);
  void tag_byte(char c);
  void value_byte(char c);
  void value_text(std::string_view text);
  void open_tag(bool closing);
  void end_tag();
  void end_closing_tag(std::string_view name);
  void begin_invoke(std::string_view attributes);
  void begin_parameter(std::string_view attributes);
  void end_call();

  call_sink* sink_;
  state state_ = state::between;
  int angle_ = 0;  ///< 1 after `<`, 2 after `</`
  bool closing_ = false;
  std::string tag_;
  bool call_open_ = false;
  bool has_arguments_ = false;
  bool has_calls_ = false;
  bool key_waits_ = false;  ///< of a parameter without a value
  std::string waiting_key_;
};

}  // namespace deepinfer
