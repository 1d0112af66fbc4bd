/// How long the oldest of several answers that come in order may be waited for.
///
/// One deadline for all of them: it runs while an answer is due, and each answer starts it anew.
/// Whoever waits looks when `expect` or `look` says so, and needs no timer for each question. Pure;
/// times are arguments, in nanoseconds.
#pragma once

#include <cstdint>
#include <optional>

namespace deepinfer {

class answer_deadline {
public:
  explicit answer_deadline(std::int64_t longest_ns = 0) : longest_ns_(longest_ns) {}

  /// One more answer is due. True: nobody is going to look, so look in `longest_ns`.
  bool expect(std::int64_t now_ns) {
    if (due_++ == 0) since_ns_ = now_ns;
    if (is_watched_) return false;
    is_watched_ = true;
    return true;
  }

  void note_answer(std::int64_t now_ns) {
    if (due_ > 0) --due_;
    since_ns_ = now_ns;
  }

  /// In how many nanoseconds to look again; 0: the oldest answer is late; nothing: none is due, and
  /// the next `expect` asks for a look.
  std::optional<std::int64_t> look(std::int64_t now_ns) {
    is_watched_ = due_ > 0;
    if (!is_watched_) return std::nullopt;
    const auto waited_ns = now_ns - since_ns_;
    return waited_ns < longest_ns_ ? longest_ns_ - waited_ns : 0;
  }

  std::int64_t longest_ns() const { return longest_ns_; }

private:
  std::int64_t longest_ns_ = 0;
  std::int64_t since_ns_ = 0;  ///< of the newest answer, or of the first question after a rest
  std::int32_t due_ = 0;
  bool is_watched_ = false;
};

}  // namespace deepinfer
