#include <doctest/doctest.h>

#include "runtime/base/quoted.hpp"

using namespace deepinfer;

TEST_CASE("a text is cut before the character that does not fit") {
  const std::pair<std::size_t, const char*> table[] = {
    {0, ""}, {1, "a"}, {2, "a"}, {3, "aé"}, {5, "aé"}, {6, "aé€"}, {9, "aé€"}, {10, "aé€😀"},
  };
  for (const auto& [most, left] : table) {
    CAPTURE(most);
    CHECK(cut_utf8("aé€😀", most) == left);
  }
  CHECK(cut_utf8("aé", 100) == "aé");
}

TEST_CASE("what is left out shows as three dots, and only that") {
  CHECK(shortened("four", 4) == "four");
  CHECK(shortened("fives", 4) == "five...");
  CHECK(shortened("ééé", 3) == "é...");
  CHECK(shortened(std::string(100, 'x')) == std::string(100, 'x'));
  CHECK(shortened(std::string(101, 'x')) == std::string(100, 'x') + "...");
}

TEST_CASE("a quoted text is short and on one line, whatever came") {
  CHECK(quoted("") == "\"\"");
  CHECK(quoted("a \"b\" é") == "\"a \"b\" é\"");
  CHECK(quoted(std::string_view("a\nb\tc\0d\x1B", 8)) == "\"a b c d \"");
  CHECK(quoted(std::string(1 << 20, '\n')) == '"' + std::string(100, ' ') + "...\"");
  CHECK(quoted(std::string(99, 'x') + "é") == '"' + std::string(99, 'x') + "...\"");
  CHECK(quoted(std::string(1 << 20, '\x80')).size() <= 105);  // no UTF-8
}
