/// Strong ids: one type per thing that is named by a number, so that none is passed for another.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>

namespace deepinfer {

template <class Tag, class Number>
struct strong_id {
  Number value = 0;

  friend constexpr auto operator<=>(const strong_id&, const strong_id&) = default;
};

using seq_id = strong_id<struct seq_tag, std::uint64_t>;  ///< a sequence, for its whole life
using request_key = strong_id<struct request_tag, std::uint64_t>;  ///< a request, within its node
using step_id = strong_id<struct step_tag, std::uint64_t>;  ///< grows by one per launch, from 1
using rank_id = strong_id<struct rank_tag, std::int32_t>;
using block_id = strong_id<struct block_tag, std::int32_t>;  ///< a KV block of one rank
using slot_id = strong_id<struct slot_tag, std::int32_t>;    ///< a seat in device-resident state
using ticket = strong_id<struct ticket_tag, std::uint64_t>;  ///< one open device promise
using token_id = std::int32_t;                               ///< a vocabulary entry

}  // namespace deepinfer

template <class Tag, class Number>
struct std::hash<deepinfer::strong_id<Tag, Number>> {
  std::size_t operator()(const deepinfer::strong_id<Tag, Number>& id) const noexcept {
    return std::hash<Number>{}(id.value);
  }
};
