#include "kernels/step/list_queries.hpp"

#include "runtime/base/check.hpp"

namespace deepinfer::kernels {

void list_queries_ref(const stream_ref&, const list_queries_args& args) {
  if (args.rows == 0) return;
  std::int32_t q = 0;
  for (std::int32_t i = 0; i < args.rows; ++i) {
    args.query_begin[i] = q;
    const auto row = args.row[i];
    const auto begin = args.row_begin[row], end = args.row_begin[row + 1];
    const auto first = args.asks[i] == row_asks::nothing      ? end
                       : args.asks[i] == row_asks::last_token ? end - 1
                                                              : begin;
    DI_CHECK(q + end - first <= args.queries, "row {} has {} queries, room for {}", row,
             end - first, args.queries - q);
    for (auto t = begin == end ? end : first; t < end; ++t, ++q) {
      args.token[q] = t;
      args.query_slot[q] = args.slot[row];
      args.position[q] = args.first_position[row] + t - begin + 1;
      args.draft[q] = t + 1 < end ? args.token_id[t + 1] : -1;
    }
  }
  args.query_begin[args.rows] = q;
  for (; q < args.queries; ++q) {
    args.token[q] = args.query_slot[q] = args.draft[q] = -1;
    args.position[q] = 0;
  }
}

}  // namespace deepinfer::kernels
