#include "runtime/text/output_parser.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "runtime/base/check.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_prompt_writer.hpp"
#include "runtime/text/detokenizer.hpp"
#include "runtime/text/output_parser_calls.hpp"
#include "runtime/text/output_parser_json.hpp"
#include "runtime/text/output_parser_stop.hpp"

namespace deepinfer {

void parsed_output::add(const output_delta& delta) {
  switch (delta.what) {
  case output_delta::part::reasoning: reasoning += delta.text; return;
  case output_delta::part::content: content += delta.text; return;
  case output_delta::part::call_begin: calls.push_back({delta.text, {}}); return;
  case output_delta::part::call_arguments:
    calls.at(static_cast<std::size_t>(delta.call)).arguments += delta.text;
    return;
  }
}

/// Works on single bytes and two marker events. Bytes that may still turn out to be white space
/// before a marker, the `<` of a tag, or a stop string wait in `held_`.
class output_parser::machine final : private call_sink {
public:
  explicit machine(output_mode mode) : mode_(std::move(mode)), stops_(mode_.stop), calls_(*this) {
    switch (mode_.start) {
    case parse_start::reasoning: at_lead_ = true; break;
    case parse_start::reasoning_continuation: break;
    case parse_start::content_continuation: state_ = state::content; break;
    case parse_start::content:
      state_ = state::content;
      at_lead_ = true;
      break;
    case parse_start::tool_calls:
      state_ = state::calls;
      at_lead_ = true;
      break;
    }
  }
  machine(const machine&) = delete;
  machine& operator=(const machine&) = delete;

  /// All that follows until the next call goes to `out`.
  machine& into(output_deltas& out) {
    DI_CHECK(!finished_, "an output parser was fed after its end");
    out_ = &out;
    first_own_ = out.size();
    return *this;
  }

  void feed(std::string_view text) {
    repair_.push_into(spelled_, text);
    scan_spelled();
  }

  void feed_plain(std::string_view text) {
    settle_spelled();
    std::string whole;
    repair_.push_into(whole, text);
    for (const char c : whole) byte(c);
  }

  void feed_marker(bool is_think_end) {
    settle_spelled();
    is_think_end ? think_end() : dsml();
  }

  void finish() {
    spelled_ += repair_.finish();
    scan_spelled();
    settle_spelled();
    calls_.finish();
    if (state_ == state::content) flush_content();
    if (state_ == state::reasoning) release(0);
    finished_ = true;
  }

  bool ended() const { return state_ == state::ended || calls_.ended(); }
  bool stopped() const { return stopped_; }
  bool has_complete_call() const { return calls_.has_complete_call(); }
  std::int64_t fed() const { return fed_; }
  std::int64_t decided() const {
    return stopped_ ? stopped_at_ : fed_ - static_cast<std::int64_t>(held_.size());
  }

private:
  enum class state : std::uint8_t { reasoning, content, calls, ended };

  /// Finds the markers in spelled text; keeps what may be the beginning of one.
  void scan_spelled() {
    constexpr std::array markers{chat_tokens::think_end, chat_tokens::dsml};
    const std::string_view text = spelled_;
    std::size_t at = 0;
    while (at < text.size()) {
      const auto rest = text.substr(at);
      const auto* marker = std::find_if(markers.begin(), markers.end(), [&](std::string_view m) {
        return rest.starts_with(m) || m.starts_with(rest);
      });
      if (marker == markers.end()) {
        byte(text[at++]);
        continue;
      }
      if (rest.size() < marker->size()) break;
      at += marker->size();
      *marker == chat_tokens::think_end ? think_end() : dsml();
    }
    spelled_.erase(0, at);
  }

  /// What waited for the rest of a spelled marker is text.
  void settle_spelled() {
    for (const char c : std::exchange(spelled_, {})) byte(c);
  }

  void byte(char c) {
    ++fed_;
    switch (state_) {
    case state::reasoning: return reasoning_byte(c);
    case state::content: return content_byte(c);
    case state::calls: return calls_.byte(c);
    case state::ended: return;
    }
  }

  void text_bytes(std::string_view text) {
    for (const char c : text) byte(c);
  }

