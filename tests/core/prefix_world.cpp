#include "tests/core/prefix_world.hpp"

#include <algorithm>
#include <span>

#include <fmt/format.h>

#include "runtime/core/prefix_key.hpp"

namespace deepinfer::test {
namespace {

constexpr std::size_t block_ids = world_block_size;

bool same_hits(const kv_grant& a, const kv_grant& b) {
  return std::ranges::equal(a.hits, b.hits, [](const prefix_hit& x, const prefix_hit& y) {
    return x.sequence == y.sequence && x.epoch == y.epoch && x.blocks == y.blocks &&
           x.pending_first == y.pending_first && x.pending_last == y.pending_last;
  });
}

}  // namespace

world_prompt make_prompt(std::vector<token_id> ids, std::uint64_t salt) {
  world_prompt out;
  auto key = prefix_root(salt);
  for (std::size_t i = 0; i < ids.size(); i += block_ids) {
    key = prefix_next(key, std::span(ids).subspan(i, block_ids));
    out.keys.push_back(key);
  }
  out.ids = std::make_shared<const std::vector<token_id>>(std::move(ids));
  return out;
}

void prefix_world::require(bool truth, const std::string& what) {
  if (!truth && wrong_.empty()) wrong_ = what;
}

prefix_world::content prefix_world::expected(const sequence& of, std::size_t block) const {
  const auto& ids = *(*prompts_)[of.prompt].ids;
  return {ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>((block + 1) * block_ids)};
}

void prefix_world::look_up(std::size_t prompt, std::size_t blocks) {
  const auto& it = (*prompts_)[prompt];
  const auto end = it.keys.begin() + static_cast<std::ptrdiff_t>(blocks);
  want_.lookups.push_back({{asked_.size()}, 7, it.ids, {it.keys.begin(), end}});
  asked_.push_back(prompt);
}

void prefix_world::ask(std::int32_t blocks, std::int32_t evict) {
  want_.blocks += blocks;
  want_.evict += evict;
}

bool prefix_world::may_publish(std::size_t of, std::size_t block) const {
  return !sequences_[of].is_lost && block < sequences_[of].blocks.size();
}

void prefix_world::publish(std::size_t of, std::size_t block) {
  const auto& it = sequences_[of];
  const auto& prompt = (*prompts_)[it.prompt];
  const auto id = it.blocks[block];
  want_.publish.blocks.push_back(id);
  want_.publish.keys.push_back(prompt.keys[block]);
  for (std::size_t i = 0; i < block_ids; ++i)
    want_.publish.ids.push_back((*prompt.ids)[block * block_ids + i]);
  want_.publish.pending.push_back({is_settled(id) ? 0 : written_by_.at(id.value)});
}

void prefix_world::send() {
  const auto naive = naive_.reserve(want_);
  take(pool_.reserve(want_), naive);
  want_ = {.rank = want_.rank};
  asked_.clear();
}

bool prefix_world::may_write(std::size_t of) const {
  const auto& it = sequences_[of];
  return !it.is_lost && !credit_.empty() && it.blocks.size() < (*prompts_)[it.prompt].keys.size();
}

void prefix_world::write(std::size_t of) {
  auto& it = sequences_[of];
  const auto block = credit_.back();
  credit_.pop_back();
  blocks_[block.value] = expected(it, it.blocks.size());
  it.blocks.push_back(block);
  written_by_[block.value] = next_step_;
  launched_.push_back(next_step_++);
}

// What a failed step wrote is nothing; who reads it writes nothing either, and so on.
void prefix_world::lose(std::uint64_t step) {
  std::vector<std::uint64_t> failed{step};
  for (std::size_t i = 0; i < failed.size(); ++i) {
    want_.retract.push_back({failed[i]});
    want_.forget = want_.forget || step % 4 == 0;  // as if it had moved blocks
    for (auto& it : sequences_) {
      const auto bad = std::ranges::find_if(it.blocks, [&](block_id block) {
        const auto by = written_by_.find(block.value);
        return by != written_by_.end() && by->second == failed[i];
      });
      if (bad == it.blocks.end()) continue;
      it.is_lost = true;
      for (auto block = bad; block != it.blocks.end(); ++block) {
        if (is_settled(*block)) continue;  // another sequence wrote it, behind blocks of its own
        blocks_[block->value].clear();
        const auto by = written_by_.at(block->value);
        if (std::ranges::find(failed, by) == failed.end()) failed.push_back(by);
      }
    }
  }
  for (const auto gone : failed) {
    std::erase(launched_, gone);
    std::erase_if(written_by_, [&](const auto& by) { return by.second == gone; });
  }
}

void prefix_world::settle(outcome how) {
  const auto step = launched_.front();
  if (how == outcome::failed) return lose(step);
  launched_.erase(launched_.begin());
  std::erase_if(written_by_, [&](const auto& by) { return by.second == step; });
  if (how == outcome::silent) return;
  for (std::size_t of = 0; of < sequences_.size(); ++of)
    for (std::size_t i = 0; i < sequences_[of].blocks.size(); ++i)
      if (is_settled(sequences_[of].blocks[i]) && may_publish(of, i)) publish(of, i);
}

bool prefix_world::may_release(std::size_t of) const {
  return std::ranges::all_of(sequences_[of].blocks,
                             [&](block_id block) { return is_settled(block); });
}

void prefix_world::release(std::size_t of) {
  send();
  const auto& blocks = sequences_[of].blocks;
  const kv_release done{want_.rank, {blocks.rbegin(), blocks.rend()}, {}};
  sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(of));
  const auto naive = naive_.release(done);
  take(pool_.release(done), naive);
}

