#include <doctest/doctest.h>

#include <set>
#include <vector>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

json::object json_of(const std::vector<std::string>& args, const run_options& options = {}) {
  const auto ran = run_binary(args, options);
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  return parse_json(ran.out).value().as_object();
}

/// Every id of the embedded model, as a flag takes them.
std::string all_ids() {
  std::string ids = "0";
  for (int id = 1; id < 2048; ++id) ids += "," + std::to_string(id);
  return ids;
}

std::string text_of(const json::object& answer, const char* key = "text") {
  return std::string(answer.at(key).as_string());
}

}  // namespace

TEST_CASE("generate at temperature 0 is the argmax of logits, prompt by prompt, in both numerics") {
  const temp_directory folder;
  const auto file = folder.path() + "/logits.safetensors";
  for (const auto* numeric : {"exact", "released"}) {
    for (const auto* prompt :
         {"0,17,4", "0,1315,262,922,272,80", "5", "0,2035,648,420,2036,2038"}) {
      CAPTURE(std::string(prompt));
      std::string ids = prompt;
      const auto answer = json_of({"generate", "--ids", ids, "--max-tokens", "12", "--temperature",
                                   "0", "--ignore-eos", "--numeric", numeric, "--json"});
      for (const auto& id : answer.at("ids").as_array())
        ids += "," + std::to_string(id.to_number<int>());
      const auto logits =
        json_of({"logits", "--ids", ids, "--out", file, "--numeric", numeric, "--json"});
      const auto& best = logits.at("argmax").as_array();
      const auto& got = answer.at("ids").as_array();
      REQUIRE(best.size() > got.size());
      for (std::size_t i = 0; i < got.size(); ++i)
        CHECK(best[best.size() - 1 - got.size() + i].to_number<int>() == got[i].to_number<int>());
    }
  }
}

TEST_CASE("the seed is told, and the same seed says the same at every depth and thread count") {
  const std::vector<std::string> ask{"generate", "Once", "--max-tokens", "24", "--json"};
  const auto with = [&](std::vector<std::string> more) {
    auto args = ask;
    args.insert(args.end(), more.begin(), more.end());
    return json_of(args);
  };
  const auto drawn = with({});
  const auto seed = std::to_string(drawn.at("seed").to_number<std::uint64_t>());
  CHECK(text_of(with({"--seed", seed})) == text_of(drawn));
  CHECK(text_of(with({"--seed", seed, "--depth", "1"})) == text_of(drawn));
  CHECK(text_of(with({"--seed", seed, "--depth", "3", "--num-threads", "1"})) == text_of(drawn));
  std::set<std::string> texts;
  for (int i = 0; i < 4; ++i) texts.insert(text_of(with({})));
  CHECK(texts.size() > 1);
  const auto told = run_binary({"generate", "Once", "--max-tokens", "4", "--seed", "77"});
  CHECK(holds(told.err, "seed 77"));
}

TEST_CASE("a prompt comes from an argument, standard input or ids; the text alone is on stdout") {
  const auto by_argument =
    run_binary({"generate", "In the", "--temperature", "0", "--max-tokens", "5"});
  const auto by_input =
    run_binary({"generate", "--temperature", "0", "--max-tokens", "5"}, {.input = "In the"});
  CHECK(by_argument.code == 0);
  CHECK(by_argument.out == by_input.out);
  CHECK(holds(by_argument.err, "tok/s"));
  CHECK(run_binary({"generate", "In the", "--ids", "5"}).code == 2);
  CHECK(run_binary({"chat", "--demo", "--temperature", "0"}).out ==
        "3, 4, 5, 6, 7, 8, 9, 10, 11, 12\n");
}

TEST_CASE("chat thinks when asked, for as long as a name or a number says") {
  for (const auto& effort : {"low", "max", "50", "1"}) {
    CAPTURE(std::string(effort));
    const auto answer =
      json_of({"chat", "What is 7 + 5?", "--temperature", "0", "--effort", effort, "--json"});
    CHECK(!text_of(answer, "reasoning").empty());
    CHECK(text_of(answer) == "7 + 5 = 12");
  }
  const auto plain = json_of({"chat", "What is 7 + 5?", "--temperature", "0", "--json"});
  CHECK(text_of(plain, "reasoning").empty());
  const auto refused = run_binary({"chat", "hi", "--effort", "101"});
  CHECK(refused.code == 2);
}

TEST_CASE("chat: stop strings spare the thoughts, unless --stop-in-reasoning asks for them, too") {
  const std::vector<std::string> ask{"chat", "What is 7 + 5?", "--thinking", "--temperature",
                                     "0",    "--stop",         "7",          "--json"};
  auto inside = ask;
  inside.push_back("--stop-in-reasoning");
  const auto stopped = json_of(inside);
  const auto thought = json_of(ask);
  CHECK(text_of(stopped, "finish_reason") == "stop");
  CHECK(!text_of(stopped, "reasoning").empty());
  CHECK(text_of(stopped, "reasoning").find('7') == std::string::npos);
  CHECK(text_of(stopped).empty());
  CHECK(holds(text_of(thought, "reasoning"), "7"));
  CHECK(text_of(thought, "reasoning").starts_with(text_of(stopped, "reasoning")));
  CHECK(text_of(thought).empty());
}

