#include <doctest/doctest.h>

#include "actors/kv_pool_size.hpp"

using namespace deepinfer;

namespace {

/// Four sequences of 4096 tokens on a machine of 16 GiB; a block is a MiB.
kv_pool_wish wish() {
  kv_pool_wish out;
  out.max_num_seqs = 4;
  out.max_model_len = 4096;
  out.block_size = 64;
  out.blocks_of_one = 65;
  out.block_bytes = 1 << 20;
  out.machine_bytes = std::int64_t{16} << 30;
  return out;
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("a KV pool has what every sequence can use, at most 1 GiB unless more is set") {
  auto of = wish();
  CHECK(size_kv_pool(of)->blocks == 4 * 65);
  of.max_num_seqs = 1000;
  CHECK(size_kv_pool(of)->blocks == 1024);
  of.kv_cache_memory = std::uint64_t{2} << 30;
  CHECK(size_kv_pool(of)->blocks == 2048);
  CHECK(size_kv_pool(of)->warnings.empty());
  of.kv_cache_memory = 5;
  CHECK(
    holds(size_kv_pool(of).error().message, "found 5 bytes, one block of 64 tokens takes 1048576"));
  of.kv_cache_memory.reset();
  of.num_kv_blocks = 70;
  CHECK(size_kv_pool(of)->blocks == 70);
  CHECK(size_kv_pool(of)->warnings.empty());
}

TEST_CASE("memory that the machine has not is said once, with both numbers") {
  auto of = wish();
  of.kv_cache_memory = std::uint64_t{1} << 40;
  const auto size = size_kv_pool(of);
  CHECK(size->blocks == 4 * 65);
  REQUIRE(size->warnings.size() == 1);
  CHECK(holds(size->warnings[0], "found 1.10 TB, the machine has 17.18 GB"));
  CHECK(holds(size->warnings[0], "takes 272.63 MB"));
  of.kv_cache_memory = std::uint64_t{15} << 30;  // more than is used, and there
  CHECK(size_kv_pool(of)->warnings.empty());
}

TEST_CASE("a pool that can't hold one request at full length says so, however it got its size") {
  auto of = wish();
  SUBCASE("blocks") {
    of.num_kv_blocks = 64;
  }
  SUBCASE("memory") {
    of.kv_cache_memory = std::uint64_t{64} << 20;
  }
  SUBCASE("neither") {
    of.block_bytes = 16 << 20;
  }
  const auto size = size_kv_pool(of);
  CHECK(size->blocks == 64);
  REQUIRE(size->warnings.size() == 1);
  CHECK(holds(size->warnings[0], "64 blocks of 64 tokens"));
  CHECK(holds(size->warnings[0], "max_model_len 4096 takes 65"));
}
