// The bench commands as scripts see them: fields, types and ranges of --json, refused flags. No
// time is judged here.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"

using namespace deepinfer;

namespace {

json::object json_of(const std::vector<std::string>& args) {
  const auto ran = run_binary(args);
  REQUIRE_MESSAGE(ran.code == 0, ran.err);
  return parse_json(ran.out).value().as_object();
}

std::set<std::string> keys_of(const json::object& it) {
  std::set<std::string> out;
  for (const auto& entry : it) out.insert(std::string(entry.key()));
  return out;
}

double number(const json::object& it, const char* key) {
  return it.at(key).to_number<double>();
}

std::string text(const json::object& it, const char* key) {
  return std::string(it.at(key).as_string());
}

/// median, mad, min and max of `count` positive samples, in order.
void check_summary(const json::value& value, int count) {
  const auto& it = value.as_object();
  CHECK(keys_of(it) == std::set<std::string>{"count", "mad", "max", "median", "min"});
  CHECK(it.at("count").to_number<int>() == count);
  CHECK(number(it, "min") > 0);
  CHECK(number(it, "median") >= number(it, "min"));
  CHECK(number(it, "max") >= number(it, "median"));
  CHECK(number(it, "mad") >= 0);
  CHECK(number(it, "mad") <= number(it, "max") - number(it, "min"));
}

void check_head(const json::object& it, const char* command, int threads, int probes) {
  CHECK(text(it, "command") == command);
  CHECK(it.at("schema").to_number<int>() == 1);
  const auto& machine = it.at("machine").as_object();
  CHECK(keys_of(machine) ==
        std::set<std::string>{"cores", "cpu", "huge_pages", "load_average", "memory_bytes"});
  CHECK(!text(machine, "cpu").empty());
  CHECK(number(machine, "cores") >= 1);
  CHECK(number(machine, "memory_bytes") > 1e6);
  const auto& rates = it.at("rates").as_object();
  CHECK(rates.at("threads").to_number<int>() == threads);
  CHECK(!text(rates, "isa").empty());
  for (const auto* key : {"read_bytes_per_second", "f32_flops_per_second", "int8_ops_per_second"})
    check_summary(rates.at(key), probes);
}

const std::set<std::string> draft_keys{
  "batch",        "bound_by",      "bound_seconds",     "bytes", "context_seconds",
  "drafts",       "flops",         "int8_ops",          "ops",   "parts",
  "passes",       "seconds",       "seconds_per_draft", "share", "share_in_kernels",
  "share_in_ops", "steps_per_pass"};

const std::set<std::string> kernel_keys{
  "bound_by",        "bound_seconds", "bytes",    "bytes_per_second",
  "calls",           "flops",         "int8_ops", "name",
  "ops_per_second",  "packed_bytes",  "rows",     "seconds",
  "seconds_per_row", "shape",         "share",    "share_best",
  "stored_bytes",    "threads",       "type"};

/// The bound of counted work: the longer of reading and computing, at the best rates of the run.
void check_bound(const json::object& it, const json::object& rates) {
  const auto time = [&](const char* work, const char* rate) {
    return number(it, work) / number(rates.at(rate).as_object(), "max");
  };
  const auto reading = time("bytes", "read_bytes_per_second");
  const auto f32 = time("flops", "f32_flops_per_second");
  const auto int8 = time("int8_ops", "int8_ops_per_second");
  CHECK(number(it, "bound_seconds") == doctest::Approx(std::max(reading, f32 + int8)));
  const auto* wanted = reading >= f32 + int8 ? "bandwidth" : int8 > f32 ? "int8" : "f32";
  CHECK(text(it, "bound_by") == wanted);
}

/// What holds for every entry of "kernels".
void check_kernel(const json::object& it, int repeats, const json::object& rates) {
  CAPTURE(to_text(it));
  CHECK(keys_of(it) == kernel_keys);
  check_summary(it.at("seconds"), repeats);
  const auto median = number(it.at("seconds").as_object(), "median");
  CHECK(number(it, "seconds_per_row") == doctest::Approx(median / number(it, "rows")));
  CHECK(number(it, "calls") >= 1);
  CHECK(it.at("packed_bytes").is_null() == it.at("stored_bytes").is_null());
  for (const auto* key : {"bound_by", "share", "share_best"})
    CHECK(it.at(key).is_null() == it.at("bound_seconds").is_null());
  if (it.at("share").is_null()) return;
  CHECK(number(it, "share") == doctest::Approx(number(it, "bound_seconds") / median));
  CHECK(number(it, "share_best") >= number(it, "share"));
  check_bound(it, rates);
}

void check_table(const json::object& phase, const char* key, std::set<std::string> wanted) {
  double seconds = 0;
  for (const auto& entry : phase.at(key).as_array()) {
    const auto& it = entry.as_object();
    CHECK(keys_of(it) ==
          std::set<std::string>{"bytes", "calls", "flops", "int8_ops", "name", "seconds", "share"});
    CHECK(number(it, "calls") > 0);
    CHECK(number(it, "share") >= 0);
    seconds += number(it, "seconds");
    wanted.erase(text(it, "name"));
  }
  CHECK(wanted.empty());
  CHECK(seconds > 0);
}

/// What a phase says of a step, and a draft pass of itself.
void check_work(const json::object& it, const json::object& rates) {
  CHECK(number(it, "bytes") > 0);
  CHECK(number(it, "flops") + number(it, "int8_ops") > 0);
  CHECK(number(it, "bound_seconds") > 0);
  check_bound(it, rates);
  CHECK(number(it, "share") == doctest::Approx(number(it, "bound_seconds") /
                                               number(it.at("seconds").as_object(), "median")));
  for (const auto* key : {"share_in_ops", "share_in_kernels"}) {
    CAPTURE(std::string(key));
    CHECK(number(it, key) > 0);
    CHECK(number(it, key) <= 1.0);
  }
}

/// The tables split the time inside ops, each in its own way.
void check_tables(const json::object& it, std::set<std::string> ops, std::set<std::string> parts) {
  check_table(it, "ops", std::move(ops));
  check_table(it, "parts", std::move(parts));
  for (const auto* key : {"ops", "parts"}) {
    double share = 0, bytes = 0;
    for (const auto& entry : it.at(key).as_array()) {
      share += number(entry.as_object(), "share");
      bytes += number(entry.as_object(), "bytes");
    }
    CHECK(share == doctest::Approx(number(it, "share_in_ops")));
    CHECK(bytes == doctest::Approx(number(it, "bytes")).epsilon(1e-4));
  }
}

void check_phase(const json::object& it, int batch, int repeats, const json::object& rates) {
  CAPTURE(to_text(it));
  CHECK(it.at("batch").to_number<int>() == batch);
  check_summary(it.at("tokens_per_second"), repeats);
  check_summary(it.at("request_seconds"), repeats);
  const auto& seconds = it.at("seconds").as_object();
  check_summary(seconds, seconds.at("count").to_number<int>());
  CHECK(number(seconds, "count") >= 1);
  CHECK(number(seconds, "count") <= number(it, "steps"));
  check_work(it, rates);
  CHECK(number(it, "host_share") > 0);
  CHECK(number(it, "host_seconds") > 0);
  check_tables(it, {"expert_ffn", "sample_rows"}, {"embedding", "head", "sampling"});
}

/// `together`: how many sequences the engine's token budget lets a pass take at a time.
void check_draft(const json::object& it, int batch, int together, int passes,
                 const json::object& step, const json::object& rates) {
  CAPTURE(to_text(it));
  CHECK(keys_of(it) == draft_keys);
  CHECK(it.at("batch").to_number<int>() == batch);
  CHECK(it.at("drafts").to_number<int>() == 5);
  CHECK(it.at("passes").to_number<int>() == passes);
  check_summary(it.at("seconds"), passes);
  const auto median = number(it.at("seconds").as_object(), "median");
  CHECK(number(it, "seconds_per_draft") == doctest::Approx(median / (5 * batch)));
  CHECK(number(it, "steps_per_pass") ==
        doctest::Approx(median / number(step.at("seconds").as_object(), "median")));
  CHECK(number(it, "context_seconds") > 0);
  check_work(it, rates);
  check_tables(it, {"argmax", "confidence", "expert_ffn", "attend_rows"},
               {"embedding", "attention", "experts", "streams"});
  const auto parts = (batch + together - 1) / together;
  for (const auto& entry : it.at("ops").as_array()) {  // one draft after the other
    const auto name = text(entry.as_object(), "name");
    if (name == "argmax" || name == "confidence")
      CHECK(number(entry.as_object(), "calls") == 5 * parts);
    CHECK(name != "sample_rows");
  }
}

}  // namespace

