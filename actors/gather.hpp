/// Asks several actors and goes on when every one of them has answered or failed to. What a failure
/// means is said by who goes on: it finds both, answers and failures.
///
///   {
///     gathering<node_stats, pointer> all(self, timeout, [promise](auto& got) mutable { ... });
///     for (const auto& it : ranks) all.ask(it, stats_atom::value);
///   }  // whoever asks has asked all: where that was nobody, it goes on here
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "actors/caf_compat.hpp"

namespace deepinfer {

template <class Answer>
struct gathered {
  std::vector<Answer> answers;  ///< in the order they came, as the failures
  std::vector<caf::error> failures;
  /// Which question each of these is of, counted from 0 as they were asked.
  std::vector<std::size_t> answered, failed;
};

/// `Pointer`: to the actor that asks.
template <class Answer, class Pointer>
class gathering {
public:
  using next_call = std::function<void(gathered<Answer>&)>;

  gathering(Pointer self, std::chrono::microseconds timeout, next_call next)
    : self_(self),
      timeout_(timeout),
      shared_(std::make_shared<shared>()) {
    shared_->next = std::move(next);
  }
  ~gathering() { shared_->one_less(); }
  gathering(const gathering&) = delete;
  gathering& operator=(const gathering&) = delete;

  template <class Target, class... Args>
  void ask(const Target& target, const Args&... args) {
    ++shared_->missing;
    const auto question = shared_->asked++;
    deepinfer::ask(self_, target, timeout_, args...)
      .then(
        [all = shared_, question](Answer& answer) {
          all->got.answers.push_back(std::move(answer));
          all->got.answered.push_back(question);
          all->one_less();
        },
        [all = shared_, question](caf::error& failure) {
          all->got.failures.push_back(std::move(failure));
          all->got.failed.push_back(question);
          all->one_less();
        });
  }

private:
  struct shared {
    gathered<Answer> got;
    std::size_t missing = 1;  ///< one for whoever asks, while it asks
    std::size_t asked = 0;
    next_call next;

    void one_less() {
      if (--missing == 0) next(got);
    }
  };

  Pointer self_;
  std::chrono::microseconds timeout_;
  std::shared_ptr<shared> shared_;
};

}  // namespace deepinfer
