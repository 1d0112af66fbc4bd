#include <doctest/doctest.h>

#include <array>
#include <functional>
#include <limits>
#include <map>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/json_fields.hpp"

using namespace deepinfer;

namespace {

constexpr auto largest = std::numeric_limits<std::int64_t>::max();

/// What a reader makes of the field "x": its value as text, "absent", or its error's message.
using reader = std::function<std::string(json_fields&)>;

std::string text_of(const json_fields& fields) {
  return to_text(json::value(fields.entries()));
}
template <class T>
std::string text_of(const T& value) {
  return fmt::format("{}", value);
}
template <class T>
std::string text_of(const std::vector<T>& values) {
  return fmt::format("[{}]", fmt::join(values, " "));
}
template <class T>
std::string text_of(const std::optional<T>& value) {
  return value ? text_of(*value) : "absent";
}
std::string text_of(const std::vector<json_fields>& list) {
  std::string out;
  for (const auto& fields : list) out += fields.path("y") + text_of(fields) + " ";
  return out;
}

template <class Read>
reader reads(Read read) {
  return [read](json_fields& fields) {
    const auto value = read(fields);
    if (value) return text_of(*value);
    CHECK(value.error().code == errc::invalid_argument);
    CHECK(value.error().message.starts_with(value.error().param + ": "));
    return value.error().message;
  };
}

const std::map<std::string, reader>& readers() {
  static const std::map<std::string, reader> table{
    {"text", reads([](auto& it) { return it.text("x"); })},
    {"flag", reads([](auto& it) { return it.flag("x", true); })},
    {"number", reads([](auto& it) { return it.number("x", -2.0, 2.5); })},
    {"positive", reads([](auto& it) { return it.positive("x", 1.0); })},
    {"integer", reads([](auto& it) { return it.integer("x", -1, 20); })},
    {"seed", reads([](auto& it) { return it.integer("x", 0, largest); })},
    {"whole", reads([](auto& it) { return it.whole("x", 1); })},
    {"object", reads([](auto& it) { return it.object("x"); })},
    {"required_text", reads([](auto& it) { return it.required_text("x"); })},
    {"required_object", reads([](auto& it) { return it.required_object("x"); })},
    {"objects", reads([](auto& it) { return it.objects("x", 2); })},
    {"texts", reads([](auto& it) { return it.texts("x", 2); })},
    {"ids", reads([](auto& it) { return it.ids("x", 2); })},
  };
  return table;
}

std::string read(const std::string& name, const std::string& body) {
  const auto value = parse_json(body).value();
  json_fields fields(value.get_object());
  return readers().at(name)(fields);
}

struct row {
  const char* reader;
  const char* value;  ///< of the field "x"
  const char* found;
};

void check(std::span<const row> table) {
  for (const auto& it : table) {
    CAPTURE(it.reader);
    CAPTURE(it.value);
    CHECK(read(it.reader, fmt::format(R"({{"x":{}}})", it.value)) == it.found);
  }
}

}  // namespace

TEST_CASE("json fields: what is of the right type and within its range is read") {
  check(std::to_array<row>({
    {"text", R"("")", ""},
    {"text", R"("aé\n")", "aé\n"},
    {"flag", "false", "false"},
    {"flag", "true", "true"},
    {"number", "-2", "-2"},
    {"number", "2.5", "2.5"},
    {"positive", "1e-300", "1e-300"},
    {"positive", "1", "1"},
    {"integer", "-1", "-1"},
    {"integer", "20", "20"},
    {"seed", "9223372036854775807", "9223372036854775807"},
    {"whole", "1", "1"},
    {"whole", "18446744073709551615", "9223372036854775807"},  // the bound comes later
    {"object", "{}", "{}"},
    {"object", R"({"y":1})", R"({"y":1})"},
    {"required_text", R"("")", ""},
    {"required_object", R"({"y":1})", R"({"y":1})"},
    {"objects", "[]", ""},
    {"objects", R"([{"y":1},{}])", R"(x[0].y{"y":1} x[1].y{} )"},
    {"texts", R"([])", "[]"},
    {"texts", R"(["a","b"])", "[a b]"},
    {"ids", "[0,2147483647]", "[0 2147483647]"},
  }));
}