TEST_CASE("a limit beyond the context is refused, without one an answer may fill what is left") {
  std::string words;
  for (int i = 0; i < 1850; ++i) words += "word ";
  for (const auto* command : {"generate", "chat"}) {
    CAPTURE(std::string(command));
    const auto refused = run_binary({command, words, "--max-tokens", "5000"});
    CHECK(refused.code == 1);
    CHECK(refused.out.empty());
    CHECK(holds(refused.err, " and 5000 more are asked for, "));
    CHECK(holds(refused.err, "but the context holds 2048: shorten the prompt or lower max_tokens"));
    // Fewer are left than an answer has by default.
    const auto answer = json_of({command, words, "--temperature", "0", "--ignore-eos", "--json"});
    const auto& usage = answer.at("usage").as_object();
    CHECK(usage.at("prompt_tokens").to_number<int>() +
            usage.at("completion_tokens").to_number<int>() ==
          2048);
    CHECK(text_of(answer, "finish_reason") == "length");
    const auto too_long = run_binary({command, words + words});
    CHECK(too_long.code == 1);
    CHECK(holds(too_long.err, "2048"));
  }
}

TEST_CASE("a chat message that is not UTF-8 is read with U+FFFD for what is not") {
  const auto ran =
    run_binary({"chat", "--temperature", "0", "--max-tokens", "4"}, {.input = "Hello \xff\xfe"});
  CHECK_MESSAGE(ran.code == 0, ran.err);
}

TEST_CASE("an effort that is none is refused by the flag's name, with all that are") {
  for (const auto* found : {"foo", "0", "101", "1.5", "HIGH", ""}) {
    CAPTURE(found);
    const auto ran = run_binary({"chat", "Hi", "--effort", found});
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, std::string("--effort: found '") + found +
                           "', expected none, minimal, low, medium, high, xhigh, ultra, max or 1 "
                           "to 100"));
  }
  for (const auto* taken : {"none", "minimal", "ultra", "100"}) {
    CAPTURE(taken);
    CHECK(run_binary({"chat", "Hi", "--effort", taken, "--max-tokens", "1"}).code == 0);
  }
  CHECK(holds(run_binary({"chat", "--help"}).out, "minimal, low, medium"));
}

TEST_CASE("the smallest share that is above 0 is one") {
  CHECK(run_binary({"generate", "Once", "--max-tokens", "1", "--top-p", "1e-60"}).code == 0);
}

TEST_CASE("a bad sampling value is exit code 2 and names the field") {
  struct bad_case {
    std::vector<std::string> flags;
    const char* name;
  };
  const bad_case table[] = {
    {{"--top-p", "0"}, "--top-p: found '0', expected a number above 0, at most 1"},
    {{"--repetition-penalty", "0"},
     "--repetition-penalty: found '0', expected a number from 0.01 to 100"},
    {{"--repetition-penalty", "1e-6"},
     "--repetition-penalty: found '1e-6', expected a number from 0.01 to 100"},
    {{"--seed", "9223372036854775808"},
     "--seed: found '9223372036854775808', expected a whole number from 0 to 9223372036854775807"},
    {{"--stop-id", "999999"}, "stop_token_ids"},
    {{"--logit-bias", "999999:1"}, "logit_bias"},
    {{"--logit-bias", "5:inf"}, "logit_bias"},
    {{"--logit-bias", "5:3.4e38", "--repetition-penalty", "0.5"}, "logit_bias: found 3.4e+38"},
    {{"--stop-id", all_ids(), "--min-tokens", "5"}, "stop_token_ids: found all 2048 ids"},
    {{"--logit-bias", "x"}, "logit-bias"},
    {{"--min-tokens", "10", "--max-tokens", "3"}, "min_tokens"},
    {{"--stop", ""}, "stop"},
    {{"--temperature", "-1"}, "temperature"},
    {{"--logprobs", "2"}, "logprobs"},
    {{"--max-tokens", "0"}, "max-tokens"},
    {{"--cache-salt", ""}, "cache_salt"},
  };
  for (const auto& row : table) {
    CAPTURE(row.name);
    std::vector<std::string> args{"generate", "Once"};
    args.insert(args.end(), row.flags.begin(), row.flags.end());
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK(holds(ran.err, row.name));
    CHECK(ran.out.empty());
  }
}

