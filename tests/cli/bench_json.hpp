/// What the tests of bench commands read of their --json.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"

namespace deepinfer::test {

inline json::object json_of(const std::vector<std::string>& args) {
  const auto ran = run_binary(args);
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  return parse_json(ran.out).value().as_object();
}

inline std::set<std::string> keys_of(const json::object& it) {
  std::set<std::string> out;
  for (const auto& entry : it) out.insert(std::string(entry.key()));
  return out;
}

inline double number(const json::object& it, const char* key) {
  return it.at(key).to_number<double>();
}

inline void check_head(const json::object& it, const char* command) {
  CHECK(it.at("command").as_string() == command);
  CHECK(it.at("schema").to_number<int>() == 1);
  CHECK(number(it.at("machine").as_object(), "cores") >= 1);
}

/// Every line of what `args` print has at most 100 columns.
inline void check_columns(const std::vector<std::string>& args) {
  const auto ran = run_binary(args);
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  for (std::size_t begin = 0; begin < ran.out.size();) {
    const auto end = std::min(ran.out.find('\n', begin), ran.out.size());
    CHECK_MESSAGE(end - begin <= 100, ran.out.substr(begin, end - begin));
    begin = end + 1;
  }
}

/// `args` are refused with exit code 2, on stderr, naming `name`.
inline void check_refused(const std::vector<std::string>& args, const char* name) {
  std::string said;
  for (const auto& it : args) said += it + " ";
  CAPTURE(said);
  const auto ran = run_binary(args);
  CHECK(ran.code == 2);
  CHECK_MESSAGE(holds(ran.err, name), ran.err);
  CHECK(ran.out.empty());
}

}  // namespace deepinfer::test