  void think_end() {
    switch (state_) {
    case state::reasoning:
      trim_line_breaks();
      release(0);
      tail_ = 0;
      after_angle_ = false;
      stops_.reset();
      state_ = state::content;
      at_lead_ = true;
      return;
    case state::content:  // a second one says nothing, unless it is inside of JSON
      if (mode_.json_output && json_.inside()) return text_bytes(chat_tokens::think_end);
      release(0);
      tail_ = 0;
      after_angle_ = false;
      stops_.reset();
      at_lead_ = false;
      return;
    case state::calls: return text_bytes(chat_tokens::think_end);
    case state::ended: return;
    }
  }

  void dsml() {
    const bool in_json = state_ == state::content && mode_.json_output && json_.inside();
    if (state_ == state::calls) return calls_.marker();
    if (state_ == state::ended) return;
    if (!mode_.parse_tool_calls || !after_angle_ || in_json) return text_bytes(chat_tokens::dsml);
    if (held_.ends_with('<')) held_.pop_back();
    before_block_ = held_.substr(std::min(held_.find_last_not_of('\n') + 1, held_.size()));
    block_at_ = fed_ - 1 - static_cast<std::int64_t>(before_block_.size());
    trim_line_breaks();
    release(0);
    before_block_ += '<';
    around_block_ = state_;
    state_ = state::calls;
    calls_.byte('<');
    calls_.marker();
  }

  void reasoning_byte(char c) {
    track(c);
    held_ += c;
    if (!mode_.stop_in_reasoning) return release(std::min(tail_, held_.size()));
    if (stops_at(c)) return;
    release(std::min(std::max(tail_, stops_.longest_partial()), held_.size()));
  }

  void content_byte(char c) {
    track(c);
    if (!mode_.json_output) return content_text(c);
    if (at_lead_ && c == '\n' && !json_.begun()) return;
    std::string filtered;
    json_.push(c, filtered);
    for (const char f : filtered) content_text(f);
  }

  void content_text(char c) {
    if (state_ != state::content) return;  // a stop string has just matched
    held_ += c;
    if (stops_at(c)) return;
    const auto tail = mode_.parse_tool_calls && !mode_.json_output ? tail_ : 0;
    release(std::min(std::max(tail, stops_.longest_partial()), held_.size()));
  }

  /// Whether the byte just held completes a stop string. The answer then ends before that.
  bool stops_at(char c) {
    const auto length = stops_.push(c);
    if (length == 0) return false;
    held_.resize(held_.size() - std::min(length, held_.size()));
    release(0);
    state_ = state::ended;
    stopped_ = true;
    stopped_at_ = fed_ - static_cast<std::int64_t>(length);
    return true;
  }

  void flush_content() {
    std::string rest;
    if (mode_.json_output) json_.finish(rest);
    for (const char c : rest) content_text(c);
    release(0);
  }

  /// Follows the text's tail: line breaks, then perhaps the `<` of a tag.
  void track(char c) {
    if (c == '\n') {
      tail_ = after_angle_ ? 1 : tail_ + 1;
    } else if (c == '<' && mode_.parse_tool_calls) {
      tail_ = after_angle_ ? 1 : tail_ + 1;
    } else {
      tail_ = 0;
    }
    after_angle_ = c == '<';
  }

  void trim_line_breaks() {
    while (held_.ends_with('\n')) held_.pop_back();
  }

  /// Emits the held text but its last `keep` bytes.
  void release(std::size_t keep) {
    std::string_view text = std::string_view(held_).substr(0, held_.size() - keep);
    const auto count = text.size();
    if (at_lead_) text.remove_prefix(std::min(text.find_first_not_of('\n'), text.size()));
    if (!text.empty()) {
      at_lead_ = false;
      put(state_ == state::reasoning ? output_delta::part::reasoning : output_delta::part::content,
          text, -1);
    }
    held_.erase(0, count);
  }

  void put(output_delta::part what, std::string_view text, std::int32_t call) {
    if (out_->size() > first_own_ && what != output_delta::part::call_begin &&
        out_->back().what == what && out_->back().call == call) {
      out_->back().text += text;
    } else {
      out_->push_back({what, std::string(text), call});
    }
  }

  void begin_call(std::string_view name) override {
    put(output_delta::part::call_begin, name, ++last_call_);
  }
  void add_arguments(std::string_view text) override {
    put(output_delta::part::call_arguments, text, last_call_);
  }