TEST_CASE("json fields: a wrong type is refused with the place, what was found and expected") {
  check(std::to_array<row>({
    {"text", "1", "x: found 1, expected a string"},
    {"text", "{}", "x: found an object, expected a string"},
    {"text", R"(["a"])", "x: found a list, expected a string"},
    {"flag", "0", "x: found 0, expected true or false"},
    {"flag", R"("true")", R"(x: found "true", expected true or false)"},
    {"number", R"("1")", R"(x: found "1", expected a number from -2 to 2.5)"},
    {"number", "true", "x: found true, expected a number from -2 to 2.5"},
    {"positive", R"("1")", R"(x: found "1", expected a number above 0, at most 1)"},
    {"integer", "1.0", "x: found 1.0, expected a whole number from -1 to 20"},
    {"integer", "-0", "x: found -0.0, expected a whole number from -1 to 20"},
    {"integer", "[1]", "x: found a list, expected a whole number from -1 to 20"},
    {"whole", "1.5", "x: found 1.5, expected a whole number, at least 1"},
    {"whole", R"("1")", R"(x: found "1", expected a whole number, at least 1)"},
    {"object", "[]", "x: found a list, expected an object"},
    {"required_text", "false", "x: found false, expected a string"},
    {"required_object", R"("y")", R"(x: found "y", expected an object)"},
    {"objects", "{}", "x: found an object, expected a list"},
    {"objects", "[{},7]", "x[1]: found 7, expected an object"},
    {"objects", "[null]", "x[0]: found null, expected an object"},
    {"texts", R"("a")", R"(x: found "a", expected a list of strings)"},
    {"texts", R"(["a",1])", "x[1]: found 1, expected a string"},
    {"ids", "1", "x: found 1, expected a list of token ids"},
    {"ids", R"([1,"2"])", R"(x[1]: found "2", expected a token id from 0)"},
    {"ids", "[1.5]", "x[0]: found 1.5, expected a token id from 0"},
    {"ids", "[[1]]", "x[0]: found a list, expected a token id from 0"},
  }));
}

TEST_CASE("json fields: what is out of its range is refused with the bounds") {
  check(std::to_array<row>({
    {"number", "-2.5", "x: found -2.5, expected a number from -2 to 2.5"},
    {"number", "2.6", "x: found 2.6, expected a number from -2 to 2.5"},
    {"positive", "0", "x: found 0, expected a number above 0, at most 1"},
    {"positive", "1.5", "x: found 1.5, expected a number above 0, at most 1"},
    {"integer", "-2", "x: found -2, expected a whole number from -1 to 20"},
    {"integer", "21", "x: found 21, expected a whole number from -1 to 20"},
    {"seed", "9223372036854775808",
     "x: found 9223372036854775808, expected a whole number from 0 to 9223372036854775807"},
    {"whole", "0", "x: found 0, expected a whole number, at least 1"},
    {"objects", "[{},{},{}]", "x: found 3 entries, expected at most 2"},
    {"texts", R"(["a","b","c"])", "x: found 3 entries, expected at most 2"},
    {"ids", "[1,2,3]", "x: found 3 entries, expected at most 2"},
    {"ids", "[-1]", "x[0]: found -1, expected a token id from 0"},
    {"ids", "[0,2147483648]", "x[1]: found 2147483648, expected a token id from 0"},
    {"ids", "[18446744073709551615]",
     "x[0]: found 18446744073709551615, expected a token id from 0"},
  }));
}

TEST_CASE("json fields: null counts as absent, but for a field that must be there") {
  const std::map<std::string, std::string> absent{
    {"flag", "true"}, {"objects", ""}, {"texts", "[]"}, {"ids", "[]"}};
  for (const auto& [name, unused] : readers()) {
    CAPTURE(name);
    if (name.starts_with("required")) {
      CHECK(read(name, "{}") == "x: is missing");
      CHECK(read(name, R"({"x":null})").starts_with("x: found null, expected "));
      continue;
    }
    const auto found = absent.find(name);
    const auto expected = found == absent.end() ? "absent" : found->second;
    CHECK(read(name, "{}") == expected);
    CHECK(read(name, R"({"x":null})") == expected);
  }
  const auto value = parse_json(R"({"x":null})").value();
  json_fields fields(value.get_object());
  CHECK(fields.find("x") == nullptr);
  REQUIRE(fields.given("x") != nullptr);
  CHECK(fields.given("x")->is_null());
  CHECK(fields.given("y") == nullptr);
}

