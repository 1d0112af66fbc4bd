#include <doctest/doctest.h>

#include <unistd.h>

#include <filesystem>

#include <fmt/format.h>

#include "actors/scenario/report.hpp"
#include "actors/scenario/runner.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/actors/scenario_support.hpp"

using namespace deepinfer;

namespace {

scenario small() {
  return scenario_of("covers: [I17, B053]\nscript:\n"
                     "  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n"
                     "  - expect: { count: steps, value: 3 }\n");
}

/// Runs files through a player that is given; a clock of a millisecond per look.
struct bench {
  run_options options;
  run_tools tools;
  std::vector<std::string> runs, told, traces;
  double now_s = 0;

  bench() {
    options.features = supported_features();
    tools.seconds = [this] { return now_s += 0.001; };
    tools.tell = [this](const file_report& it) { told.push_back(text_of(it)); };
    tools.keep_trace = [this](const scenario&, const run_name&, const std::string& trace) {
      traces.push_back(trace);
      return result<void>();
    };
    tools.play = [this](const scenario& of, const scenario_case& it, std::uint64_t seed,
                        std::int32_t interleaving) {
      runs.push_back(fmt::format("depth {} seed {} model {} order {}", it.engine.depth, seed,
                                 it.model.seed, interleaving));
      auto out = played(of, it);
      out.trace.resize(1);
      return out;
    };
  }
  std::vector<file_report> run(const std::vector<std::string>& paths) {
    auto out = run_files(paths, options, tools);
    REQUIRE_MESSAGE(out, out.error().message);
    return *std::move(out);
  }
};

/// A scenario file of this name in the build's scratch folder.
std::string file_of(const std::string& name, const std::string& body) {
  const auto folder = std::filesystem::temp_directory_path() /
                      fmt::format("deepinfer-scenario-{}", static_cast<int>(getpid()));
  std::filesystem::create_directories(folder);
  const auto path = (folder / (name + ".yaml")).string();
  REQUIRE(write_file(path, "# It holds.\nname: " + name + "\n" + body));
  return path;
}

const std::string script = "script:\n  - submit: { id: a, prompt_tokens: 5, max_tokens: 2 }\n";

}  // namespace

TEST_CASE("a failure names line, values, run, last events and the command that repeats it") {
  const auto of = small();
  const auto it = first_case(of);
  const auto out = played(of, it);
  const auto found = judge(of, it, out);
  CHECK(failure_text(of, {"depth=2 num_drafts=3", 4, 17}, found, out.log) ==
        "f.yaml:6: count steps: wanted 3, seen 2 (at 4ms)\n"
        "case depth=2 num_drafts=3, seed 4, interleaving 17\n"
        "last 10 events:\n"
        "        0us  a is submitted\n"
        "        0us  rank 0 launches step 1: prefill a 5\n"
        "     2000us  rank 0 waits for step 1\n"
        "     2000us  rank 0 settles step 1\n"
        "     2000us  a is sent outputs 1 to 1: 905\n"
        "     2000us  rank 0 launches step 2: decode a 1\n"
        "     4000us  rank 0 waits for step 2\n"
        "     4000us  rank 0 settles step 2\n"
        "     4000us  a is sent outputs 2 to 2: 568\n"
        "     4000us  a ends: length\n"
        "repeat: deepinfer run f.yaml --case 'depth=2,num_drafts=3' --seed 4 --interleaving 17\n");
}

TEST_CASE("every kind of entry has a line") {
  const auto of = small();
  audit_log log(1, 2);
  const block_id blocks[] = {{3}, {5}};
  const audit_row row{.request = 0, .width = 2};
  log.launched(0, 1, 1, step_kind::mixed, 2, 4, std::span(&row, 1));
  log.settled(1, 1, 1, true, {});
  log.finished(2, 0, 1, 1, {scenario_finish::error, errc::device_failed, {}});
  log.happened(3, scenario_event_kind::preempted, 0);
  log.happened(3, scenario_event_kind::paused);
  log.happened(3, scenario_event_kind::rank_dead, 1);
  log.held(4, 1, 0, blocks);
  log.let_go(4, 1, 0, blocks);
  log.depth_set(5, 3);
  log.restarted(6, 1);
  log.asked(12345678, 0);
  std::string text;
  for (const auto& entry : log.entries()) text += text_of(entry, log, of) + "\n";
  CHECK(text == "        0us  rank 1 launches step 1: mixed a 2 padded to 4\n"
                "        1us  rank 1 settles step 1, which has failed\n"
                "        2us  a ends: error, device_failed\n"
                "        3us  a.preempted\n"
                "        3us  paused\n"
                "        3us  rank1.dead\n"
                "        4us  a takes blocks 3 5\n"
                "        4us  a lets go of blocks 3 5\n"
                "        5us  depth is set to 3\n"
                "        6us  rank 1 starts again\n"
                " 12345678us  the moment of f.yaml:6\n");
}

