/// JSON-output mode of the output parser: keeps the JSON of an answer and blanks what is around it.
///
/// JSON begins at a fence (three backticks, perhaps `json`, a line break) or else at the first `{`
/// or `[`. Fenced JSON ends at a line break and three backticks; bare JSON goes on to the end. Each
/// run of other text becomes one space.
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

class json_output_filter {
public:
  /// Appends to `out` what is certain after `c`.
  void push(char c, std::string& out);

  /// The end: what might have become a fence is text after all.
  void finish(std::string& out);

  bool begun() const { return begun_; }
  bool inside() const { return state_ == state::bare || state_ == state::fenced; }

private:
  enum class state : std::uint8_t { before, bare, fenced, after };

  void before(char c, std::string& out);
  void fenced(char c, std::string& out);
  void blank(std::string& out);

  state state_ = state::before;
  bool begun_ = false;
  bool blanked_ = false;
  std::string held_;  ///< a proper prefix of a fence
};

}  // namespace deepinfer