  /// A block that held no call is text of the part it is in. Its first byte has been there already,
  /// seen by the stop strings and the JSON filter, unless the prompt opened the block.
  void give_back(std::string_view text) override {
    tail_ = 0;
    after_angle_ = false;
    state_ = around_block_;
    if (!before_block_.empty()) {
      if (state_ == state::reasoning || !mode_.json_output) held_ = before_block_;
      before_block_.clear();
      text.remove_prefix(1);
    }
    for (const char c : text) {
      if (state_ == state::reasoning) reasoning_byte(c);
      if (state_ == state::content) content_byte(c);
    }
    if (stopped_) stopped_at_ = block_at_;
  }

  output_mode mode_;
  stop_matcher stops_;
  calls_parser calls_;
  json_output_filter json_;
  utf8_stream repair_;
  state state_ = state::reasoning;
  bool at_lead_ = false;      ///< nothing of this part has been emitted: line breaks are dropped
  bool after_angle_ = false;  ///< the last byte was `<`
  bool stopped_ = false;
  std::int64_t fed_ = 0;
  std::int64_t stopped_at_ = 0;
  bool finished_ = false;
  std::size_t tail_ = 0;
  std::string held_;
  std::string spelled_;
  std::string before_block_;   ///< line breaks, and the `<` of the block's tag
  std::int64_t block_at_ = 0;  ///< what was fed before that
  state around_block_ = state::content;
  std::int32_t last_call_ = -1;
  output_deltas* out_ = nullptr;
  std::size_t first_own_ = 0;  ///< deltas before this one were handed over already
};

output_parser::output_parser(output_mode mode)
  : machine_(std::make_unique<machine>(std::move(mode))) {}
output_parser::output_parser(output_parser&&) noexcept = default;
output_parser& output_parser::operator=(output_parser&&) noexcept = default;
output_parser::~output_parser() = default;

void output_parser::feed(std::string_view text, output_deltas& out) {
  machine_->into(out).feed(text);
}
void output_parser::feed_plain(std::string_view text, output_deltas& out) {
  machine_->into(out).feed_plain(text);
}
void output_parser::feed_think_end(output_deltas& out) {
  machine_->into(out).feed_marker(true);
}
void output_parser::feed_dsml(output_deltas& out) {
  machine_->into(out).feed_marker(false);
}
void output_parser::finish(output_deltas& out) {
  machine_->into(out).finish();
}
bool output_parser::ended() const {
  return machine_->ended();
}

std::int64_t output_parser::fed() const {
  return machine_->fed();
}

std::int64_t output_parser::decided() const {
  return machine_->decided();
}

bool output_parser::stopped() const {
  return machine_->stopped();
}

finish_reason output_parser::finish_of(finish_reason reported) const {
  if (machine_->stopped()) return finish_reason::stop;
  if (reported == finish_reason::stop && machine_->has_complete_call())
    return finish_reason::tool_calls;
  return reported;
}

struct token_output_parser::state {
  output_parser parser;
  detokenizer words;
  std::optional<token_id> think_end, dsml;
};

token_output_parser::token_output_parser(output_mode mode, const tokenizer& vocabulary)
  : state_(std::make_unique<state>(state{output_parser(std::move(mode)), detokenizer(vocabulary),
                                         vocabulary.id_of(chat_tokens::think_end),
                                         vocabulary.id_of(chat_tokens::dsml)})) {}
token_output_parser::token_output_parser(token_output_parser&&) noexcept = default;
token_output_parser& token_output_parser::operator=(token_output_parser&&) noexcept = default;
token_output_parser::~token_output_parser() = default;

void token_output_parser::feed(token_id id, output_deltas& out) {
  auto& [parser, words, think_end, dsml] = *state_;
  if (id != think_end && id != dsml) return parser.feed_plain(words.push(id), out);
  parser.feed_plain(words.finish(), out);
  id == think_end ? parser.feed_think_end(out) : parser.feed_dsml(out);
}

void token_output_parser::finish(output_deltas& out) {
  state_->parser.feed_plain(state_->words.finish(), out);
  state_->parser.finish(out);
}

const output_parser& token_output_parser::parser() const {
  return state_->parser;
}

}  // namespace deepinfer
