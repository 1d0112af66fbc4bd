// Which checkpoints are the same model and which are not.
#include "runtime/model/checkpoint_identity.hpp"

#include <doctest/doctest.h>

#include <set>

#include "runtime/base/file.hpp"
#include "runtime/model/make_model.hpp"
#include "runtime/model/make_model_shape.hpp"
#include "small_shape.hpp"
#include "tests/support/temp_directory.hpp"
#include "tests/support/tensor_writer.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

constexpr model_texts texts{"{}", "words"};

std::string identity_of(const std::string& directory, const model_texts& with = texts) {
  const auto set = tensor_set::open(directory);
  REQUIRE_MESSAGE(set, set.error().message);
  return checkpoint_identity(with, *set);
}

void write_random(const std::string& directory, std::uint64_t seed, std::uint64_t shard_bytes) {
  const auto config =
    random_model_config(small_shape(), {.noise_token = 255, .class_count = 200}).value();
  const auto written = write_random_checkpoint({directory, config, seed, shard_bytes});
  REQUIRE_MESSAGE(written, written.error().message);
}

std::string identity_of_tensors(const std::vector<written_tensor>& tensors) {
  const temp_directory here;
  REQUIRE(write_file(here.path() + "/model.safetensors", safetensors_file(tensors)));
  return identity_of(here.path());
}

}  // namespace

TEST_CASE("weights drawn from another seed are another model, cut into other shards they are not") {
  const temp_directory one, same, sharded, other;
  constexpr std::uint64_t whole = 1 << 30, pieces = 1 << 16;
  write_random(one.path(), 1, whole);
  write_random(same.path(), 1, whole);
  write_random(sharded.path(), 1, pieces);
  write_random(other.path(), 2, whole);
  REQUIRE(tensor_set::open(sharded.path())->is_sharded());
  CHECK(identity_of(same.path()) == identity_of(one.path()));
  CHECK(identity_of(sharded.path()) == identity_of(one.path()));
  CHECK(identity_of(other.path()) != identity_of(one.path()));
  CHECK(identity_of(one.path(), {"{ }", "words"}) != identity_of(one.path()));
  CHECK(identity_of(one.path(), {"{}", "word"}) != identity_of(one.path()));
  CHECK(identity_of(one.path(), {"{}words", ""}) != identity_of(one.path()));
}

TEST_CASE("names, types, shapes and values of a tensor are its model's") {
  const std::vector<float> values(64, 1.0f);
  auto changed = values;
  changed.back() = 2.0f;
  auto middle = values;
  middle[32] = 2.0f;
  const auto tensor = [](const std::string& name, std::vector<std::int64_t> shape,
                         const std::vector<float>& of, dtype type = dtype::f32) {
    return written_tensor{name, type, std::move(shape), bytes_of_values(of)};
  };
  std::set<std::string> seen;
  CHECK(seen.insert(identity_of_tensors({tensor("a", {64}, values)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("b", {64}, values)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("a", {8, 8}, values)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("a", {64}, values, dtype::i32)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("a", {64}, changed)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("a", {64}, middle)})).second);
  CHECK(seen.insert(identity_of_tensors({tensor("a", {0}, {}), tensor("b", {64}, values)})).second);
  CHECK(seen.insert(drawn_identity(texts, 1)).second);
  CHECK(seen.insert(drawn_identity(texts, 2)).second);
  CHECK_FALSE(seen.insert(drawn_identity(texts, 1)).second);
}