TEST_CASE("sizes that no machine has are an error that says what they would take") {
  const auto many = run_binary({"generate", "Once", "--num-kv-blocks", "200000000"});
  CHECK(many.code == 2);
  CHECK(holds(many.err, "num_kv_blocks"));
  const auto odd = run_binary({"generate", "Once", "--block-size", "3"});
  CHECK(odd.code == 2);
  CHECK(holds(odd.err, "block_size"));
  const auto host = run_binary({"generate", "Once", "--prefix-host-blocks", "268435456"});
  CHECK(host.code == 2);
  CHECK(holds(host.err, "prefix_host_blocks: found 268435456"));
  CHECK(holds(host.err, "expected at most"));
  CHECK(!holds(host.err, "num_kv_blocks"));
}

TEST_CASE("settings that do not go with others are an error that names the setting") {
  struct bad_case {
    std::vector<std::string> flags;
    const char* message;
  };
  const bad_case table[] = {
    {{"--verify", "confidence"}, "engine.verify: found confidence, expected fixed"},
    {{"--verify", "confidence", "--num-drafts", "2", "--drafter", "ngram"},
     "engine.verify: found confidence, expected fixed"},
    {{"--replay", "compact", "--no-prefix-cache"},
     "replay_keep_tokens: found 0, expected at least the window, 32"},
    {{"--prefix-host-blocks", "4", "--no-prefix-cache"},
     "engine.prefix_host_blocks and engine.prefix_cache: without a prefix cache nothing is kept"},
    {{"--max-model-len", "100000"}, "model.max_model_len: found 100000, the model takes at most"},
  };
  for (const auto& row : table) {
    CAPTURE(row.message);
    std::vector<std::string> args{"generate", "Once"};
    args.insert(args.end(), row.flags.begin(), row.flags.end());
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(holds(ran.err, row.message), ran.err);
    CHECK(ran.out.empty());
  }
}

TEST_CASE("files that can't be read or written are found before the work") {
  const auto no_trace = run_binary({"generate", "Once", "--trace-file", "/nonexistent/t.json"});
  CHECK(no_trace.code == 2);
  CHECK(no_trace.out.empty());
  CHECK(holds(no_trace.err, "/nonexistent/t.json"));
  CHECK(run_binary({"chat", "hi", "--tools", "/nonexistent/tools.json"}).code == 2);
}

TEST_CASE("--trace-file leaves a trace with every row and an arrow to each forward") {
  const temp_directory folder;
  const auto file = folder.path() + "/trace.json";
  REQUIRE(run_binary({"generate", "Once", "--max-tokens", "8", "--trace-file", file}).code == 0);
  const auto trace = read_json_file(file);
  REQUIRE(trace.has_value());
  std::set<std::string> slices;
  int arrows = 0;
  for (const auto& event : trace->at("traceEvents").as_array()) {
    const std::string kind(event.at("ph").as_string());
    const std::string name(event.at("name").as_string());
    if (kind == "X") slices.insert(name.substr(0, name.find(' ')));
    if (kind == "s") ++arrows;
    if (kind == "f") --arrows;
  }
  CHECK(slices ==
        std::set<std::string>{"copy_in", "copy_out", "forward", "plan", "sample", "settle"});
  CHECK(arrows == 0);
}

TEST_CASE("--stats tells what the engine counted, on stderr or as a field of --json") {
  const std::vector<std::string> ask{"generate",     "Once", "--max-tokens", "12", "--stats",
                                     "--num-drafts", "5",    "--ignore-eos"};
  const auto told = run_binary(ask);
  REQUIRE(told.code == 0);
  for (const auto* subject : {"steps ", "12 tokens", "device ", "idle", "KV ", "drafts "})
    CHECK(holds(told.err, subject));
  CHECK(!holds(told.out, "steps "));

  auto as_json = ask;
  as_json.push_back("--json");
  const auto answer = json_of(as_json);
  const auto& stats = answer.at("stats").as_object();
  const auto count = [&](const char* name) { return stats.at(name).to_number<std::int64_t>(); };
  CHECK(count("tokens_out") == 12);
  CHECK(count("steps") >= 2);
  CHECK(count("host_waits") <= count("steps"));
  CHECK(count("draft_tokens") >= count("accepted_tokens"));
  CHECK(count("kv_blocks_free") + count("deferred_blocks") == count("kv_blocks_total"));
  // Busy and idle time are the whole span, but for what no request was waiting for.
  auto spent = count("device_busy_ns");
  for (const auto* cause : {"idle_plan_ns", "idle_settle_ns", "idle_vote_ns", "idle_transfer_ns"})
    spent += count(cause);
  CHECK(spent == count("device_span_ns"));
  CHECK(json_of({"generate", "Once", "--max-tokens", "2", "--json"}).count("stats") == 0);
  CHECK(holds(run_binary({"chat", "hi", "--max-tokens", "2", "--stats"}).err, "steps "));
}
