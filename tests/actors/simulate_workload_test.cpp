// What the simulator reads and draws: workload files, step models, lengths.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "actors/simulate/step_model.hpp"
#include "actors/simulate/workload.hpp"

using namespace deepinfer;

TEST_CASE("simulate: a workload file names its columns, and requests come by arrival") {
  const auto read = parse_workload("priority, prompt_tokens,arrival_ms,output_tokens\r\n"
                                   "\n"
                                   "1,20,2.5,3\r\n"
                                   ",30,0,4\n"
                                   "-2,40,2.5,5",
                                   "w.csv");
  REQUIRE(read);
  const std::vector<workload_request> expected{
    {0, 30, 4, "", 0, 0}, {2'500'000, 20, 3, "", 0, 1}, {2'500'000, 40, 5, "", 0, -2}};
  CHECK(*read == expected);
  const auto groups = parse_workload("arrival_ms,prompt_tokens,output_tokens,prefix_group,"
                                     "prefix_tokens\n0,20,3,chat,20\n0,20,3,,\n",
                                     "w.csv");
  REQUIRE(groups);
  CHECK((*groups)[0].prefix_group == "chat");
  CHECK((*groups)[0].prefix_tokens == 20);
  CHECK((*groups)[1].prefix_group.empty());
}

TEST_CASE("simulate: a bad line is refused with file, line, what was found and expected") {
  struct bad_file {
    std::string text;
    std::string message;
  };
  const std::string head = "arrival_ms,prompt_tokens,output_tokens\n";
  const std::string prefix = "arrival_ms,prompt_tokens,output_tokens,prefix_group,prefix_tokens\n";
  const bad_file table[] = {
    {"", "w.csv: found no request, expected a header and a line for each request"},
    {head, "w.csv: found no request, expected a header and a line for each request"},
    {"arrival_ms,prompt_tokens\n",
     "w.csv:1: header: found 'arrival_ms,prompt_tokens', expected a column output_tokens"},
    {"arrival_ms,size\n", "w.csv:1: column: found 'size', expected one of arrival_ms, "
                          "prompt_tokens, output_tokens, prefix_group, prefix_tokens, priority"},
    {"arrival_ms,arrival_ms\n", "w.csv:1: column: found 'arrival_ms', expected each column once"},
    {head + "0,1,1\n0,x,1\n",
     "w.csv:3: prompt_tokens: found 'x', expected a whole number from 1 to 16777216"},
    {head + "0,1,0\n",
     "w.csv:2: output_tokens: found '0', expected a whole number from 1 to 16777216"},
    {head + "-1,1,1\n", "w.csv:2: arrival_ms: found '-1', expected milliseconds from 0 to 1e9"},
    {head + "nan,1,1\n", "w.csv:2: arrival_ms: found 'nan', expected milliseconds from 0 to 1e9"},
    {head + ",1,1\n", "w.csv:2: arrival_ms: found '', expected milliseconds from 0 to 1e9"},
    {head + "\n0,1\n", "w.csv:3: line: found '0,1', expected 3 values, as in the header"},
    {prefix + "0,8,1,a,9\n",
     "w.csv:2: prefix_tokens: found '9', expected at most prompt_tokens, 8"},
    {prefix + "0,8,1,,4\n",
     "w.csv:2: prefix_group: found '', expected a group that the prefix_tokens are shared with"},
  };
  for (const auto& it : table) {
    const auto read = parse_workload(it.text, "w.csv");
    REQUIRE_FALSE(read);
    CHECK(read.error().code == errc::bad_config);
    CHECK(read.error().message == it.message);
  }
}

TEST_CASE("simulate: a drawn workload has the lengths, the rate and the share it was asked for") {
  synthetic_workload like;
  like.requests = 4000;
  like.rate = 20;
  like.prompt = {100, 10};
  like.output = {5, 4};
  like.prefix_tokens = 95;
  like.prefix_share = 0.25;
  const auto drawn = draw_workload(like);
  REQUIRE(drawn.size() == 4000);
  double prompt = 0;
  int shared = 0, shortest = 1000, longest = 0;
  for (const auto& it : drawn) {
    prompt += it.prompt_tokens;
    shared += it.prefix_tokens > 0;
    CHECK(it.prefix_tokens <= it.prompt_tokens);
    CHECK(it.output_tokens >= 1);
    CHECK(it.output_tokens <= 9);
    shortest = std::min(shortest, it.prompt_tokens);
    longest = std::max(longest, it.prompt_tokens);
  }
  CHECK(shortest == 90);
  CHECK(longest == 110);
  CHECK(prompt / 4000 == doctest::Approx(100).epsilon(0.01));
  CHECK(shared / 4000.0 == doctest::Approx(0.25).epsilon(0.1));
  CHECK(static_cast<double>(drawn.back().arrival_ns) / 1e9 == doctest::Approx(200).epsilon(0.05));
  CHECK(std::is_sorted(drawn.begin(), drawn.end(),
                       [](const auto& a, const auto& b) { return a.arrival_ns < b.arrival_ns; }));
  CHECK(draw_workload(like) == drawn);
  like.seed = 2;
  CHECK(draw_workload(like) != drawn);
  like.rate = 0;
  CHECK(draw_workload(like).back().arrival_ns == 0);
}

TEST_CASE("simulate: lengths are MEAN or MEAN:SPREAD") {
  CHECK(parse_length_range("512")->mean == 512);
  CHECK(parse_length_range("512")->spread == 0);
  CHECK(parse_length_range("512:511")->spread == 511);
  for (const auto* text : {"", "0", "x", "5:", "5:5", "5:x", "-5", "5:1:1"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_length_range(text));
  }
}

TEST_CASE("simulate: a step's time is that of its tokens, rows and context") {
  const auto model =
    parse_step_model("base=1ms,token=2us,row=0.5us,context=0.25ns,sample=0,copy=3ns");
  REQUIRE(model);
  step_plan plan;
  plan.clear();
  plan.sequences.resize(2);
  plan.positions = {100, 0};
  plan.widths = {1, 27};
  plan.total_width = 28;
  CHECK(model->forward_ns(plan) == 1'000'000 + 28 * 2000 + 2 * 500 + 128 / 4);
  CHECK(model->sampling_ns() == 0);
  CHECK(model->copying_ns() == 3);
  CHECK(parse_step_model("base=2s")->base_ns == 2e9);
  CHECK(parse_step_model("base=2s")->token_ns == step_model().token_ns);
  for (const auto* text : {"base", "bass=1ms", "base=1", "base=-1ms", "base=1m", "base=x", "=1ms",
                           "base=nan", "base=2h", "base=1ms;token=1us", "base=9999s"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_step_model(text));
  }
  CHECK(parse_step_model("bass=1ms").error().message ==
        "found 'bass=1ms', expected KEY=TIME with one of base, token, row, context, sample, copy");
}

TEST_CASE("simulate: acceptance is a list of probabilities") {
  CHECK(*parse_acceptance("0.8,0,1") == acceptance_model{0.8, 0, 1});
  for (const auto* text : {"", "1.1", "-0.1", "x", "0.5,,0.5", "0.5;0.5", "nan"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_acceptance(text));
  }
}
