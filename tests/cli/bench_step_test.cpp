// `bench step` and `bench core` as scripts see them: fields, types and ranges of --json, refused
// flags. No time is judged here.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/cli/bench_json.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

/// One way of running: what a step takes, and what it gives.
void check_mode(const json::value& value, int batch, double most_tokens) {
  const auto& it = value.as_object();
  CHECK(keys_of(it) == std::set<std::string>{"device_idle", "device_seconds", "host_seconds",
                                             "host_share", "seconds", "tokens_per_second",
                                             "tokens_per_step"});
  for (const auto* key : {"seconds", "device_seconds", "host_seconds"}) CHECK(number(it, key) > 0);
  CHECK(number(it, "seconds") >= number(it, "device_seconds"));
  CHECK(number(it, "host_share") ==
        doctest::Approx(number(it, "host_seconds") / number(it, "device_seconds")));
  CHECK(number(it, "device_idle") >= 0);
  CHECK(number(it, "device_idle") < 1);
  CHECK(number(it, "tokens_per_step") >= 1);
  CHECK(number(it, "tokens_per_step") <= most_tokens);
  if (most_tokens == 1)
    CHECK(number(it, "tokens_per_second") == doctest::Approx(batch / number(it, "seconds")));
}

void check_row(const json::object& row, int batch, int drafts, int repeats) {
  CAPTURE(to_text(row));
  CHECK(keys_of(row) == std::set<std::string>{"device_idle", "drafts", "drafts_gain", "host_share",
                                              "ideal_gain", "loop_seconds", "overlap",
                                              "overlap_gain", "sync", "sync_over_sum"});
  check_mode(row.at("sync"), batch, 1);
  check_mode(row.at("overlap"), batch, 1);
  const auto& sync = row.at("sync").as_object();
  const auto& overlap = row.at("overlap").as_object();
  const auto device = number(sync, "device_seconds");
  const auto host = number(sync, "host_seconds");
  CHECK(number(row, "overlap_gain") > 0);
  CHECK(number(row, "sync_over_sum") > 0.5);
  if (repeats == 1) {
    CHECK(number(row, "overlap_gain") ==
          doctest::Approx(number(sync, "seconds") / number(overlap, "seconds")));
    CHECK(number(row, "sync_over_sum") ==
          doctest::Approx(number(sync, "seconds") / (device + host)));
  }
  CHECK(number(row, "ideal_gain") == doctest::Approx((device + host) / std::max(device, host)));
  CHECK(number(row, "device_idle") == number(overlap, "device_idle"));
  CHECK(row.at("drafts").is_null() == (drafts == 0));
  CHECK(row.at("drafts_gain").is_null() == (drafts == 0));
  if (drafts == 0) return;
  check_mode(row.at("drafts"), batch, 1 + drafts);
  CHECK(number(row, "drafts_gain") ==
        doctest::Approx(number(row.at("drafts").as_object(), "tokens_per_second") /
                        number(sync, "tokens_per_second")));
}

}  // namespace

TEST_CASE("bench step tells host, device and gain of every share of host work, in every mode") {
  if (std::thread::hardware_concurrency() < 2) return;  // refused: see the case below
  for (const bool with_drafts : {true, false}) {
    CAPTURE(with_drafts);
    std::vector<std::string> args{"bench",    "step",    "--host-share", "20,50",        "--batch",
                                  "4",        "--steps", "16",           "--repeats",    "2",
                                  "--prompt", "5",       "--json",       "--num-drafts", "3"};
    if (!with_drafts) args.push_back("--no-drafts");
    const auto out = json_of(args);
    check_head(out, "bench step");
    const auto& settings = out.at("settings").as_object();
    CHECK(settings.at("batch").to_number<int>() == 4);
    CHECK(settings.at("repeats").to_number<int>() == 2);
    CHECK(settings.at("drafts").to_number<int>() == (with_drafts ? 3 : 0));
    const auto& rows = out.at("rows").as_array();
    REQUIRE(rows.size() == 3);
    double loop_before = 0;
    for (const auto& it : rows) {
      const auto& row = it.as_object();
      check_row(row, 4, with_drafts ? 3 : 0, 2);
      CHECK(number(row, "loop_seconds") >= loop_before);
      loop_before = number(row, "loop_seconds");
      // The loop is on the scheduler's thread: the host work measured there holds it, all of it.
      for (const auto* mode : {"sync", "overlap"})
        CHECK(number(row.at(mode).as_object(), "host_seconds") >= 0.99 * loop_before);
    }
    CHECK(number(rows[0].as_object(), "host_share") == 0);
    CHECK(number(rows[0].as_object(), "loop_seconds") == 0);
    CHECK(number(rows[1].as_object(), "loop_seconds") > 0);
    CHECK(number(rows[2].as_object(), "loop_seconds") >
          2 * number(rows[1].as_object(), "loop_seconds"));
    CHECK(number(rows[1].as_object(), "host_share") == doctest::Approx(0.2));
    CHECK(number(rows[2].as_object(), "host_share") == doctest::Approx(0.5));
  }
}