TEST_CASE("bench kernels says in JSON what was measured, on what machine, against which limits") {
  const auto out = json_of({"bench", "kernels", "--rows", "1,3", "--type", "bf16,i4", "--repeats",
                            "2", "--filter", "linear", "--json"});
  const auto& kernels = out.at("kernels").as_array();
  REQUIRE(kernels.size() == 4);
  check_head(out, "bench kernels", 1, 8);
  const auto& settings = out.at("settings").as_object();
  CHECK(keys_of(settings) ==
        std::set<std::string>{"filter", "isa", "repeats", "rotated_bytes", "table", "threads"});
  CHECK(number(settings, "rotated_bytes") >= 96e6);
  const double cells = 2048.0 * 2048.0;
  for (const auto& entry : kernels) {
    const auto& it = entry.as_object();
    check_kernel(it, 2, out.at("rates").as_object());
    const bool is_i4 = text(it, "type") == "i4";
    CHECK(text(it, "name") == "linear");
    CHECK(number(it, "calls") <=
          number(settings, "rotated_bytes") / number(it, "packed_bytes") + 1);
    CHECK(number(it, "stored_bytes") == (is_i4 ? cells / 2 + cells / 32 : 2 * cells));
    CHECK(number(it, "packed_bytes") >= (is_i4 ? cells / 2 : 2 * cells));
    CHECK(number(it, "packed_bytes") <= (is_i4 ? cells : 2 * cells));
    CHECK(number(it, "bytes") >= number(it, "packed_bytes"));
    const auto ops = 2 * cells * number(it, "rows");
    CHECK(number(it, "flops") == (is_i4 ? 0 : ops));
    CHECK(number(it, "int8_ops") == (is_i4 ? ops : 0));
    CHECK(!it.at("share").is_null());
  }
}

