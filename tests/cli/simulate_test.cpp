// `deepinfer simulate` as scripts see it: fields of --json, equal bytes, refused flags.
#include <doctest/doctest.h>

#include <set>
#include <string>
#include <vector>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

std::set<std::string> keys_of(const json::value& it) {
  std::set<std::string> out;
  for (const auto& entry : it.as_object()) out.insert(std::string(entry.key()));
  return out;
}

const std::vector<std::string> small{"simulate", "--requests", "4", "--prompt",
                                     "16",       "--output",   "4"};

std::vector<std::string> with(std::vector<std::string> args, std::vector<std::string> more) {
  args.insert(args.end(), more.begin(), more.end());
  return args;
}

}  // namespace

TEST_CASE("simulate --json has one object a run, and the same bytes each time") {
  const auto args = with(small, {"--json", "--compare", "depth=1,2"});
  const auto ran = run_binary(args);
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  CHECK(run_binary(args).out == ran.out);
  const auto whole = parse_json(ran.out).value();
  CHECK(keys_of(whole) == std::set<std::string>{"command", "runs", "schema"});
  CHECK(whole.at("command").as_string() == "simulate");
  CHECK(whole.at("schema").to_number<int>() == 1);
  const auto& runs = whole.at("runs").as_array();
  REQUIRE(runs.size() == 2);
  CHECK(runs[1].at("label").as_string() == "depth=2");
  CHECK(runs[1].at("settings").at("depth").as_string() == "2");
  CHECK(runs[1].at("settings").at("output").as_string() == "4");
  CHECK(keys_of(runs[0]) ==
        std::set<std::string>{"canary_errors", "device", "done", "draft_accept_rate", "failed",
                              "label", "output_tokens", "output_tokens_per_second", "over_run_rows",
                              "preemptions", "prefix_hit_rate", "requests", "rows_mean", "seconds",
                              "settings", "steps", "tpot_seconds", "ttft_seconds"});
  CHECK(keys_of(runs[0].at("ttft_seconds")) ==
        std::set<std::string>{"count", "mean", "p50", "p90", "p99"});
  CHECK(keys_of(runs[0].at("device")) ==
        std::set<std::string>{"busy_seconds", "exposed_host_seconds", "hidden_host_seconds",
                              "idle_seconds"});
  CHECK(keys_of(runs[0].at("device").at("idle_seconds")) ==
        std::set<std::string>{"no_work", "plan", "settle", "transfer", "vote"});
  CHECK(runs[0].at("output_tokens").to_number<int>() == 16);
  CHECK(runs[0].at("draft_accept_rate").is_null());
  CHECK(runs[1].at("seconds").to_number<double>() < runs[0].at("seconds").to_number<double>());
}

TEST_CASE("simulate reads a workload file and prints runs side by side") {
  const temp_directory directory;
  const auto file = directory.path() + "/w.csv";
  REQUIRE(write_file(file, "arrival_ms,prompt_tokens,output_tokens\n0,10,2\n3,10,2\n"));
  const auto ran = run_binary({"simulate", "--workload", file, "--compare", "blocks=64,128"});
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  CHECK(holds(ran.out, "blocks=64"));
  CHECK(holds(ran.out, "blocks=128"));
  CHECK(holds(ran.out, "TTFT p99, ms"));
  CHECK(holds(ran.out, "device idle: no_work"));
  REQUIRE(write_file(file, "arrival_ms,prompt_tokens,output_tokens\n0,ten,2\n"));
  const auto refused = run_binary({"simulate", "--workload", file});
  CHECK(refused.code == 2);
  CHECK(holds(refused.err, file + ":2: prompt_tokens: found 'ten', expected a whole number"));
}

TEST_CASE("simulate compares values that hold commas, and switches") {
  const auto ran =
    run_binary(with(small, {"--num-drafts", "2", "--compare", "acceptance=0.9,0.5;0.1,0.1"}));
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  CHECK(holds(ran.out, "acceptance=0.9,0.5"));
  CHECK(holds(ran.out, "acceptance=0.1,0.1"));
  CHECK(run_binary(with(small, {"--compare", "prefix-cache=true,false"})).code == 0);
}