TEST_CASE("a violation says as much of where it was as is known, and only ten are shown") {
  const auto of = small();
  violation it;
  it.name = "canary_mismatch";
  it.wanted = "position 4";
  it.seen = "position 3";
  CHECK(text_of(it, of) == "f.yaml: canary_mismatch: wanted position 4, seen position 3");
  it.us = 1500;
  it.rank = 1;
  it.step = 7;
  it.request = 0;
  CHECK(text_of(it, of) ==
        "f.yaml: canary_mismatch: wanted position 4, seen position 3 (at 1500us, "
        "rank 1, step 7, request a)");
  const std::vector<violation> many(12, it);
  const auto text = failure_text(of, {}, many, audit_log(1, 1));
  CHECK(text.find("and 2 more\ncase without settings, seed 1, interleaving 0\nlast 0 events:\n"
                  "repeat: deepinfer run f.yaml --seed 1 --interleaving 0\n") != std::string::npos);
}

TEST_CASE("JUnit has a suite per file and a case per case, with failures, skips and covers") {
  file_report passed{"p.yaml", "p", file_status::passed, "", {"I17"}, {{"depth=1", 3, 0.25, ""}}};
  file_report failed{"q.yaml", "q", file_status::failed,
                     "",       {},  {{"", 1, 0.5, "q: <1> & \"2\"\nx\n"}}};
  file_report skipped{"r.yaml", "r", file_status::skipped, "needs grammar", {}, {}};
  file_report invalid{"s.yaml", "s.yaml", file_status::invalid, "s.yaml:1: bad", {}, {}};
  const file_report all[] = {passed, failed, skipped, invalid};
  CHECK(junit_xml(all) ==
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n"
        "<testsuites>\n"
        "  <testsuite name=\"p\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"0\" "
        "time=\"0.250\">\n"
        "    <properties>\n"
        "      <property name=\"covers\" value=\"I17\"/>\n"
        "    </properties>\n"
        "    <testcase name=\"depth=1\" classname=\"p\" time=\"0.250\"/>\n"
        "  </testsuite>\n"
        "  <testsuite name=\"q\" tests=\"1\" failures=\"1\" errors=\"0\" skipped=\"0\" "
        "time=\"0.500\">\n"
        "    <testcase name=\"q\" classname=\"q\" time=\"0.500\">\n"
        "      <failure message=\"q: &lt;1&gt; &amp; &quot;2&quot;\">q: &lt;1&gt; &amp; "
        "&quot;2&quot;\nx\n</failure>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "  <testsuite name=\"r\" tests=\"1\" failures=\"0\" errors=\"0\" skipped=\"1\" "
        "time=\"0.000\">\n"
        "    <testcase name=\"r\" classname=\"r\" time=\"0.000\">\n"
        "      <skipped message=\"needs grammar\"/>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "  <testsuite name=\"s.yaml\" tests=\"1\" failures=\"0\" errors=\"1\" skipped=\"0\" "
        "time=\"0.000\">\n"
        "    <testcase name=\"s.yaml\" classname=\"s.yaml\" time=\"0.000\">\n"
        "      <error message=\"s.yaml:1: bad\"/>\n"
        "    </testcase>\n"
        "  </testsuite>\n"
        "</testsuites>\n");
}

TEST_CASE("every case, seed and interleaving is run, shadows once per seed") {
  bench it;
  const auto path = file_of("all-runs", "matrix: { depth: [1, 2], seeds: 2, interleavings: 2 }\n" +
                                          script + "same_tokens_as: { depth: 1 }\n");
  const auto reports = it.run({path});
  CHECK(it.runs == std::vector<std::string>{
                     "depth 1 seed 1 model 1 order 0", "depth 1 seed 1 model 1 order 1",
                     "depth 1 seed 2 model 2 order 0", "depth 1 seed 2 model 2 order 1",
                     "depth 1 seed 1 model 1 order 0", "depth 2 seed 1 model 1 order 0",
                     "depth 2 seed 1 model 1 order 1", "depth 1 seed 2 model 2 order 0",
                     "depth 2 seed 2 model 2 order 0", "depth 2 seed 2 model 2 order 1"});
  REQUIRE(it.told.size() == 1);
  CHECK(it.told[0].starts_with("pass all-runs 2 cases, 8 runs, "));
  CHECK(exit_code_of(reports, true) == 0);
  it.runs.clear();
  it.options.only_case = "depth=2";
  it.options.seed = 9;
  it.options.interleaving = 5;
  CHECK(it.run({path})[0].cases.size() == 1);
  CHECK(it.runs == std::vector<std::string>{"depth 1 seed 9 model 9 order 0",
                                            "depth 2 seed 9 model 9 order 5"});
  it.runs.clear();
  it.options = run_options();
  it.options.interleavings = 3;
  it.options.features = supported_features();
  CHECK(it.run({path})[0].cases[0].runs == 6);
}

