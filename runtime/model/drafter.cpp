#include "runtime/model/drafter.hpp"

#include <algorithm>
#include <cmath>

#include "kernels/sampling/draw_drafts.hpp"
#include "kernels/sampling/filter_row.hpp"
#include "kernels/sampling/sample_rows.hpp"
#include "kernels/step/ngram_drafts.hpp"
#include "runtime/model/thread_scratch.hpp"

namespace deepinfer {

namespace {

class ngram_drafter final : public drafter {
public:
  explicit ngram_drafter(const kv_state& state) : state_(state) {}

  bool has_confidences() const override { return false; }
  void draft(const stream_ref& stream, const draft_rows& rows) override {
    kernels::ngram_drafts_ref(stream,
                              {rows.count, rows.drafts, rows.slot, rows.position, rows.anchor,
                               state_.tokens.data(), state_.tables.data(),
                               state_.layout.table_stride, state_.layout.block_size, rows.ids});
  }

private:
  const kv_state& state_;
};

class dspark_drafter final : public drafter, private draft_chooser {
public:
  dspark_drafter(const runner_config& config, deepseek_v41& model, kv_state& state)
    : model_(model),
      state_(state),
      keeps_probs_(config.acceptance == acceptance_rule::rejection),
      place_(config.max_num_seqs),
      position_(config.max_num_seqs),
      sampling_(config.max_num_seqs),
      chosen_(config.max_num_seqs),
      status_(config.max_num_seqs) {
    if (keeps_probs_)
      probs_ = lazy_array<float>(std::int64_t{config.state_slots} * config.num_drafts *
                                 model.config().vocab_size);
  }

  bool has_confidences() const override { return true; }
  const float* probs() const override { return keeps_probs_ ? probs_.data() : nullptr; }

  void draft(const stream_ref& stream, const draft_rows& rows) override {
    rows_ = rows;
    for (std::int32_t i = 0; i < rows.count; ++i) {
      place_[i] = rows.slot[i] < 0 ? -1 : i;
      if (rows.slot[i] < 0) continue;
      auto& sampling = sampling_[i];
      sampling = rows.sampling[rows.slot[i]];
      sampling.presence_penalty = sampling.frequency_penalty = 0;
      sampling.repetition_penalty = 1;
      sampling.logprobs = -1;
    }
    draft_pass pass;
    pass.sequences = rows.count;
    pass.drafts = rows.drafts;
    pass.slot = rows.slot;
    pass.position = rows.position;
    pass.anchor = rows.anchor;
    pass.chooser = this;
    pass.ids = rows.ids;
    pass.confidence = rows.confidence;
    model_.draft(stream, pass, state_);
    for (std::int64_t i = 0; i < std::int64_t{rows.count} * rows.drafts; ++i)
      rows.confidence[i] = 1.0f / (1.0f + std::exp(-rows.confidence[i]));
  }

private:
  /// The anchor stands at position + 1, draft i at position + 2 + i.
  void choose(const stream_ref& stream, std::int32_t draft, std::int64_t first, std::int64_t count,
              const float* logits, std::int64_t logits_stride, std::int32_t* ids,
              std::int64_t id_stride) override {
    for (auto i = first; i < first + count; ++i) position_[i] = rows_.position[i] + 2 + draft;
    if (keeps_probs_)
      draw(stream, draft, first, count, logits, logits_stride, ids, id_stride);
    else
      sample(stream, first, count, logits, logits_stride, ids, id_stride);
  }

  void sample(const stream_ref& stream, std::int64_t first, std::int64_t count, const float* logits,
              std::int64_t logits_stride, std::int32_t* ids, std::int64_t id_stride) {
    const auto vocab = model_.config().vocab_size;
    kernels::sample_rows_args args;
    args.logits = logits;
    args.logits_stride = logits_stride;
    args.slots = place_.data() + first;
    args.positions = position_.data() + first;
    args.sampling = sampling_.data();
    args.rows = static_cast<std::int32_t>(count);
    args.vocab = vocab;
    args.ids = chosen_.data();
    args.status = status_.data();
    args.scratch = scratch_.of(stream, kernels::sample_rows_scratch_bytes(vocab, 1));
    model_.ops().sample_rows(stream, args);
    // The next draft looks this one up, also where its sampling failed.
    for (std::int64_t i = 0; i < count; ++i) ids[i * id_stride] = std::max(chosen_[i], 0);
  }

  void draw(const stream_ref& stream, std::int32_t draft, std::int64_t first, std::int64_t count,
            const float* logits, std::int64_t logits_stride, std::int32_t* ids,
            std::int64_t id_stride) {
    const auto vocab = model_.config().vocab_size;
    kernels::draw_drafts_args args;
    args.logits = logits;
    args.logits_stride = logits_stride;
    args.slot = rows_.slot + first;
    args.position = position_.data() + first;
    args.sampling = sampling_.data() + first;
    args.rows = static_cast<std::int32_t>(count);
    args.vocab = vocab;
    args.draft = draft;
    args.drafts_max = rows_.drafts;
    args.probs = probs_.data();
    args.id = ids;
    args.id_stride = id_stride;
    args.scratch = scratch_.of(stream, kernels::filter_scratch_bytes(vocab));
    kernels::draw_drafts_ref(stream, args);
  }

  deepseek_v41& model_;
  kv_state& state_;
  const bool keeps_probs_;
  draft_rows rows_;                              ///< of the pass that runs
  lazy_array<std::int32_t> place_, position_;    ///< [rows]
  lazy_array<kernels::slot_sampling> sampling_;  ///< [rows] what the drafts are drawn with
  lazy_array<std::int32_t> chosen_;              ///< [rows]
  lazy_array<kernels::sample_status> status_;    ///< [rows]
  lazy_array<float> probs_;                      ///< [slots, drafts, vocab]
  thread_scratch scratch_;
};

}  // namespace

std::unique_ptr<drafter> make_drafter(const runner_config& config, deepseek_v41& model,
                                      kv_state& state) {
  switch (config.drafter) {
  case drafter_kind::none: break;
  case drafter_kind::dspark: return std::make_unique<dspark_drafter>(config, model, state);
  case drafter_kind::ngram: return std::make_unique<ngram_drafter>(state);
  }
  return nullptr;
}

result<void> check_drafter(const runner_config& config, const model_config& model) {
  if (config.drafter == drafter_kind::none) return {};
  if (config.num_drafts < 1)
    return fail(errc::invalid_argument, "num_drafts: found 0, expected at least 1 for a drafter");
  if (config.drafter == drafter_kind::dspark && !model.has_draft())
    return fail(
      errc::invalid_argument,
      "drafter: found dspark, expected one of this checkpoint, which has no draft stages");
  return {};
}

}  // namespace deepinfer
