// The bench commands as scripts see them: fields, types and ranges of --json, refused flags. No
// time is judged here.
#include <doctest/doctest.h>

#include <set>
#include <string>
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

const std::set<std::string> kernel_keys{
  "bound_by",        "bound_seconds", "bytes",    "bytes_per_second",
  "calls",           "flops",         "int8_ops", "name",
  "ops_per_second",  "packed_bytes",  "rows",     "seconds",
  "seconds_per_row", "shape",         "share",    "share_best",
  "stored_bytes",    "threads",       "type"};

/// What holds for every entry of "kernels".
void check_kernel(const json::object& it, int repeats) {
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
  CHECK(std::set<std::string>{"bandwidth", "f32", "int8"}.contains(text(it, "bound_by")));
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

void check_phase(const json::object& it, int batch, int repeats) {
  CAPTURE(to_text(it));
  CHECK(it.at("batch").to_number<int>() == batch);
  check_summary(it.at("tokens_per_second"), repeats);
  check_summary(it.at("request_seconds"), repeats);
  const auto& seconds = it.at("seconds").as_object();
  check_summary(seconds, seconds.at("count").to_number<int>());
  CHECK(number(seconds, "count") >= 1);
  CHECK(number(seconds, "count") <= number(it, "steps"));
  CHECK(number(it, "bytes") > 0);
  CHECK(number(it, "flops") + number(it, "int8_ops") > 0);
  CHECK(number(it, "bound_seconds") > 0);
  CHECK(number(it, "share") ==
        doctest::Approx(number(it, "bound_seconds") / number(seconds, "median")));
  for (const auto* key : {"share_in_ops", "share_in_kernels", "host_share"}) {
    CAPTURE(std::string(key));
    CHECK(number(it, key) > 0);
  }
  CHECK(number(it, "share_in_ops") <= 1.0);
  CHECK(number(it, "share_in_kernels") <= 1.0);
  CHECK(number(it, "host_seconds") > 0);
  check_table(it, "ops", {"expert_ffn", "sample_rows"});
  check_table(it, "parts", {});
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
    check_kernel(it, 2);
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
    for (const auto* name : {"expert_ffn", "hyper", "sublayer", "attention", "top_rows", "index",
                             "norm", "rope", "route", "quantise", "collapse"}) {
      CAPTURE(std::string(name));
      const auto out = json_of({"bench", "kernels", "--rows", "2", "--type", "bf16", "--repeats",
                                "1", "--filter", name, "--isa", set, "--json"});
      CHECK(!out.at("kernels").as_array().empty());
      for (const auto& it : out.at("kernels").as_array()) check_kernel(it.as_object(), 1);
    }
  }
  const auto out = json_of(
    {"bench", "kernels", "--repeats", "1", "--filter", "sample", "--threads", "1", "--json"});
  REQUIRE(out.at("kernels").as_array().size() == 4);
  for (const auto& entry : out.at("kernels").as_array()) {
    const auto& it = entry.as_object();
    check_kernel(it, 1);
    CHECK(number(it, "rows") == 32);
    CHECK(it.at("type").is_null());
    CHECK(it.at("packed_bytes").is_null());
    CHECK(number(it, "threads") == number(out.at("machine").as_object(), "cores"));
  }
}

TEST_CASE("bench offline counts a decode step and a prefill step apart, and times both") {
  for (const auto* numeric : {"exact", "fast"}) {
    CAPTURE(std::string(numeric));
    const auto out =
      json_of({"bench", "offline", "--batch", "1,3", "--prompt", "5", "--tokens", "6", "--prefill",
               "40", "--repeats", "2", "--numeric", numeric, "--num-threads", "2", "--json"});
    check_head(out, "bench offline", 2, 3 * 3 * 3);
    const auto& settings = out.at("settings").as_object();
    CHECK(text(settings, "numeric") == numeric);
    CHECK(text(settings, "model") == "tiny-v41");
    CHECK(settings.at("tokens").to_number<int>() == 6);
    const auto& prefill = out.at("prefill").as_object();
    check_phase(prefill, 1, 2);
    CHECK(prefill.at("steps").to_number<int>() == 2);
    const auto& decode = out.at("decode").as_array();
    REQUIRE(decode.size() == 2);
    check_phase(decode[0].as_object(), 1, 2);
    check_phase(decode[1].as_object(), 3, 2);
    CHECK(decode[0].at("steps").to_number<int>() == 10);  // 5 a repeat: prefill gives the first id
    // A prefill of 40 ids computes more than a step of one; three rows read no less than one does.
    const auto work = [](const json::value& it) {
      return it.at("flops").to_number<double>() + it.at("int8_ops").to_number<double>();
    };
    CHECK(work(out.at("prefill")) > 5 * work(decode[0]));
    CHECK(work(decode[1]) > 2 * work(decode[0]));
    CHECK(decode[1].at("bytes").to_number<double>() >= decode[0].at("bytes").to_number<double>());
    if (std::string(numeric) == "exact") CHECK(decode[0].at("int8_ops").to_number<double>() == 0);
    if (std::string(numeric) == "fast") CHECK(decode[0].at("int8_ops").to_number<double>() > 0);
  }
}

TEST_CASE("the tables for people name machine, settings and limits") {
  const auto kernels = run_binary(
    {"bench", "kernels", "--rows", "1", "--type", "bf16", "--repeats", "1", "--filter", "linear"});
  REQUIRE_MESSAGE(kernels.code == 0, kernels.err);
  for (const auto* part : {" cores", "GB/s", "GFLOP/s", "1 repeats", "linear", "2048 x 2048", "%"})
    CHECK(holds(kernels.out, part));
  const auto offline = run_binary({"bench", "offline", "--batch", "1", "--prompt", "3", "--tokens",
                                   "3", "--prefill", "0", "--repeats", "1"});
  REQUIRE_MESSAGE(offline.code == 0, offline.err);
  for (const auto* part : {" cores", "GB/s", "tiny-v41", "numeric exact", "decode, batch 1",
                           "tok/s", "host work", "% of the bound", "expert_ffn"})
    CHECK(holds(offline.out, part));
  CHECK(!holds(offline.out, "prefill of"));
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
    {{"serve"}, "kernels"},
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