TEST_CASE("bench kernels measures experts, a layer's other ops and sampling, with either set") {
  for (const auto* set : {"auto", "reference"}) {
    CAPTURE(std::string(set));
    for (const auto* name :
         {"expert_ffn", "hyper", "sublayer", "attention", "top_rows", "index", "norm", "rope",
          "route", "quantise", "collapse", "attend_rows", "memory_rows", "select_rows"}) {
      CAPTURE(std::string(name));
      const auto out = json_of({"bench", "kernels", "--rows", "2", "--type", "bf16", "--repeats",
                                "1", "--filter", name, "--isa", set, "--json"});
      CHECK(!out.at("kernels").as_array().empty());
      for (const auto& it : out.at("kernels").as_array())
        check_kernel(it.as_object(), 1, out.at("rates").as_object());
    }
  }
  const auto out = json_of(
    {"bench", "kernels", "--repeats", "1", "--filter", "sample", "--threads", "1", "--json"});
  REQUIRE(out.at("kernels").as_array().size() == 4);
  for (const auto& entry : out.at("kernels").as_array()) {
    const auto& it = entry.as_object();
    check_kernel(it, 1, out.at("rates").as_object());
    CHECK(number(it, "rows") == 32);
    CHECK(it.at("type").is_null());
    CHECK(it.at("packed_bytes").is_null());
    CHECK(number(it, "threads") == number(out.at("machine").as_object(), "cores"));
  }
}

TEST_CASE("bench kernels says how large e4m3 weights are as stored and as a kernel reads them") {
  const auto out = json_of({"bench", "kernels", "--rows", "1", "--type", "e4m3,i8", "--repeats",
                            "1", "--filter", "linear", "--json"});
  const auto& kernels = out.at("kernels").as_array();
  REQUIRE(kernels.size() == 2);
  const double cells = 2048.0 * 2048.0;
  for (const auto& it : kernels)  // with a scale for each block of 32 x 32
    CHECK(it.at("stored_bytes").to_number<double>() == cells + cells / 1024);
  CHECK(kernels[0].at("packed_bytes").to_number<double>() >= 2 * cells);  // as bf16
  CHECK(kernels[1].at("packed_bytes").to_number<double>() >= cells);
  CHECK(kernels[1].at("packed_bytes").to_number<double>() < 2 * cells);
}

