#include <doctest/doctest.h>

#include "runtime/base/json.hpp"
#include "runtime/base/whole_number.hpp"

using namespace deepinfer;

TEST_CASE("doubles are written as people write them, and read as the same double") {
  const std::pair<double, const char*> table[] = {
    {1.0, "1.0"},      {0.0, "0.0"},       {-0.0, "-0.0"},
    {2.5, "2.5"},      {0.1, "0.1"},       {1e-7, "1e-07"},
    {1e300, "1e+300"}, {-120.0, "-120.0"}, {0.30000000000000004, "0.30000000000000004"},
  };
  for (const auto& [value, text] : table) {
    CHECK(to_text(json::value(value)) == text);
    const auto back = parse_json(text);
    REQUIRE(back);
    CHECK(back->is_double());
    CHECK(back->as_double() == value);
  }
}

TEST_CASE("text of a value is compact and keeps the order of its keys") {
  const std::string text =
    R"({"b":[1,-2,18446744073709551615,[],{}],"a":{"x":null,"y":[true,false]},)"
    R"("\"\n":"é\u0001","d":1.0})";
  const auto value = parse_json(text);
  REQUIRE(value);
  CHECK(to_text(*value) == text);
}

TEST_CASE("whole numbers are those that fit a signed one, whoever made them") {
  for (const auto* text : {"0", "-9223372036854775808", "9223372036854775807"})
    CHECK(to_text(json::value(whole_number(parse_json(text).value()).value())) == text);
  for (const auto* text : {"-0", "1.0", "1e3", "9223372036854775808", "true", "\"1\"", "null"}) {
    CAPTURE(text);
    CHECK(!whole_number(parse_json(text).value()));
  }
  CHECK(whole_number(json::value(std::size_t{7})) == 7);
}
