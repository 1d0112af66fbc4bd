#include "runtime/model/hash_canary.hpp"

#include <utility>

namespace deepinfer {

namespace {

constexpr std::size_t errors_kept = 100;

}  // namespace

void canary_log::add(std::string_view name, std::string text) {
  const std::lock_guard lock(mutex_);
  ++count_;
  if (errors_.size() < errors_kept) errors_.push_back({std::string(name), std::move(text)});
}

std::vector<canary_error> canary_log::errors() const {
  const std::lock_guard lock(mutex_);
  return errors_;
}

std::uint64_t canary_log::count() const {
  const std::lock_guard lock(mutex_);
  return count_;
}

void canary_log::clear() {
  const std::lock_guard lock(mutex_);
  errors_.clear();
  count_ = 0;
}

}  // namespace deepinfer
