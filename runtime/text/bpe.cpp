#include "runtime/text/bpe.hpp"

#include <algorithm>
#include <bit>
#include <functional>
#include <limits>

#include "runtime/base/check.hpp"
#include "runtime/base/random.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t short_piece = 24;         // below, scanning all ranks beats a heap
constexpr std::size_t cache_places = 4096;      // times 72 bytes
constexpr std::size_t cache_from_bytes = 2048;  // shorter texts repeat too little to pay for it
constexpr std::uint32_t none = std::numeric_limits<std::uint32_t>::max();

std::uint64_t key_of(token_id left, token_id right) {
  return static_cast<std::uint64_t>(static_cast<std::uint32_t>(left)) << 32 |
         static_cast<std::uint32_t>(right);
}

}  // namespace

bpe_merges::bpe_merges(std::array<token_id, 256> byte_ids, std::size_t merge_count)
  : byte_ids_(byte_ids),
    table_(std::bit_ceil(2 * merge_count + 2)) {
  DI_CHECK(merge_count < no_rank, "{} merges", merge_count);
}

void bpe_merges::add(token_id left, token_id right, token_id product) {
  DI_CHECK(2 * (next_rank_ + std::size_t{1}) <= table_.size(), "more merges than announced");
  const auto key = key_of(left, right);
  auto at = split_mix64(key) & (table_.size() - 1);
  while (table_[at].key != free_key && table_[at].key != key) at = (at + 1) & (table_.size() - 1);
  table_[at] = {key, next_rank_++, product};
}

const bpe_merges::entry* bpe_merges::find(token_id left, token_id right) const {
  const auto key = key_of(left, right);
  for (auto at = split_mix64(key) & (table_.size() - 1); table_[at].key != free_key;
       at = (at + 1) & (table_.size() - 1))
    if (table_[at].key == key) return &table_[at];
  return nullptr;
}

bpe_merges::rank bpe_merges::rank_of(token_id left, token_id right) const {
  const auto* found = find(left, right);
  return found == nullptr ? no_rank : found->at;
}

void bpe_merges::encode(std::string_view piece, scratch& memory, std::vector<token_id>& ids) const {
  if (piece.empty()) return;
  // A rank and a place share one word of the heap.
  DI_CHECK(piece.size() < none, "a piece of {} bytes", piece.size());
  auto* known = memory.place_of(piece);
  if (known != nullptr && std::string_view(known->bytes.data(), known->size) == piece) {
    ids.insert(ids.end(), known->ids.begin(), known->ids.begin() + known->id_count);
    return;
  }
  auto& symbols = memory.symbols_;
  symbols.clear();
  for (const char byte : piece)
    symbols.push_back({byte_ids_[static_cast<unsigned char>(byte)], no_rank, none, none});
  for (std::size_t at = 0; at + 1 < symbols.size(); ++at)
    symbols[at].with_next = rank_of(symbols[at].id, symbols[at + 1].id);
  piece.size() < short_piece ? merge_short(memory) : merge_long(memory);
  for (const auto& symbol : symbols) ids.push_back(symbol.id);
  if (known == nullptr || symbols.size() > known->ids.size()) return;
  known->size = static_cast<std::uint8_t>(piece.size());
  known->id_count = static_cast<std::uint8_t>(symbols.size());
  std::copy(piece.begin(), piece.end(), known->bytes.begin());
  for (std::size_t at = 0; at < symbols.size(); ++at) known->ids[at] = symbols[at].id;
}

void bpe_merges::merge_short(scratch& memory) const {
  auto& symbols = memory.symbols_;
  while (true) {
    const auto best =
      std::min_element(symbols.begin(), symbols.end(),
                       [](const auto& a, const auto& b) { return a.with_next < b.with_next; });
    if (best->with_next == no_rank) return;
    best->id = find(best->id, (best + 1)->id)->product;
    const auto next = symbols.erase(best + 1);
    best->with_next = next == symbols.end() ? no_rank : rank_of(best->id, next->id);
    if (best != symbols.begin()) (best - 1)->with_next = rank_of((best - 1)->id, best->id);
  }
}

void bpe_merges::merge_long(scratch& memory) const {
  auto& symbols = memory.symbols_;
  auto& heap = memory.heap_;
  heap.clear();
  const auto count = static_cast<std::uint32_t>(symbols.size());
  for (std::uint32_t at = 0; at < count; ++at) {
    symbols[at].before = at == 0 ? none : at - 1;
    symbols[at].next = at + 1 == count ? none : at + 1;
    if (symbols[at].with_next != no_rank)
      heap.push_back(std::uint64_t{symbols[at].with_next} << 32 | at);
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>{});
  const auto refresh = [&](std::uint32_t at) {
    const auto next = symbols[at].next;
    symbols[at].with_next = next == none ? no_rank : rank_of(symbols[at].id, symbols[next].id);
    if (symbols[at].with_next == no_rank) return;
    heap.push_back(std::uint64_t{symbols[at].with_next} << 32 | at);
    std::push_heap(heap.begin(), heap.end(), std::greater<>{});
  };
  while (!heap.empty()) {
    const auto best = heap.front();
    std::pop_heap(heap.begin(), heap.end(), std::greater<>{});
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(best);
    // An entry whose symbols have changed since; a rank belongs to one pair, so equal is current.
    if (symbols[at].with_next != best >> 32) continue;
    const auto gone = symbols[at].next;
    symbols[at].id = find(symbols[at].id, symbols[gone].id)->product;
    symbols[at].next = symbols[gone].next;
    if (symbols[gone].next != none) symbols[symbols[gone].next].before = at;
    symbols[gone].with_next = no_rank;
    refresh(at);
    if (symbols[at].before != none) refresh(symbols[at].before);
  }
  std::uint32_t kept = 0;
  for (std::uint32_t at = 0; at != none; at = symbols[at].next) symbols[kept++].id = symbols[at].id;
  symbols.resize(kept);
}

bpe_merges::scratch::scratch(std::size_t text_bytes)
  : cache_(text_bytes >= cache_from_bytes ? cache_places : 0) {}

bpe_merges::scratch::remembered* bpe_merges::scratch::place_of(std::string_view piece) {
  if (cache_.empty() || piece.size() > remembered{}.bytes.size()) return nullptr;
  return &cache_[std::hash<std::string_view>{}(piece) % cache_places];
}

}  // namespace deepinfer