TEST_CASE("simulate refuses what it cannot play, and says which flag") {
  struct refusal {
    std::vector<std::string> args;
    std::string message;
  };
  const refusal table[] = {
    {{"--depth", "4"}, "--depth: found '4', expected a whole number from 1 to 3"},
    {{"--victim", "oldest"}, "--victim: found 'oldest', expected one of youngest"},
    {{"--step-model", "base=1"}, "--step-model: base: found '1', expected a time"},
    {{"--acceptance", "2"}, "--acceptance: found '2', expected probabilities"},
    {{"--shared-prefix", "64"}, "--shared-prefix: found '64', expected TOKENS:SHARE"},
    {{"--prompt", "5:5"}, "--prompt: found '5:5', expected MEAN or MEAN:SPREAD"},
    {{"--workload", "none.csv"}, "found beside --workload"},
    {{"--compare", "dept=1,2"}, "did you mean 'depth'?"},
    {{"--compare", "depth=1,,2"}, "found '' as a value of depth"},
    {{"--compare", "depth=1,9"}, "depth=9: --depth: found '9'"},
    {{"--compare", "mixed-steps=on,off"}, "expected true or false"},
    {{"--num-drafts", "3", "--max-num-batched-tokens", "3"}, "expected more than num-drafts"},
    {{"--num-drafts", "33"}, "--num-drafts: found '33', expected a whole number from 0 to 32"},
    {{"--policy", "oldest"}, "--victim: found 'oldest', expected one of youngest"},
    {{"--policy", "victim=youngest,rank=1"}, "--policy: found 'rank=1', expected a victim or"},
    {{"--policy", "youngest", "--victim", "youngest"}, "--victim: found twice"},
    {{"--blocks", "16777216", "--block-size", "4096"}, "blocks: found 16777216 of block-size 4096"},
    {{"--requests", "16777216"}, "--requests: found '16777216'"},
    {{"--requests", "1000000", "--prompt", "16777216"}, "requests of up to 16777220 tokens"},
  };
  for (const auto& it : table) {
    CAPTURE(it.args.back());
    const auto ran = run_binary(with(small, it.args));
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, it.message));
    CHECK(ran.out.empty());
  }
  CHECK(run_binary({"simulate", "--workload", "none.csv"}).code == 2);
}

TEST_CASE("simulate draws its workload where none is named, also by the word for it") {
  const auto drawn = run_binary(with(small, {"--json"}));
  const auto named = run_binary(with(small, {"--json", "--workload", "synthetic"}));
  REQUIRE_MESSAGE(named.code == 0, named.err);
  const auto run_of = [](const std::string& out) {
    return parse_json(out).value().at("runs").as_array().at(0).as_object();
  };
  CHECK(run_of(named.out).at("ttft_seconds") == run_of(drawn.out).at("ttft_seconds"));
}

TEST_CASE("simulate --policy stands for the flags of its rules, and its cache is on as in the "
          "product") {
  const std::vector<std::string> tight{"simulate", "--requests",   "12", "--prompt",
                                       "30",       "--output",     "60", "--blocks",
                                       "20",       "--block-size", "16", "--json"};
  const auto one = run_binary(with(tight, {"--policy", "longest-output,preempt-output=drop"}));
  const auto all =
    run_binary(with(tight, {"--victim", "longest-output", "--preempt-output", "drop"}));
  REQUIRE_MESSAGE(one.code == 0, one.err);
  const auto run_of = [](const std::string& out) {
    auto it = parse_json(out).value().at("runs").as_array().at(0).as_object();
    it.erase("settings");
    return it;
  };
  CHECK(run_of(one.out) == run_of(all.out));
  CHECK(run_of(one.out).at("preemptions").to_number<int>() > 0);
  CHECK(run_binary(with(small, {"--compare", "policy=youngest,longest-output"})).code == 0);
  const auto told = run_binary(with(small, {"--policy", "youngest,min-decode-gap=2", "--json"}));
  REQUIRE(told.code == 0);
  const auto parsed = parse_json(told.out).value();
  const auto& settings = parsed.at("runs").at(0).at("settings").as_object();
  CHECK(settings.at("victim").as_string() == "youngest");
  CHECK(settings.at("min-decode-gap").as_string() == "2");
  CHECK(settings.at("preempt-output").as_string() == "deliver");
  const std::vector<std::string> shared{"--shared-prefix", "128:1", "--rate", "10", "--json"};
  const auto usual = run_binary(with({"simulate", "--requests", "4", "--prompt", "200"}, shared));
  CHECK(run_of(usual.out).at("prefix_hit_rate").to_number<double>() > 0);
}

TEST_CASE("simulate says why nobody was served, and ends with 1") {
  const auto ran = run_binary(with(small, {"--blocks", "1", "--block-size", "4"}));
  CHECK(ran.code == 1);
  CHECK(holds(ran.err, "error: 4 of 4 requests failed, the first: "));
  CHECK(holds(ran.err, "KV blocks"));
}

TEST_CASE("simulate reads a workload that begins with a byte order mark") {
  const temp_directory folder;
  const auto path = folder.path() + "/w.csv";
  REQUIRE(write_file(path, "\xEF\xBB\xBF"
                           "arrival_ms,prompt_tokens,output_tokens\r\n0,5,3\r\n"));
  const auto ran = run_binary({"simulate", "--workload", path});
  CHECK_MESSAGE(ran.code == 0, ran.err);
}