TEST_CASE("bench kernels counts what the fused ops of attention read, exact and with int8 output") {
  for (const auto* name : {"attend_rows", "select_rows", "memory_rows"}) {
    CAPTURE(std::string(name));
    const auto out =
      json_of({"bench", "kernels", "--rows", "1,3", "--repeats", "1", "--filter", name, "--json"});
    const auto& kernels = out.at("kernels").as_array();
    const bool has_int8 = std::string(name) != "select_rows";
    REQUIRE(kernels.size() == (has_int8 ? 4 : 2));
    std::set<std::string> shapes;
    for (const auto& entry : kernels) {
      const auto& it = entry.as_object();
      shapes.insert(text(it, "shape"));
      const auto rows = number(it, "rows");
      if (std::string(name) == "attend_rows") {
        CHECK(number(it, "bytes") == rows * (128 + 512) * 256 * 4);
        CHECK(number(it, "flops") == rows * (128 + 512) * 256 * 16 * 4);
      }
      if (std::string(name) == "select_rows") CHECK(number(it, "bytes") == rows * 4096 * 64 * 4);
      CHECK(it.at("share").is_null() == (std::string(name) == "memory_rows"));
    }
    CHECK(shapes.size() == (has_int8 ? 2 : 1));
  }
}

TEST_CASE("bench offline counts decode, prefill and draft passes apart, and times each") {
  for (const auto* numeric : {"exact", "fast"}) {
    CAPTURE(std::string(numeric));
    const auto out =
      json_of({"bench", "offline", "--batch", "1,3", "--prompt", "5", "--tokens", "6", "--prefill",
               "40", "--repeats", "2", "--numeric", numeric, "--num-threads", "2", "--json"});
    check_head(out, "bench offline", 2, 5 * 3 * 3);
    const auto& rates = out.at("rates").as_object();
    const auto& settings = out.at("settings").as_object();
    CHECK(text(settings, "numeric") == numeric);
    CHECK(text(settings, "model") == "tiny-v41");
    CHECK(settings.at("tokens").to_number<int>() == 6);
    const auto& prefill = out.at("prefill").as_object();
    check_phase(prefill, 1, 2, rates);
    CHECK(prefill.at("steps").to_number<int>() == 2);
    const auto& decode = out.at("decode").as_array();
    REQUIRE(decode.size() == 2);
    check_phase(decode[0].as_object(), 1, 2, rates);
    check_phase(decode[1].as_object(), 3, 2, rates);
    CHECK(decode[0].at("steps").to_number<int>() == 10);  // 5 a repeat: prefill gives the first id
    const auto& draft = out.at("draft").as_array();
    REQUIRE(draft.size() == 2);
    check_draft(draft[0].as_object(), 1, 1, 10, decode[0].as_object(), rates);
    check_draft(draft[1].as_object(), 3, 3, 10, decode[1].as_object(), rates);
    // A prefill of 40 ids computes more than a step of one; three rows read no less than one does.
    const auto work = [](const json::value& it) {
      return it.at("flops").to_number<double>() + it.at("int8_ops").to_number<double>();
    };
    CHECK(work(out.at("prefill")) > 5 * work(decode[0]));
    for (const auto* phases : {&decode, &draft}) {
      const auto& alone = phases->at(0);
      const auto& three = phases->at(1);
      CHECK(work(three) > 2 * work(alone));
      CHECK(three.at("bytes").to_number<double>() >= alone.at("bytes").to_number<double>());
      const auto int8_ops = alone.at("int8_ops").to_number<double>();
      CHECK((int8_ops == 0) == (std::string(numeric) == "exact"));
    }
  }
}

