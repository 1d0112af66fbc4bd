// `bench serve` against a server of the same binary.
#include <doctest/doctest.h>

#include <csignal>
#include <string>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/cli/serving_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

std::vector<std::string> bench_args(const serving_binary& server, std::vector<std::string> more) {
  std::vector<std::string> out{"bench", "serve", "--url",
                               "http://127.0.0.1:" + std::to_string(server.http_port())};
  out.insert(out.end(), more.begin(), more.end());
  return out;
}

json::object read_object(const std::string& path) {
  const auto read = parse_json(read_file(path).value());
  REQUIRE(read);
  return read->as_object();
}

}  // namespace

TEST_CASE("bench serve that is interrupted tells what it has measured so far, and gives 130") {
  const temp_directory place;
  serving_binary server(serve_args());
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  const auto result = place.file("r.json");
  // The first requests end at once, the last one is due in hours.
  serving_binary bench(
    bench_args(server, {"--num-prompts", "20000", "--request-rate", "2", "--input-len", "8",
                        "--output-len", "4", "--warmup", "0", "--save-result", result}));
  REQUIRE(server.wait_for_line(" output=4 "));
  bench.signal(SIGINT);
  CHECK(bench.wait() == 130);
  const auto told = read_object(result);
  CHECK(told.at("interrupted") == true);
  CHECK(told.at("num_prompts") == 20000);
  CHECK(told.at("failed") == 0);
  const auto completed = told.at("completed").to_number<int>();
  CHECK(told.at("total_output_tokens") == 4 * completed);
}

TEST_CASE("bench serve whose requests all fail ends with the first one's words, and no table") {
  serving_binary server(serve_args());
  REQUIRE_MESSAGE(server.wait_for_line("Ready: "), server.err());
  const auto args = bench_args(server, {"--num-prompts", "3", "--input-len", "4000"});
  const auto ran = run_binary(args);
  CHECK(ran.code == 1);
  CHECK(ran.out.empty());
  CHECK(holds(ran.err, "every request failed, 3 in all; the first: context_length_exceeded: "));
  CHECK(holds(ran.err, "2048"));
  auto with_json = args;
  with_json.push_back("--json");
  const auto object = run_binary(with_json);
  CHECK(object.code == 1);
  const auto read = parse_json(object.out);
  REQUIRE(read);
  CHECK(read->at("failed") == 3);
  CHECK(read->at("interrupted") == false);
}

TEST_CASE("help of bench serve lists what loads a server, not the settings of an engine") {
  const auto help = run_binary({"bench", "serve", "--help"}).out;
  for (const auto* name : {"--url", "--seed N", "--goodput", "--beside-offline", "serve --help"})
    CHECK(holds(help, name));
  for (const auto* name : {"--depth", "--actor-port", "--prefix-cache", "Settings: "})
    CHECK(help.find(name) == std::string::npos);
}
