#include "actors/request_ledger.hpp"

#include <algorithm>

namespace deepinfer {
namespace {

/// More answers than any node gives: a request that asks for more is refused there, not here.
constexpr std::int32_t max_answers = 1024;

}  // namespace

bool request_ledger::open(const std::string& id, std::int32_t answers) {
  const auto count = static_cast<std::size_t>(std::clamp(answers, 1, max_answers));
  entry it;
  it.has_finished.resize(count);
  it.tokens.resize(count);
  return requests_.emplace(id, std::move(it)).second;
}

request_ledger::verdict request_ledger::pass(const token_chunk& chunk) {
  const auto found = requests_.find(chunk.request_id);
  if (found == requests_.end()) return verdict::unknown;
  auto& it = found->second;
  const auto answer = static_cast<std::size_t>(chunk.index);
  if (chunk.seq != it.next_seq || chunk.index < 0 || answer >= it.has_finished.size())
    return verdict::gap;
  ++it.next_seq;
  it.tokens[answer] += static_cast<std::int32_t>(chunk.ids.size());
  if (chunk.finish) it.has_finished[answer] = true;
  if (!chunk.is_last) return verdict::goes_on;
  requests_.erase(found);
  return verdict::last;
}

std::vector<token_chunk> request_ledger::end(const std::string& id, errc code,
                                             const std::string& message) {
  std::vector<token_chunk> out;
  const auto found = requests_.find(id);
  if (found == requests_.end()) return out;
  auto& it = found->second;
  for (std::size_t answer = 0; answer < it.has_finished.size(); ++answer) {
    if (it.has_finished[answer]) continue;
    auto& chunk = out.emplace_back();
    chunk.request_id = id;
    chunk.seq = it.next_seq++;
    chunk.index = static_cast<std::int32_t>(answer);
    chunk.finish.emplace();
    chunk.finish->reason = finish_reason::error;
    chunk.finish->code = code;
    chunk.finish->message = message;
    chunk.finish->usage.completion_tokens = it.tokens[answer];
  }
  if (!out.empty()) out.back().is_last = true;
  requests_.erase(found);
  return out;
}

std::vector<std::string> request_ledger::ids() const {
  std::vector<std::string> out;
  for (const auto& [id, it] : requests_) out.push_back(id);
  return out;
}

}  // namespace deepinfer
