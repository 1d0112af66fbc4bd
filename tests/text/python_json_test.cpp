// Numbers and strings as the prompts spell them.
#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <cmath>
#include <cstdlib>

#include "runtime/base/random.hpp"
#include "runtime/text/python_json.hpp"

using namespace deepinfer;

TEST_CASE("doubles have the shortest digits, a point or an exponent, and their sign") {
  struct number_case {
    const char* written;
    const char* python;
    const char* plain;
  };
  const number_case table[] = {
    {"1.0", "1.0", "1.0"},
    {"-0", "-0.0", "-0.0"},
    {"1e5", "100000.0", "100000.0"},
    {"1e15", "1000000000000000.0", "1000000000000000.0"},
    {"1e16", "1e+16", "1e+16"},
    {"123456789012345680.0", "1.2345678901234568e+17", "1.2345678901234568e+17"},
    {"0.0001", "0.0001", "0.0001"},
    {"1e-5", "1e-05", "0.00001"},
    {"123e-7", "1.23e-05", "0.0000123"},
    {"1e-6", "1e-06", "1e-6"},
    {"1.5E-7", "1.5e-07", "1.5e-7"},
    {"5e-324", "5e-324", "5e-324"},
    {"1.7976931348623157e308", "1.7976931348623157e+308", "1.7976931348623157e+308"},
    {"18446744073709551615", "18446744073709551615", "18446744073709551615"},
    {"18446744073709551616", "1.8446744073709552e+19", "1.8446744073709552e+19"},
    {"-9223372036854775809", "-9.223372036854776e+18", "-9.223372036854776e+18"},
  };
  for (const auto& row : table) {
    CAPTURE(row.written);
    const auto value = parse_json(row.written);
    REQUIRE(value);
    CHECK(python_json(*value, json_numbers::python) == row.python);
    CHECK(python_json(*value, json_numbers::plain) == row.plain);
  }
}

TEST_CASE("any double reads back as itself in both spellings") {
  std::size_t checked = 0;
  for (std::uint64_t i = 0; i < 20000; ++i) {
    const auto number = std::bit_cast<double>(split_mix64(i));
    if (!std::isfinite(number)) continue;
    for (const auto style : {json_numbers::python, json_numbers::plain}) {
      std::string text;
      append_json_double(number, style, text);
      const auto read = parse_json(text);
      REQUIRE(read);
      CHECK(read->get_double() == number);
    }
    ++checked;
  }
  CHECK(checked > 19000);
}

TEST_CASE("a number beyond double is an error, one below it is zero") {
  CHECK_FALSE(parse_json("1e400"));
  CHECK_FALSE(parse_json("[-1e400]"));
  CHECK(parse_json("1e-400")->get_double() == 0.0);
}

TEST_CASE("strings escape quotes, backslashes and controls, and nothing else") {
  const auto value =
    parse_json("{\"k\":[1,true,null],\"s\":\"\\u00e9\\u2028\\u007f\\u0001\\/\\b\\f\\t<&>\"}");
  REQUIRE(value);
  CHECK(python_json(*value) ==
        "{\"k\": [1, true, null], \"s\": \"é\u2028\x7f\\u0001/\\b\\f\\t<&>\"}");
}