void prefix_world::release_credit() {
  send();
  const kv_release done{want_.rank, credit_, {}};
  credit_.clear();
  const auto naive = naive_.release(done);
  take(pool_.release(done), naive);
}

void prefix_world::flush() {
  send();
  const auto naive = naive_.flush();
  take(pool_.flush(), naive);
  require(pool_.cached_blocks() == 0 && pool_.host_entries() == 0, "a flushed cache has prefixes");
}

void prefix_world::take_hit(const prefix_hit& hit) {
  require(hit.sequence.value < asked_.size() && hit.epoch == 7, "an answer to no lookup");
  if (!wrong_.empty()) return;
  sequence of{asked_[hit.sequence.value], hit.blocks};
  for (std::size_t i = 0; i < hit.blocks.size(); ++i) {
    const auto block = hit.blocks[i];
    require(blocks_[block.value] == expected(of, i),
            fmt::format("[I48] block {} was hit and holds something else", block.value));
    if (is_settled(block)) continue;
    const step_id by{written_by_.at(block.value)};
    require(hit.pending_first <= by && by <= hit.pending_last && hit.pending_first != step_id{},
            fmt::format("[I52] block {} waits for step {}, the hit for {} to {}", block.value,
                        by.value, hit.pending_first.value, hit.pending_last.value));
  }
  sequences_.push_back(std::move(of));
}

void prefix_world::take(const kv_grant& real, const kv_grant& naive) {
  require(real.blocks == naive.blocks, "other blocks were granted");
  require(real.slots == naive.slots, "other slots were granted");
  require(real.moves == naive.moves, "other moves were ordered");
  require(same_hits(real, naive), "other blocks were hit");
  require(real.hits.size() == asked_.size(), "a lookup got no answer");
  for (const auto& move : real.moves) {
    if (move.to_host)
      places_[move.host] = blocks_[move.block.value];
    else
      blocks_[move.block.value] = places_[move.host];
    if (move.to_host)
      require(is_settled(move.block),
              fmt::format("block {} was spilled too early", move.block.value));
  }
  for (const auto& hit : real.hits) take_hit(hit);
  for (const auto block : real.blocks) {
    require(pool_.references(block) == 1,
            fmt::format("block {} was granted and shared", block.value));
    blocks_[block.value].clear();
    credit_.push_back(block);
  }
  compare();
}

void prefix_world::compare() {
  pool_.check_invariants();
  require(pool_.counters() == naive_.counters(), "other counts");
  require(pool_.free_blocks() == naive_.free_blocks(), "other blocks are free");
  require(pool_.cached_blocks() == naive_.cached_blocks(), "other blocks are cached");
  require(pool_.held_blocks() == naive_.held_blocks(), "other blocks are held");
  require(pool_.owed_blocks() == naive_.owed_blocks(), "other blocks are owed");
  require(pool_.host_entries() == naive_.host_entries(), "other places are named");
  require(pool_.free_blocks() + pool_.cached_blocks() + pool_.held_blocks() == pool_.total_blocks(),
          "[I12] blocks were lost");
  std::map<std::int32_t, std::int32_t> refs;
  for (const auto& it : sequences_)
    for (const auto block : it.blocks) ++refs[block.value];
  for (const auto block : credit_) ++refs[block.value];
  for (std::int32_t block = 0; block < pool_.total_blocks(); ++block)
    require(pool_.references({block}) == refs[block],
            fmt::format("block {} has {} references, {} hold it", block, pool_.references({block}),
                        refs[block]));
}

std::vector<std::int64_t> prefix_world::state() const {
  auto out = naive_.state();
  const auto add = [&out](const auto& list) {
    out.push_back(static_cast<std::int64_t>(list.size()));
    for (const auto& it : list) out.push_back(static_cast<std::int64_t>(it));
  };
  for (const auto& it : sequences_) {
    out.insert(out.end(), {static_cast<std::int64_t>(it.prompt), it.is_lost});
    out.push_back(static_cast<std::int64_t>(it.blocks.size()));
    for (const auto block : it.blocks) out.push_back(block.value);
  }
  for (const auto block : credit_) out.push_back(block.value);
  for (const auto& [block, step] : written_by_)
    out.insert(out.end(), {block, static_cast<std::int64_t>(step)});
  add(launched_);
  for (const auto* memory : {&blocks_, &places_})
    for (const auto& [number, ids] : *memory) {
      out.push_back(number);
      add(ids);
    }
  out.push_back(static_cast<std::int64_t>(next_step_));
  return out;
}

}  // namespace deepinfer::test
