// What `fast` numerics cost on the embedded model, and the measure itself.
#include <doctest/doctest.h>

#include <cmath>
#include <limits>

#include "model_fixture.hpp"
#include "runtime/model/logit_error.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// Every recorded prompt of the embedded model with its answer: text as the model knows it.
std::vector<ids> recorded_texts() {
  const auto golden = golden_json(DI_SOURCE_DIR "/examples/models/tiny-v41/goldens.json");
  std::vector<ids> texts;
  for (const auto* kind : {"chat", "raw"})
    for (const auto& it : golden.as_object().at(kind).as_array()) {
      auto text = ids_of(it.as_object().at("prompt_ids"));
      const auto answer = ids_of(it.as_object().at("expected_ids"));
      text.insert(text.end(), answer.begin(), answer.end());
      texts.push_back(std::move(text));
    }
  return texts;
}

std::vector<float> logits_of(numeric_mode mode, const ids& text) {
  auto session = make_session(
    tiny_model(packing_of(mode)),
    {.numeric = mode,
     .max_positions = std::max<std::int32_t>(1, static_cast<std::int32_t>(text.size()))});
  return *session->run_all(inline_stream(), text);
}

}  // namespace

TEST_CASE("fast numerics stay near exact: mean KL at most 0.02 nats, every clear arg-max equal") {
  const std::int64_t vocab = tiny_model()->config.vocab_size;
  std::vector<float> exact, fast;
  for (const auto& text : recorded_texts()) {
    const auto a = logits_of(numeric_mode::exact, text), b = logits_of(numeric_mode::fast, text);
    exact.insert(exact.end(), a.begin(), a.end());
    fast.insert(fast.end(), b.begin(), b.end());
  }
  const auto error = compare_logits(exact, fast, vocab);
  MESSAGE(error.positions, " positions, mean KL ", error.mean_kl, ", most ", error.max_kl,
          ", arg-max equal at ", error.argmax_equal, ", at ", error.clear_and_equal, " of ",
          error.clear, " clear ones");
  CHECK(error.positions > 1000);
  CHECK(error.mean_kl <= 0.02);
  CHECK(error.mean_kl > 0);  // it does round
  CHECK(error.clear > error.positions / 2);
  CHECK(error.clear_and_equal == error.clear);
}

TEST_CASE("the divergence of equal logits is 0, of known ones what the formula says") {
  const std::vector<float> a{0, std::log(3.0f), 1, 1}, b{0, 0, 1, 1};
  const auto same = compare_logits(a, a, 2);
  CHECK(same.positions == 2);
  CHECK(same.mean_kl == doctest::Approx(0).epsilon(1e-12));
  CHECK(same.argmax_equal == 2);
  CHECK(same.clear == 1);
  // p = (1/4, 3/4) against (1/2, 1/2).
  const double kl = 0.25 * std::log(0.5) + 0.75 * std::log(1.5);
  const auto other = compare_logits(a, b, 2);
  CHECK(other.max_kl == doctest::Approx(kl));
  CHECK(other.mean_kl == doctest::Approx(kl / 2));
  CHECK(other.max_difference == doctest::Approx(std::log(3.0)));
  CHECK(other.argmax_equal == 1);
  CHECK(other.clear_and_equal == 0);
  const std::vector<float> broken{0, std::numeric_limits<float>::quiet_NaN(), 1, 1};
  const auto not_finite = compare_logits(broken, broken, 2);
  CHECK(std::isinf(compare_logits(a, broken, 2).mean_kl));
  CHECK(std::isinf(not_finite.mean_kl));
  CHECK(not_finite.argmax_equal == 1);
}
