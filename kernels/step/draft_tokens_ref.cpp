#include "kernels/step/draft_tokens.hpp"

namespace deepinfer::kernels {

void draft_tokens_ref(const stream_ref& stream, const draft_tokens_args& args) {
  stream.for_ranges(args.sequences, [&args](std::int64_t begin, std::int64_t end) {
    for (auto s = begin; s < end; ++s) {
      const bool is_padding = args.slot[s] < 0 || args.position[s] < 0;
      const auto first = s * args.drafts;
      for (std::int32_t i = 0; i < args.drafts; ++i) {
        const auto t = first + i;
        args.token_id[t] = i == 0 && !is_padding ? args.anchor[s] : args.noise;
        args.token_slot[t] = is_padding ? -1 : args.slot[s];
        args.token_position[t] = is_padding ? -1 : args.position[s] + 1 + i;
        args.row_token[t] = static_cast<std::int32_t>(first);
        args.row_first[t] = is_padding ? -1 : args.position[s] + 1;
      }
    }
  });
}

}  // namespace deepinfer::kernels
