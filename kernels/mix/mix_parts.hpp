/// Pieces of the hyper-connection's AVX2 twins, for ops that fuse them. Each runs on the calling
/// thread and has the bits of the twin it is a piece of.
/// Not a contract: hyper_connection_avx2.cpp and sublayer_avx2.cpp include it.
#pragma once

#include <cstdint>

#include "kernels/mix/hyper_connection.hpp"
#include "kernels/moe/expert_ffn.hpp"

namespace deepinfer::kernels {

/// Inputs of the mix product that are summed apart before they are added: see fused_product.hpp.
inline constexpr std::int64_t mix_run = 128;

/// One token, entries [begin, end) of the D of its output or of each of its streams.
void combine_part_avx2(const combine_args&, std::int64_t token, std::int64_t begin,
                       std::int64_t end);
void hyper_post_part_avx2(const hyper_post_args&, std::int64_t token, std::int64_t begin,
                          std::int64_t end);
void stream_mean_part_avx2(const stream_mean_args&, std::int64_t token, std::int64_t begin,
                           std::int64_t end);

/// Products and coefficients of tokens [begin, end).
void mix_tokens_avx2(const hyper_mix_args&, std::int64_t begin, std::int64_t end);
/// The same in two pieces: runs [begin, end) of all tokens into `partial`, by any number of
/// threads; then, once every run is there, what follows from them.
void mix_partial_avx2(const hyper_mix_args&, std::int64_t begin, std::int64_t end);
void mix_from_partial_avx2(const hyper_mix_args&);

}  // namespace deepinfer::kernels
