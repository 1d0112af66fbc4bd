/// Requests that tests of the hash machine drive, and what must be true of every run.
#pragma once

#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "hash_driver.hpp"

namespace deepinfer {

inline sampling_params greedy() {
  sampling_params params;
  params.temperature = 0.0f;
  return params;
}

inline sampling_params seeded(std::uint64_t seed) {
  sampling_params params;
  params.temperature = 1.0f;
  params.seed = seed;
  return params;
}

inline std::shared_ptr<const sampling_params> greedy_pointer() {
  return std::make_shared<const sampling_params>(greedy());
}

inline hash_script prompt_of(std::string_view text, std::int32_t tokens) {
  hash_script script;
  script.prompt = hash_prompt({}, text, tokens);
  return script;
}

/// Sequences of mixed lengths and kinds.
inline void add_mixed(hash_driver& driver) {
  driver.add(prompt_of("a", 5), greedy(), 9);
  driver.add(prompt_of("b", 1), seeded(5), 12);
  auto penalized = seeded(77);
  penalized.frequency_penalty = 1.0f;
  driver.add(prompt_of("c", 23), penalized, 7);
  auto stopped = prompt_of("d", 8);
  stopped.stop_after = 4;
  stopped.tokens = {{2, 500}};
  auto patient = greedy();
  patient.min_tokens = 5;
  driver.add(stopped, greedy(), 8);
  driver.add(stopped, patient, 8);
  driver.add(prompt_of("e", 40), greedy(), 3);
}

inline void check_canary(hash_driver& driver) {
  for (const auto& error : driver.runner().canary().errors())
    FAIL_CHECK(error.name, ": ", error.text);
  CHECK(driver.runner().canary().count() == 0);
}

inline void check_all(hash_driver& driver) {
  for (const auto& one : driver.sequences) {
    CAPTURE(one.id.value);
    CHECK(one.outputs == driver.expected(one));
  }
  check_canary(driver);
}

inline std::vector<std::string> names_of(const canary_log& log) {
  std::vector<std::string> out;
  for (const auto& error : log.errors()) out.push_back(error.name);
  return out;
}

inline bool has_error(hash_driver& driver, std::string_view name) {
  const auto names = names_of(driver.runner().canary());
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace deepinfer
