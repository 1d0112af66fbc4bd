// Weights drawn in memory are those of a random checkpoint.
#include "runtime/model/drawn_weights.hpp"

#include <doctest/doctest.h>

#include "model_fixture.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/make_model.hpp"
#include "runtime/model/make_model_shape.hpp"
#include "small_shape.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

bool same_bytes(const tensor_view& a, const tensor_view& b) {
  if ((a.data == nullptr) != (b.data == nullptr)) return false;
  if (!a.data) return true;
  return a.type == b.type && a.shape == b.shape && a.bytes() == b.bytes() &&
         std::equal(a.data, a.data + a.bytes(), b.data);
}

}  // namespace

TEST_CASE("drawn weights are, tensor for tensor, those that a random checkpoint holds") {
  const auto text =
    random_model_config(test::small_shape(), {.noise_token = 255, .class_count = 200}).value();
  const auto config = parse_model_config(text).value();
  const temp_directory folder;
  REQUIRE(write_random_checkpoint({folder.path(), text, 7}));
  check_options options;
  options.engram_classes = 200;
  auto opened = open_checkpoint(folder.path(), options).value();
  checkpoint_weights stored(std::make_shared<const tensor_set>(std::move(opened.tensors)));
  drawn_weights drawn(config, 7);
  drawn_weights others(config, 8);
  CHECK(drawn.total_bytes() == stored.total_bytes());
  int compared = 0, differ = 0;
  for (const auto& tensor : random_tensors(config)) {
    if (tensor.name.ends_with(".scale")) continue;
    CAPTURE(tensor.name);
    auto expected = tensor.shape;
    if (tensor.type == dtype::i8) expected.back() *= 2;
    const bool is_table =
      tensor.name.find(".embed") != std::string::npos && tensor.type == dtype::f8_e4m3;
    const auto scales = is_table ? scale_layout::rows : scale_layout::blocks;
    const auto a = stored.get(tensor.name, expected, scales);
    REQUIRE_MESSAGE(a, a.error().message);
    const auto b = drawn.get(tensor.name, expected, scales).value();
    CHECK(same_bytes(a->values, b.values));
    CHECK(same_bytes(a->scale, b.scale));
    differ += same_bytes(b.values, others.get(tensor.name, expected, scales)->values) ? 0 : 1;
    ++compared;
  }
  CHECK(compared > 50);
  CHECK(differ > compared / 2);
  CHECK(drawn.get("no.such.weight", {1}, scale_layout::blocks).error().code ==
        errc::bad_checkpoint);
}