TEST_CASE("a case ends with its first failure, whose trace is kept; the other cases go on") {
  bench it;
  const auto path =
    file_of("fails-once", "matrix: { depth: [1, 2], interleavings: 5 }\n" + script +
                            "  - expect: { count: steps, value: 3, for: { depth: 1 } }\n");
  const auto reports = it.run({path});
  REQUIRE(reports[0].cases.size() == 2);
  CHECK(reports[0].status == file_status::failed);
  CHECK(reports[0].cases[0].runs == 1);
  CHECK(reports[0].cases[0].failure.find("count steps: wanted 3, seen 2") != std::string::npos);
  CHECK(reports[0].cases[1].runs == 5);
  CHECK(reports[0].cases[1].failure.empty());
  REQUIRE(it.traces.size() == 1);
  CHECK(parse_json(it.traces[0]).value().at("traceEvents").as_array().size() > 0);
  CHECK(it.told[0].starts_with("FAIL fails-once 2 cases, 6 runs, "));
  CHECK(exit_code_of(reports, false) == 10);
}

TEST_CASE("a run that differs from its shadow fails") {
  bench it;
  const auto path = file_of("differs", script + "same_tokens_as: { depth: 1 }\n");
  const auto play = it.tools.play;
  it.tools.play = [&](const scenario& of, const scenario_case& c, std::uint64_t seed,
                      std::int32_t interleaving) {
    auto other = of;
    if (c.engine.depth == 1) other.requests[0].prompt = "b";
    return play(other, c, seed, interleaving);
  };
  const auto reports = it.run({path});
  CHECK(reports[0].cases[0].failure.find("same_tokens_as: wanted length") != std::string::npos);
}

TEST_CASE("files that need more are skipped, invalid ones said, refused engines never played") {
  bench it;
  const auto needs = file_of("needs-more", "needs: [eplb, sampling, groups]\n" + script);
  const auto bad = file_of("bad", "sript: 1\n");
  const auto refused = file_of("refused", "engine: { depth: 4 }\nscript:\n"
                                          "  - expect: { start: refused, field: engine.depth }\n");
  const auto good = file_of("good", script);
  const auto reports = it.run({needs, bad, refused, good});
  CHECK(it.told[0] == "skip needs-more needs eplb, groups\n");
  CHECK(it.told[1] == "invalid " + bad + ":3:1: unknown key 'sript'; did you mean 'script'?\n");
  CHECK(it.told[2].starts_with("pass refused 1 case, 1 run, "));
  CHECK(it.runs.size() == 1);
  CHECK(exit_code_of(reports, false) == 2);
  CHECK(exit_code_of(std::span(reports).first(1), false) == 0);
  CHECK(exit_code_of(std::span(reports).first(1), true) == 11);
  CHECK(exit_code_of(std::span(reports).last(2), true) == 0);
  it.options.only_case = "depth=7";
  CHECK(it.run({good})[0].reason == "has no case depth=7");
}

TEST_CASE("the wall-clock limit stops what is left, and is said") {
  bench it;
  it.options.wall_limit_s = 0.0055;
  const auto path = file_of("long", "matrix: { interleavings: 100 }\n" + script);
  const auto reports = it.run({path, path});
  CHECK(reports[0].status == file_status::out_of_time);
  CHECK(reports[0].cases[0].runs > 0);
  CHECK(reports[0].cases[0].runs < 100);
  CHECK(reports[1].cases[0].runs == 0);
  CHECK(it.told[0] == "stop long the wall-clock limit was reached\n");
  CHECK(exit_code_of(reports, false) == 12);
  auto both = reports;
  both[0].cases[0].failure = "wrong";
  CHECK(exit_code_of(both, false) == 10);
  both[1].status = file_status::invalid;
  CHECK(exit_code_of(both, false) == 2);
  CHECK(text_of(both[0]) == "stop long the wall-clock limit was reached\nwrong");
}