TEST_CASE("bench offline drafts within the engine's token budget, and not at all with --no-draft") {
  std::vector<std::string> args{"bench",     "offline",
                                "--batch",   "4",
                                "--prompt",  "9",
                                "--tokens",  "3",
                                "--prefill", "0",
                                "--repeats", "1",
                                "--json",    "--max-num-batched-tokens",
                                "4",         "--max-num-seqs",
                                "4",         "--chunk-size",
                                "4"};
  const auto whole = json_of(args);  // prompts in chunks, a pass for a sequence at a time
  REQUIRE(whole.at("draft").as_array().size() == 1);
  check_draft(whole.at("draft").at(0).as_object(), 4, 1, 2, whole.at("decode").at(0).as_object(),
              whole.at("rates").as_object());
  args.push_back("--no-draft");
  CHECK(json_of(args).at("draft").as_array().empty());
}

TEST_CASE("the tables for people name machine, settings and limits, and fit 100 columns") {
  const auto check_width = [](const std::string& out) {
    for (std::size_t begin = 0; begin < out.size();) {
      const auto end = std::min(out.find('\n', begin), out.size());
      CHECK_MESSAGE(end - begin <= 100, out.substr(begin, end - begin));
      begin = end + 1;
    }
  };
  const auto kernels = run_binary({"bench", "kernels", "--rows", "1,32", "--type", "bf16,e4m3",
                                   "--repeats", "1", "--isa", "auto"});
  REQUIRE_MESSAGE(kernels.code == 0, kernels.err);
  for (const auto* part :
       {" cores", "GB/s", "GFLOP/s", "1 repeats", "share: ", "packed, stored: ",
        "linear: 2048 x 2048, 1 thread", "expert_ffn: 6 of 64 experts, 512 x 1024",
        "attend_rows: 16 heads of 256", "memory_rows: ", "select_rows: ", "sample_rows: ", "%"})
    CHECK(holds(kernels.out, part));
  check_width(kernels.out);
  const auto offline = run_binary({"bench", "offline", "--batch", "1", "--prompt", "3", "--tokens",
                                   "3", "--prefill", "0", "--repeats", "1"});
  REQUIRE_MESSAGE(offline.code == 0, offline.err);
  for (const auto* part : {" cores", "GB/s", "tiny-v41", "numeric exact", "decode, batch 1",
                           "tok/s", "host work", "% of the bound", "inside ops", "inside kernels",
                           "expert_ffn", "draft pass, batch 1", "decode steps of this batch"})
    CHECK(holds(offline.out, part));
  CHECK(!holds(offline.out, "prefill of"));
  check_width(offline.out);
}

TEST_CASE("a bench flag that can't be is exit code 2 and named") {
  struct bad_case {
    std::vector<std::string> flags;
    const char* name;
  };
  const bad_case table[] = {
    {{"kernels", "--rows", "0"}, "--rows"},
    {{"kernels", "--rows", "x"}, "--rows"},
    {{"kernels", "--type", "fp16"}, "--type"},
    {{"kernels", "--repeats", "0"}, "repeats"},
    {{"kernels", "--threads", "0"}, "threads"},
    {{"kernels", "--isa", "sse9"}, "--isa"},
    {{"kernels", "--filter", "nothing"}, "linear"},
    {{"offline", "--batch", "0"}, "--batch"},
    {{"offline", "--batch", "9999"}, "--batch"},
    {{"offline", "--tokens", "1"}, "tokens"},
    {{"offline", "--tokens", "2048"}, "--tokens"},
    {{"offline", "--prefill", "2048"}, "--prefill"},
    {{"offline", "--batch", "200", "--num-kv-blocks", "20"}, "--batch"},
    {{"offline", "--batch", "1", "--trace-buffer-steps", "2"}, "--trace-buffer-steps"},
    {{"serve", "--url", "https://x"}, "https://x"},
    {{"serve", "--goodput", "ttft"}, "--goodput"},
    {{"serve", "--num-prompts", "0"}, "num-prompts"},
    {{"nothing"}, "kernels"},
  };
  for (const auto& row : table) {
    std::vector<std::string> args{"bench"};
    args.insert(args.end(), row.flags.begin(), row.flags.end());
    CAPTURE(args[1] + " " + row.name);
    const auto ran = run_binary(args);
    CHECK(ran.code == 2);
    CHECK_MESSAGE(holds(ran.err, row.name), ran.err);
    CHECK(ran.out.empty());
  }
}