TEST_CASE("bench step chooses a batch where none is given") {
  if (std::thread::hardware_concurrency() < 2) return;
  const auto out = json_of({"bench", "step", "--host-share", "20", "--steps", "16", "--repeats",
                            "1", "--no-drafts", "--numeric", "fast", "--json"});
  const auto batch = out.at("settings").as_object().at("batch").to_number<int>();
  CHECK(batch >= 8);
  CHECK(batch <= 256);
  for (const auto& row : out.at("rows").as_array()) check_row(row.as_object(), batch, 0, 1);
}

TEST_CASE("bench core tells what a step costs a row, with and without actors") {
  const auto out =
    json_of({"bench", "core", "--rows", "3,8", "--steps", "250", "--drafts", "2", "--json"});
  check_head(out, "bench core");
  CHECK(out.at("settings").as_object().at("steps").to_number<int>() == 200);
  const auto& rows = out.at("rows").as_array();
  REQUIRE(rows.size() == 2);
  for (const auto& it : rows) {
    const auto& row = it.as_object();
    CHECK(keys_of(row) == std::set<std::string>{"core_step_seconds", "core_us_per_sequence_step",
                                                "messages_per_step", "rows", "step_seconds",
                                                "us_per_sequence_step"});
    const auto count = number(row, "rows");
    for (const auto& [us, seconds] : {std::pair{"core_us_per_sequence_step", "core_step_seconds"},
                                      std::pair{"us_per_sequence_step", "step_seconds"}}) {
      const auto& samples = row.at(seconds).as_object();
      CHECK(samples.at("count").to_number<int>() == 2);
      CHECK(number(samples, "min") > 0);
      CHECK(number(row, us) == doctest::Approx(1e6 * number(samples, "median") / count));
    }
    // Five for the plan, then chunks, leases, turns, KV now and then; none for a row.
    CHECK(number(row, "messages_per_step") >= 6);
    CHECK(number(row, "messages_per_step") <= 16);
  }
  CHECK(rows[1].at("rows").to_number<int>() == 8);
  for (const auto* key : {"us_per_sequence_step", "core_us_per_sequence_step"})
    CHECK(number(out, key) == number(rows[1].as_object(), key));
  const auto alone =
    json_of({"bench", "core", "--rows", "4", "--steps", "100", "--no-actors", "--json"});
  CHECK(alone.at("us_per_sequence_step").is_null());
  CHECK(number(alone, "core_us_per_sequence_step") > 0);
  for (const auto* key : {"us_per_sequence_step", "step_seconds", "messages_per_step"})
    CHECK(alone.at("rows").at(0).as_object().at(key).is_null());
}

TEST_CASE("the tables of bench step and bench core fit 100 columns") {
  std::vector<std::vector<std::string>> runs{
    {"bench", "core", "--rows", "4", "--steps", "100"},
    {"bench", "core", "--rows", "4096", "--steps", "100", "--no-actors", "--drafts", "0"}};
  if (std::thread::hardware_concurrency() >= 2)
    runs.push_back(
      {"bench", "step", "--host-share", "20", "--batch", "2", "--steps", "16", "--repeats", "1"});
  for (const auto& args : runs) check_columns(args);
}

TEST_CASE("a flag of bench step or bench core that can't be is exit code 2 and named") {
  struct bad_case {
    std::vector<std::string> flags;
    const char* name;
  };
  const bad_case table[] = {
    {{"step", "--host-share", "0"}, "--host-share"},
    {{"step", "--host-share", "101"}, "--host-share"},
    {{"step", "--host-share", "5,x"},
     "--host-share: entry 2: found 'x', expected a whole number, 1 to 100"},
    {{"step", "--batch", "0"}, "batch"},
    {{"step", "--batch", "9999"}, "batch"},
    {{"step", "--steps", "1"}, "steps"},
    {{"step", "--repeats", "0"}, "repeats"},
    {{"step", "--prompt", "0"}, "prompt"},
    {{"core", "--rows", "0"}, "--rows"},
    {{"core", "--rows", "9999"}, "--rows"},
    {{"core", "--steps", "99"}, "steps"},
    {{"core", "--drafts", "17"}, "drafts"},
  };
  for (const auto& row : table) {
    std::vector<std::string> args{"bench"};
    args.insert(args.end(), row.flags.begin(), row.flags.end());
    check_refused(args, row.name);
  }
}
