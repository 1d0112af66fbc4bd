// `deepinfer run` as scripts see it: traces, one run again, cases that nobody has, files and sizes
// that are refused.
#include <doctest/doctest.h>

#include <filesystem>
#include <string>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

/// A scenario that fails where there are two steps in flight.
const std::string fails = "matrix: { depth: [1, 2], interleavings: 3 }\n"
                          "script:\n"
                          "  - submit: { id: a, prompt_tokens: 5, max_tokens: 8 }\n"
                          "  - expect: { at: 5ms, metric: inflight_steps, max: 1 }\n";
const std::string submit = "script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n";

std::string file_in(const temp_directory& folder, const std::string& name,
                    const std::string& body) {
  const auto path = folder.path() + "/" + name + ".yaml";
  REQUIRE(write_file(path, "# It holds.\nname: " + name + "\n" + body));
  return path;
}

}  // namespace

TEST_CASE("run --trace writes the steps of a run that failed") {
  const temp_directory folder;
  const auto file = file_in(folder, "fails", fails);
  const auto traces = folder.path() + "/traces";
  const auto ran = run_binary({"run", file, "--trace", traces});
  CHECK(ran.code == 10);
  const auto path = traces + "/fails-depth=2-1-0.json";
  const auto text = read_file(path);
  REQUIRE_MESSAGE(text, ran.out);
  CHECK(std::distance(std::filesystem::directory_iterator(traces), {}) == 1);
  const auto whole = parse_json(*text).value();
  int forwards = 0;
  for (const auto& it : whole.at("traceEvents").as_array())
    if (it.at("ph").as_string() == "X" && it.at("name").as_string().starts_with("forward"))
      ++forwards;
  CHECK(forwards >= 8);
}

TEST_CASE("a failure names the command of its run, and that fails the same way") {
  const temp_directory folder;
  const auto file = file_in(folder, "fails", fails);
  const auto ran = run_binary({"run", file});
  CHECK(holds(ran.out,
              "repeat: deepinfer run " + file + " --case 'depth=2' --seed 1 --interleaving 0\n"));
  const auto again =
    run_binary({"run", file, "--case", "depth=2", "--seed", "1", "--interleaving", "0"});
  const auto short_form = run_binary({"run", file, "--repeat", "depth=2:1:0"});
  for (const auto& it : {again, short_form}) {
    CHECK(it.code == 10);
    CHECK(holds(it.out, "1 case, 1 run"));
    const auto report = [](const std::string& out) { return out.substr(out.find('\n')); };
    CHECK(report(it.out) == report(ran.out));
  }
  CHECK(run_binary({"run", file, "--repeat", "depth=1:7:2"}).code == 0);
  CHECK(run_binary({"run", file_in(folder, "plain", submit), "--repeat", "3:2"}).code == 0);
}

TEST_CASE("run refuses what it cannot pick or read, and says what") {
  const temp_directory folder;
  const auto file = file_in(folder, "fails", fails);
  struct refusal {
    std::vector<std::string> args;
    std::string message;
  };
  const refusal table[] = {
    {{"--case", "foo=1"}, "--case: found 'foo=1', expected KEY=VALUE,..."},
    {{"--case", "dept=1"}, "did you mean 'depth'?"},
    {{"--case", "depth"}, "--case: found 'depth'"},
    {{"--case", "depth=7"}, "--case: found depth=7, expected a case of one of the files"},
    {{"--case", "num_drafts=2"}, "--case: found num_drafts=2, expected a case"},
    {{"--repeat", "1"}, "--repeat: found '1', expected [KEY=VALUE,...:]SEED:INTERLEAVING"},
    {{"--repeat", "x:1"}, "--seed: found 'x'"},
    {{"--repeat", "1:1", "--seed", "2"}, "--seed: found beside --repeat"},
  };
  for (const auto& it : table) {
    CAPTURE(it.args[1]);
    auto args = it.args;
    args.insert(args.begin(), {"run", file});
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, it.message));
  }
  const auto other = file_in(folder, "plain", submit);
  const auto both = run_binary({"run", file, other, "--case", "depth=1"});
  CHECK(holds(both.err, " passed, "));
  CHECK(holds(both.err, " skipped, 0 failed"));
  CHECK(both.code == 0);  // one of them has it
  CHECK(holds(both.out, "skip plain has no case depth=1"));

  const auto device = run_binary({"run", "/dev/zero"});
  CHECK(device.code == 2);
  CHECK(holds(device.out, "/dev/zero: not a regular file"));
  const auto large = folder.path() + "/large.yaml";
  REQUIRE(write_file(large, std::string((16 << 20) + 1, '#')));
  const auto refused = run_binary({"run", large});
  CHECK(refused.code == 2);
  CHECK(holds(refused.out, "more than 16777216 bytes"));
}

TEST_CASE("sizes that no machine has are refused by their key") {
  const temp_directory folder;
  struct refusal {
    std::string body, message;
    int code;
  };
  const refusal table[] = {
    {"engine: { num_kv_blocks: 2000000000 }\n" + submit,
     "engine.num_kv_blocks: found 2000000000, expected 1 to 1048576", 10},
    {"engine: { num_kv_blocks: 1000000, block_size: 64 }\n" + submit,
     "engine.num_kv_blocks: found 1000000 blocks of 64 tokens on all ranks, expected at most", 10},
    {"engine: { max_num_seqs: 0 }\n" + submit, "engine.max_num_seqs: found 0, expected at least 1",
     10},
    {"model: { vocab: 2000000000 }\n" + submit,
     "model.vocab: found 2000000000, expected 24 to 1048576", 10},
    {"script:\n  - submit: { id: a, prompt_tokens: 2000000000 }\n",
     "sizes.yaml:4: prompt_tokens: found 2000000000, expected 0 to 1048576", 2},
    {"script:\n  - submit: { id: a, prompt_tokens: 1, count: 2000000000 }\n",
     "count: found '2000000000', expected a whole number from 1 to 10000", 2},
  };
  for (const auto& it : table) {
    CAPTURE(it.body);
    const auto ran = run_binary({"run", file_in(folder, "sizes", it.body)});
    CHECK(ran.code == it.code);
    CHECK(holds(ran.out, it.message));
  }
}
