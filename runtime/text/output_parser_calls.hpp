/// The calls block of an answer: markup in, calls and JSON arguments out. Part of the output
/// parser, which has opened the block and tells markers (`｜DSML｜`) from text.
///
/// Tolerant: text between tags, unknown tags and malformed ones are ignored beside a call; a tag
/// ends at `>`, and a line break or a marker inside one makes it malformed, as does an invoke's
/// lack of a name. A missing closer of a parameter or an invoke is made up for by the next tag that
/// needs it closed, missing quotes of an attribute by the next blank. A parameter whose `string` is
/// neither "true" nor "false" disappears, and its name goes with the next value, as in DeepSeek's
/// own service; one without the attribute is a string. Inside a value only a closing marker counts.
///
/// The arguments of a call that was closed are JSON: a value with `string="false"` waits for its
/// end, and is told as a JSON string if it does not parse. A block in which no call begins, but
/// which is not empty, was not meant as one: its text is given back.
#pragma once

#include <cstddef>
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
  /// All that was read is text after all, and the parser is as new.
  virtual void give_back(std::string_view text) = 0;
};

class calls_parser {
public:
  explicit calls_parser(call_sink& sink) : sink_(&sink) {}

  void byte(char c);
  void marker();

  /// The output ends here: what might have become a closing tag is part of the value after all. An
  /// open call stays open: its arguments are cut where the model was. Half a tag is dropped.
  void finish();

  /// The block's closing tag has been read.
  bool ended() const { return state_ == state::ended; }
  bool has_complete_call() const { return has_complete_call_; }

private:
  enum class state : std::uint8_t { between, tag, string_value, json_value, ended };

  void keep_unread(std::string_view text);
  bool is_worth_giving_back() const;
  void between_byte(char c);
  void tag_byte(char c);
  void value_byte(char c);
  void value_text(std::string_view text);
  void open_tag(bool closing);
  void end_tag();
  void end_closing_tag(std::string_view name);
  void begin_invoke(std::string_view attributes);
  void begin_parameter(std::string_view attributes);
  void end_value();
  void end_call();

  call_sink* sink_;
  state state_ = state::between;
  int angle_ = 0;  ///< 1 after `<`, 2 after `</`
  bool closing_ = false;
  std::string tag_;
  bool any_call_ = false;  ///< that has begun
  bool call_open_ = false;
  bool has_arguments_ = false;
  bool has_complete_call_ = false;
  bool key_waits_ = false;  ///< of a parameter without a value
  std::string waiting_key_;
  std::string json_value_;     ///< so far
  std::string unread_;         ///< the block, until a call begins
  std::size_t tag_at_ = 0;     ///< where its last tag begins
  std::size_t inside_at_ = 0;  ///< where the block's opening tag ends
};

}  // namespace deepinfer
