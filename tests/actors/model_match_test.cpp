#include <doctest/doctest.h>

#include "actors/model_match.hpp"

using namespace deepinfer;

namespace {

model_info model_of(std::vector<std::string> names, std::int32_t max_model_len) {
  model_info out;
  out.names = std::move(names);
  out.max_model_len = max_model_len;
  return out;
}

}  // namespace

TEST_CASE("a node may be given what one with the same names and no longer context takes") {
  const auto here = model_of({"a", "b"}, 2048);
  CHECK(!mismatch_of(here, here));
  CHECK(!mismatch_of(here, model_of({"c", "b", "a"}, 2048)));
  CHECK(!mismatch_of(here, model_of({"a", "b"}, 4096)));
}

TEST_CASE("another model, a name too few and a shorter context are told apart, with both values") {
  const auto here = model_of({"a", "b"}, 2048);
  CHECK(mismatch_of(here, model_of({"c"}, 2048)) == "it serves c, expected a, b");
  CHECK(mismatch_of(here, model_of({"a"}, 2048)) == "it serves a, expected a, b");
  CHECK(mismatch_of(here, model_of({"a", "b"}, 128)) ==
        "its context holds 128 tokens, expected at least 2048");
}

TEST_CASE("the same names over other weights are told apart, where both say which they are") {
  auto here = model_of({"a"}, 64);
  auto there = here;
  here.identity = "1";
  CHECK(!mismatch_of(here, there));  // of an older build
  CHECK(!mismatch_of(there, here));
  there.identity = "2";
  CHECK(mismatch_of(here, there) ==
        "it has other weights, another config or another tokenizer: its model is 2, expected 1");
  there.identity = "1";
  here.fingerprint = "di_1";  // other settings, the same model
  there.fingerprint = "di_2";
  CHECK(!mismatch_of(here, there));
}
