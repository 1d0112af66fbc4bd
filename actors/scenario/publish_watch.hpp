/// Recounts from plans and results which blocks are full of settled positions, and holds what the
/// prefix index is told against it: the property published_unsettled.
///
/// A name that is told for good belongs to a block all of whose positions have settled in the table
/// of some sequence since the block was free. A name that waits for a launched step is taken back,
/// or its block is, when that step fails. Positions of a decode row are those of the tokens it
/// gave. Pure; single-threaded.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "messages/kv.hpp"
#include "messages/plan.hpp"

namespace deepinfer {

class publish_watch {
public:
  explicit publish_watch(std::int32_t block_size) : block_size_(block_size) {}

  void launched(const step_plan& plan);
  void settled(const step_result& done);
  /// What the index is told in one message: names first, then what is void.
  void told(const kv_reserve& want);
  /// These blocks are free again.
  void freed(std::span<const block_id> blocks);
  /// The rank, with its pool, is gone.
  void forget();

  /// The first wrong name, as text. Asked when nothing is on its way.
  std::optional<std::string> broken() const;

private:
  struct table {
    std::uint32_t epoch = 0;
    std::vector<block_id> blocks;
    std::int64_t committed = 0;
    std::size_t full = 0;  ///< blocks that are known to be
    bool is_void = false;  ///< a row has failed: what comes after it stands on nothing
  };
  struct launched_row {
    seq_id sequence;
    std::uint32_t epoch = 0;
    row_kind kind = row_kind::decode;
    std::int32_t width = 0;
  };

  void settle_row(const launched_row& row, bool has_failed, std::int32_t tokens);

  std::int64_t block_size_;
  std::map<seq_id, table> tables_;
  std::map<step_id, std::vector<launched_row>> launched_;
  std::set<block_id> full_;
  std::map<block_id, step_id> pending_;
  std::set<step_id> failed_;
  std::optional<std::string> broken_;
};

}  // namespace deepinfer
