#include <doctest/doctest.h>

#include "tests/kernels/sampling_support.hpp"

using namespace deepinfer;
using namespace deepinfer::kernels;

namespace {

constexpr float masked = -std::numeric_limits<float>::infinity();

// Runs the op; the history is prompt 0 1 0, outputs 2 2 0.
std::vector<float> adjust(const slot_sampling& sampling, std::vector<float> x,
                          const std::uint32_t* mask = nullptr) {
  // Blocks of two, handed out out of order; the second one belongs to nobody.
  const std::int32_t history[] = {2, 0, 0, 1, -1, -1, 0, 2};
  const std::int32_t table[] = {1, 3, 0};
  std::vector<std::uint32_t> counts(x.size(), 0);
  std::vector<std::int32_t> touched(x.size());
  adjust_logits_args args{x.data(),
                          static_cast<std::int32_t>(x.size()),
                          6,
                          &sampling,
                          history,
                          table,
                          2,
                          mask,
                          counts.data(),
                          touched.data()};
  CHECK(adjust_logits_ref(args) == sample_status::ok);
  CHECK(counts == std::vector<std::uint32_t>(x.size(), 0));  // ready for the next row
  return x;
}

slot_sampling after_prompt_of_three() {
  slot_sampling s;
  s.prompt_tokens = 3;
  return s;
}

}  // namespace

TEST_CASE("presence counts an output once, frequency each time, and neither looks at the prompt") {
  auto s = after_prompt_of_three();
  s.presence_penalty = 0.5f;
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{0.5f, 1, 0.5f, 1});
  s.presence_penalty = 0.0f;
  s.frequency_penalty = 0.25f;
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{0.75f, 1, 0.5f, 1});
  s.frequency_penalty = -0.25f;
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{1.25f, 1, 1.5f, 1});
}

TEST_CASE("repetition divides positive and multiplies negative logits, prompt included") {
  auto s = after_prompt_of_three();
  s.repetition_penalty = 2.0f;
  CHECK(adjust(s, {4, -4, 1, 3}) == std::vector<float>{2, -8, 0.5f, 3});
  s.frequency_penalty = 1.0f;  // after it, not before
  CHECK(adjust(s, {4, -4, 1, 3}) == std::vector<float>{1, -8, -1.5f, 3});
}

TEST_CASE("bias comes before the penalties, twice listed counts twice, foreign ids are ignored") {
  auto s = after_prompt_of_three();
  const token_bias bias[] = {{0, 3.0f}, {0, 4.0f}, {3, -1.0f}, {77, 5.0f}, {-1, 5.0f}};
  s.bias = bias;
  s.bias_count = 5;
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{8, 1, 1, 0});
  s.repetition_penalty = 2.0f;
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{4, 0.5f, 0.5f, 0});
}

TEST_CASE("stop ids are masked before min_tokens outputs and not from then on [I42]") {
  auto s = after_prompt_of_three();  // three outputs so far
  s.stop_count = 10;
  const std::int32_t more[] = {9, 3};
  for (int k = 0; k < 8; ++k) s.stop_ids[k] = 1;
  s.stop_ids[7] = 123456;  // a stop id the vocabulary lacks
  s.more_stop_ids = more;
  s.min_tokens = 4;
  CHECK(adjusts_logits(s, 6, false));
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{1, masked, 1, masked});
  s.min_tokens = 3;
  CHECK_FALSE(adjusts_logits(s, 6, false));
  CHECK(adjust(s, {1, 1, 1, 1}) == std::vector<float>{1, 1, 1, 1});
}

TEST_CASE("a grammar mask leaves exactly its ids, past a word's end too") {
  std::vector<float> x(70, 1.0f);
  const std::uint32_t mask[] = {0xffffffffu, 1u << 31, 1u << 5};
  const auto out = adjust(after_prompt_of_three(), x, mask);
  for (std::size_t id = 0; id < out.size(); ++id) {
    const bool is_allowed = id < 32 || id == 63 || id == 69;
    CHECK(out[id] == (is_allowed ? 1.0f : masked));
  }
}

TEST_CASE("an id outside the vocabulary in the history fails the row, counts stay zero") {
  auto s = after_prompt_of_three();
  s.repetition_penalty = 1.5f;
  for (const std::int32_t bad : {-1, 4, 1 << 30}) {
    const std::int32_t history[] = {0, 1, bad, 2};
    const std::int32_t table[] = {0};
    std::vector<float> x(4, 1.0f);
    std::vector<std::uint32_t> counts(4, 0);
    std::vector<std::int32_t> touched(4);
    CHECK(adjust_logits_ref({x.data(), 4, 4, &s, history, table, 4, nullptr, counts.data(),
                             touched.data()}) == sample_status::bad_history);
    CHECK(counts == std::vector<std::uint32_t>(4, 0));
  }
}
