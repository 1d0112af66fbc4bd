/// Who waits for what behind a wire: which requests are open, which chunk of each comes next and
/// which of its answers have finished. A plain class, kept by both ends: whichever loses the other
/// can end every request with the chunks its client still has to get.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "messages/client.hpp"

namespace deepinfer {

class request_ledger {
public:
  /// What a chunk means for its request.
  enum class verdict : std::uint8_t { goes_on, last, unknown, gap };

  /// False where the id is in use.
  bool open(const std::string& id, std::int32_t answers);
  bool contains(const std::string& id) const { return requests_.contains(id); }

  /// Notes a chunk that is passed on. After `last` the request is forgotten; after `gap` nothing
  /// has changed, and the caller ends it.
  verdict pass(const token_chunk& chunk);

  /// Ends a request: its last chunks, one per unfinished answer. Empty where it is unknown.
  std::vector<token_chunk> end(const std::string& id, errc code, const std::string& message);
  /// Without a word.
  void forget(const std::string& id) { requests_.erase(id); }

  std::vector<std::string> ids() const;
  std::size_t size() const { return requests_.size(); }

private:
  struct entry {
    std::uint64_t next_seq = 0;
    std::vector<bool> has_finished;  ///< by answer
    std::vector<std::int32_t> tokens;
  };

  std::map<std::string, entry> requests_;
};

}  // namespace deepinfer