TEST_CASE("json fields: an error names its field by the path from the body") {
  const auto value =
    parse_json(R"({"tools":[{},{"function":{"name":7,"ids":[1,-1],"list":[{},3]}}]})").value();
  json_fields body(value.get_object());
  auto tools = body.objects("tools", 9).value();
  auto function = tools.at(1).required_object("function").value();
  CHECK(function.path("name") == "tools[1].function.name");
  const auto name = function.text("name");
  REQUIRE_FALSE(name);
  CHECK(name.error().param == "tools[1].function.name");
  CHECK(name.error().message == "tools[1].function.name: found 7, expected a string");
  CHECK(function.ids("ids", 9).error().param == "tools[1].function.ids[1]");
  CHECK(function.objects("list", 9).error().param == "tools[1].function.list[1]");
  CHECK(tools.at(0).required_object("function").error().message == "tools[0].function: is missing");
  CHECK(body.ids_of(json::array{1, "2"}, "prompt[3]").error().message ==
        "prompt[3][1]: found \"2\", expected a token id from 0");
}

TEST_CASE("json fields: what nobody has asked for is unknown, with its path and in its order") {
  using names = std::vector<std::string>;
  const auto value =
    parse_json(R"({"d":1,"a":"text","n":null,"o":{"p":1,"q":2},"e":[],"w":7})").value();
  json_fields fields(value.get_object());
  CHECK(fields.unknown() == names{"d", "a", "n", "o", "e", "w"});
  CHECK(fields.text("a"));
  CHECK(fields.text("n"));       // null and of no matter is known as well
  CHECK(fields.text("absent"));  // and what is asked for need not be there
  CHECK_FALSE(fields.text("w"));
  auto inner = fields.object("o").value().value();
  CHECK(fields.unknown() == names{"d", "e"});
  CHECK(inner.flag("q", false).error().param == "o.q");
  CHECK(inner.unknown() == names{"o.p"});
  CHECK(fields.given("e"));
  CHECK(fields.find("d"));
  CHECK(fields.unknown().empty());
  const json::object empty;
  CHECK(json_fields(empty).unknown().empty());
}

TEST_CASE("json fields: no error repeats a long text, and none is cut within a character") {
  const std::string name(99, 'n');
  std::string text = "a";
  while (text.size() < (1 << 20)) text += "é€";
  const json::object object{{"x", text}, {name + "é€", 1}};
  json_fields fields(object);
  const auto wrong = fields.integer("x", 0, 1);
  REQUIRE_FALSE(wrong);
  std::string most = "a";
  for (int i = 0; i < 19; ++i) most += "é€";
  most += "é";  // 98 bytes
  CHECK(wrong.error().message ==
        "x: found \"" + most + "...\", expected a whole number from 0 to 1");
  const auto long_name = fields.text(name + "é€");
  REQUIRE_FALSE(long_name);
  CHECK(long_name.error().param == name + "...");
  CHECK(long_name.error().message == name + "...: found 1, expected a string");
  CHECK(shown_value("a\nb") == "\"a b\"");
  CHECK(shown_value(json::array(1000, json::value("x"))) == "a list");
}

TEST_CASE("json fields: a key is a token id where it is decimal text of one") {
  const std::pair<const char*, std::optional<token_id>> table[] = {
    {"0", 0},
    {"2147483647", 2147483647},
    {"2147483648", std::nullopt},
    {"-1", std::nullopt},
    {"+1", std::nullopt},
    {" 1", std::nullopt},
    {"1 ", std::nullopt},
    {"1.0", std::nullopt},
    {"", std::nullopt},
    {"x", std::nullopt},
  };
  for (const auto& [key, id] : table) {
    CAPTURE(key);
    CHECK(token_id_of(key) == id);
  }
}
