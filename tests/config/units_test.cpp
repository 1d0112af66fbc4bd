#include <doctest/doctest.h>

#include <vector>

#include "config/nearest.hpp"
#include "config/units.hpp"

using namespace deepinfer;

TEST_CASE("durations and sizes are read with their unit and written in the shortest exact form") {
  struct unit_case {
    std::string text;
    std::int64_t value;
    std::string written;
  };
  const unit_case durations[] = {{"30s", 30'000, "30s"},    {"500ms", 500, "500ms"},
                                 {"1.5s", 1'500, "1500ms"}, {"2 m", 120'000, "2m"},
                                 {"1h", 3'600'000, "1h"},   {"0", 0, "0"}};
  for (const auto& row : durations) {
    CAPTURE(row.text);
    REQUIRE(parse_milliseconds(row.text));
    CHECK(*parse_milliseconds(row.text) == row.value);
    CHECK(duration_text(row.value) == row.written);
  }
  const unit_case sizes[] = {{"8GiB", std::int64_t{8} << 30, "8GiB"},
                             {"141 GiB", std::int64_t{141} << 30, "141GiB"},
                             {"1.5KiB", 1536, "1536"},
                             {"2GB", 2'000'000'000, "1953125KiB"},
                             {"1000000", 1'000'000, "1000000"},
                             {"0", 0, "0"}};
  for (const auto& row : sizes) {
    CAPTURE(row.text);
    REQUIRE(parse_bytes(row.text));
    CHECK(*parse_bytes(row.text) == row.value);
    CHECK(size_text(row.value) == row.written);
  }
}

TEST_CASE("a number without a known unit, sign or end is no duration and no size") {
  for (const auto* text : {"", "30", "s", "-1s", "1.2.3s", "1e3s", "30sec", "1 000ms", "nan",
                           "infs", "30s ", "99999999999999999999h"}) {
    CAPTURE(text);
    CHECK(!parse_milliseconds(text));
  }
  for (const auto* text : {"", "GiB", "8Gib", "-8GiB", "8 GiB ", "8GiBs", "9999999999TiB"}) {
    CAPTURE(text);
    CHECK(!parse_bytes(text));
  }
}

TEST_CASE("a size that is too large is refused with the limit") {
  const auto large = parse_bytes("9999TiB");
  REQUIRE(!large);
  CHECK(large.error().message.ends_with("at most 8192TiB"));
  CHECK(parse_bytes("8192TiB") == std::int64_t{1} << 53);
}

TEST_CASE("edit distance counts insertions, deletions, replacements and swaps of neighbours") {
  CHECK(edit_distance("depth", "depth") == 0);
  CHECK(edit_distance("dpeth", "depth") == 1);
  CHECK(edit_distance("deth", "depth") == 1);
  CHECK(edit_distance("depths", "depth") == 1);
  CHECK(edit_distance("num-threads", "num_threads") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("kitten", "sitting") == 3);
}

TEST_CASE("a suggestion is the nearest word, and none is made for a word that is not near") {
  const std::vector<std::string> known{"depth", "device", "seed", "block_size"};
  CHECK(nearest_word("detph", known) == "depth");
  CHECK(nearest_word("block-sizes", known) == "block_size");
  CHECK(nearest_word("temperature", known).empty());
  CHECK(nearest_word(std::string(100'000, 'a'), known).empty());
  CHECK(did_you_mean("sed", known, "--") == "; did you mean '--seed'?");
}

TEST_CASE("a key is suggested for its name without a section, or in another one") {
  const std::vector<std::string> known{"server.host", "server.port", "actor.host", "engine.depth",
                                       "observability.log_level"};
  const auto is = [&](const char* word, const std::string& suggestion) {
    CAPTURE(word);
    CHECK(did_you_mean_key(word, known) == suggestion);
  };
  is("log_level", "; did you mean 'observability.log_level'?");
  is("--log-level", "; did you mean 'observability.log_level'?");
  is("log_levle", "; did you mean 'observability.log_level'?");
  is("server.log_level", "; did you mean 'observability.log_level'?");
  is("engine.dpeth", "; did you mean 'engine.depth'?");
  is("host", "; did you mean 'server.host' or 'actor.host'?");
  for (const auto* word : {"", ".", "temperature", "engine."}) is(word, "");
}
