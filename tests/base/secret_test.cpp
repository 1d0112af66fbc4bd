#include <doctest/doctest.h>

#include <vector>

#include "runtime/base/secret.hpp"

using namespace deepinfer;

TEST_CASE("a secret is the same only where every byte and the length are") {
  CHECK(same_secret("sk-1", "sk-1"));
  CHECK(same_secret(std::string_view("a\0b", 3), std::string_view("a\0b", 3)));
  for (const std::string_view offered :
       {"", "s", "sk-", "sk-2", "sk-11", "sk-1sk-1", "SK-1", "xk-1"}) {
    CAPTURE(std::string(offered));
    CHECK_FALSE(same_secret("sk-1", offered));
  }
  CHECK_FALSE(same_secret("", "a"));
  CHECK_FALSE(same_secret("a", std::string_view("\0", 1)));
}

TEST_CASE("a key has the name it is listed with, or none, and unknown keys have no holder") {
  const std::vector<std::string> keys{"blue=sk-1", "sk-2", "c2VjcmV0PQ==", "a.b-c_1=x=y", "d="};
  CHECK(holder_of(keys, "sk-1") == "blue");
  CHECK(holder_of(keys, "sk-2") == "");
  CHECK(holder_of(keys, "c2VjcmV0PQ==") == "");
  CHECK(holder_of(keys, "x=y") == "a.b-c_1");
  CHECK(holder_of(keys, "d=") == "");
  for (const std::string_view offered : {"", "blue=sk-1", "blue", "sk-3", "=", "y", "d"}) {
    CAPTURE(std::string(offered));
    CHECK(!holder_of(keys, offered));
  }
  CHECK(!holder_of({}, "sk-1"));
  CHECK(!holder_of(std::vector<std::string>{""}, ""));
}

TEST_CASE("a key file holds one entry a line, without blanks around it and without comments") {
  CHECK(key_entries("").empty());
  CHECK(key_entries("\n \t\r\n# blue=sk-1\n  # sk-2\n").empty());
  const std::vector<std::string> expected{"blue=sk-1", "c2VjcmV0PQ==", "a b", "last#1"};
  CHECK(key_entries("  blue=sk-1\r\n\nc2VjcmV0PQ==\t\n#x\na b\nlast#1") == expected);
}
