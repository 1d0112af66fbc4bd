#include <doctest/doctest.h>

#include "config/flags.hpp"

using namespace deepinfer;

namespace {

command_line sample() {
  command_line command{.program = "deepinfer sample",
                       .summary = "try flags",
                       .positionals = "[TEXT]",
                       .positionals_max = 1};
  command.flags = {
    {.name = "json", .help = "one JSON object"},
    {.name = "max-tokens", .help = "most output tokens", .value_name = "N", .default_text = "256"},
    {.name = "out", .help = "where to write", .value_name = "FILE", .short_name = 'o'},
    {.name = "stop", .help = "stop text", .value_name = "TEXT", .is_repeatable = true}};
  for (auto& f : engine_flags()) command.flags.push_back(f);
  return command;
}

result<parsed_flags> parse(std::vector<std::string> args) {
  return parse_flags(sample(), args);
}

}  // namespace

TEST_CASE("flags take values with a space or an equals sign, whatever the value looks like") {
  const auto flags = parse({"--max-tokens", "5", "--out=a.json", "--json", "--stop", "[a,b]",
                            "--stop=-x", "--stop", "", "text"});
  REQUIRE_MESSAGE(flags, flags.error().message);
  CHECK(flags->text("max-tokens") == "5");
  CHECK(flags->text("out") == "a.json");
  CHECK(flags->is_on("json"));
  CHECK(flags->values.at("stop") == std::vector<std::string>{"[a,b]", "-x", ""});
  CHECK(flags->positionals == std::vector<std::string>{"text"});
  CHECK(!flags->has("depth"));
}

TEST_CASE("a short flag works, the last value of a flag counts, and -v and -q add up") {
  const auto flags = parse({"-o", "a", "-o", "b", "-vv", "-q"});
  REQUIRE_MESSAGE(flags, flags.error().message);
  CHECK(flags->values.at("out") == std::vector<std::string>{"b"});
  CHECK(flags->verbosity == 1);
}

TEST_CASE("a boolean setting has a flag that switches it on and one that switches it off") {
  CHECK(parse({"--mixed-steps"})->text("mixed-steps") == "true");
  CHECK(parse({"--no-mixed-steps"})->text("mixed-steps") == "false");
  CHECK(parse({"--mixed-steps", "--no-mixed-steps"})->text("mixed-steps") == "false");
  CHECK(!parse({})->has("mixed-steps"));
  CHECK(!parse({"--no-json"}));
}

TEST_CASE("names that users of vLLM know are names of the same settings") {
  const auto flags = parse({"--num-speculative-tokens", "3", "--no-enable-prefix-caching"});
  REQUIRE_MESSAGE(flags, flags.error().message);
  CHECK(flags->text("num-drafts") == "3");
  CHECK(flags->text("prefix-cache") == "false");
  CHECK(parse({"--enable-prefix-caching"})->text("prefix-cache") == "true");
  CHECK(parse({"--no-enable-prefix-caching=false"})->text("prefix-cache") == "true");
  // Of two names for one setting, too, the last counts.
  CHECK(parse({"--num-drafts=2", "--num-speculative-tokens=4"})->text("num-drafts") == "4");
  CHECK(parse({"--no-prefix-cache", "--enable-prefix-caching"})->text("prefix-cache") == "true");
  CHECK(parse({"--enable-prefix-caching=no"})
          .error()
          .message.starts_with("--enable-prefix-caching: found 'no'"));
  CHECK(parse({"--no-enable-prefix-cachin"})
          .error()
          .message.find("did you mean '--no-enable-prefix-caching'?") != std::string::npos);
  CHECK(help_text(sample()).find("--num-speculative-tokens") != std::string::npos);
}

TEST_CASE("a switch takes =true and =false, and what stands as the value of a flag is no switch") {
  CHECK(parse({"--json=true"})->is_on("json"));
  CHECK(!parse({"--json=false"})->is_on("json", true));
  CHECK(parse({"--no-mixed-steps=false"})->text("mixed-steps") == "true");
  const auto flags = parse({"--stop", "--json=3", "-o", "--depth=", "x"});
  REQUIRE_MESSAGE(flags, flags.error().message);
  CHECK(flags->values.at("stop") == std::vector<std::string>{"--json=3"});
  CHECK(flags->text("out") == "--depth=");
  CHECK(!flags->has("json"));
  CHECK(parse({"--", "--json=3"})->positionals == std::vector<std::string>{"--json=3"});
}

TEST_CASE("brackets, quotes and dashes in an argument arrive as they are") {
  for (const auto* text :
       {"[1,2]", "{\"a\": 1}", "'x'", "\"\"", "-", "a=b", "", "%n", "[]", "日本"}) {
    CAPTURE(text);
    const auto flags = parse({text});
    REQUIRE_MESSAGE(flags, flags.error().message);
    CHECK(flags->positionals == std::vector<std::string>{text});
    const auto as_value = parse({"--stop", text});
    REQUIRE(as_value);
    CHECK(as_value->text("stop") == text);
  }
  const auto after = parse({"--json", "--", "--max-tokens"});
  REQUIRE(after);
  CHECK(after->positionals == std::vector<std::string>{"--max-tokens"});
}

TEST_CASE("a mistake on the command line is bad_config and names the argument") {
  struct mistake {
    std::vector<std::string> args;
    std::string message;
  };
  // clang-format off
  const mistake table[] = {
    {{"--max-token", "5"}, "unknown flag '--max-token'; did you mean '--max-tokens'? (see 'deepinfer sample --help')"},
    {{"--max_tokens=5"}, "unknown flag '--max_tokens=5'; did you mean '--max-tokens'?"},
    {{"--dpeth", "2"}, "unknown flag '--dpeth'; did you mean '--depth'?"},
    {{"--no-mixed-step"}, "unknown flag '--no-mixed-step'; did you mean '--no-mixed-steps'?"},
    {{"--completely-else"}, "unknown flag '--completely-else' (see"},
    {{"-x"}, "unknown flag '-x'"},
    {{"a", "b"}, "unexpected argument 'b'"},
    {{"--out"}, "--out: found nothing, expected FILE (see 'deepinfer sample --help')"},
    {{"--json", "-o"}, "-o: found nothing, expected FILE (see"},
    {{"-vo"}, "-o: found nothing, expected FILE (see"},
    {{"--out", ""}, "--out: found nothing, expected FILE (see"},
    {{"-o", "", "--json"}, "-o: found nothing, expected FILE (see"},
    {{"--model", ""}, "--model: found nothing, expected DIR (see"},
    {{"--max-tokens", "1", "--stop"}, "--stop: found nothing, expected TEXT (see"},
    {{"--depth"}, "--depth: found nothing, expected N (see"},
    {{"--depth", "--", "2"}, "--depth: found nothing, expected N (see"},
    {{"--num-speculative-tokens"}, "--num-speculative-tokens: found nothing, expected N (see"},
    {{"--device"}, "--device: found nothing, expected auto|cpu|virtual (see"},
    {{"--json=3"}, "--json: found '3', expected no value, =true or =false (see"},
    {{"--json=no"}, "--json: found 'no', expected no value"},
    {{"--json="}, "--json: found '', expected no value"},
    {{"--mixed-steps=off"}, "--mixed-steps: found 'off', expected no value"},
    {{"--no-mixed-steps=0"}, "--no-mixed-steps: found '0', expected no value"},
    {{"--quiet=2"}, "--quiet: found '2', expected no value (see"},
    {{"--max-tokens=", "Once"}, "--max-tokens: found nothing after '=', expected N (see"},
    {{"--depth="}, "--depth: found nothing after '=', expected N"},
    {{"--stop=", "a"}, "--stop: found nothing after '=', expected TEXT"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.message);
    const auto flags = parse(row.args);
    REQUIRE(!flags);
    CHECK(flags.error().code == errc::bad_config);
    CHECK(flags.error().message.find(row.message) != std::string::npos);
  }
  auto strict = sample();
  strict.positionals_min = 1;
  const auto missing = parse_flags(strict, {});
  REQUIRE(!missing);
  CHECK(missing.error().message.starts_with("missing argument: [TEXT]"));
  const std::vector<std::string> help{"--help"};
  CHECK(parse_flags(strict, help)->help);
}

TEST_CASE("a flag of every setting that takes a value says what, where it has none") {
  for (const auto& it : engine_flags()) {
    if (it.value_name.empty()) continue;
    CAPTURE(it.name);
    const auto flags = parse({"--json", "--" + it.name});
    REQUIRE(!flags);
    CHECK(flags.error().message == "--" + it.name + ": found nothing, expected " + it.value_name +
                                     " (see 'deepinfer sample --help')");
  }
}

TEST_CASE("the value of a short flag may follow at once, behind switches as well") {
  const auto flags = parse({"-oa.json", "-vqobc", "text"});
  REQUIRE_MESSAGE(flags, flags.error().message);
  CHECK(flags->text("out") == "bc");
  CHECK(flags->positionals == std::vector<std::string>{"text"});
}

TEST_CASE("a negative number is an argument and no flag") {
  for (const auto* text : {"-4", "-40", "-0.5", "-.5", "-1e3", "-9223372036854775809"}) {
    CAPTURE(text);
    const auto flags = parse({"--json", text});
    REQUIRE_MESSAGE(flags, flags.error().message);
    CHECK(flags->positionals == std::vector<std::string>{text});
  }
  for (const auto* text : {"-x4", "-.", "-.x", "--4"}) {
    CAPTURE(text);
    CHECK(!parse({text}));
  }
}

TEST_CASE("numbers of flags are checked against their limits") {
  const auto flags = parse({"--max-tokens", "12", "--out", "0.5x", "--stop", "0.25"});
  REQUIRE(flags);
  CHECK(flags->integer("max-tokens", 1, 100).value() == 12);
  const auto high = flags->integer("max-tokens", 1, 10);
  REQUIRE(!high);
  CHECK(high.error().message == "--max-tokens: found '12', expected a whole number from 1 to 10");
  CHECK(!flags->number("out", 0, 1));
  CHECK(flags->number("stop", 0, 1).value() == 0.25);
  CHECK(!flags->number("stop", 0.5, 1));
  CHECK(flags->integer("depth", 1, 3).value() == std::nullopt);
  CHECK(flags->positive("stop", 1).value() == 0.25);
  const auto none = parse({"--stop", "0"});
  REQUIRE(none);
  const auto bound = none->positive("stop", 1);
  REQUIRE(!bound);
  CHECK(bound.error().message == "--stop: found '0', expected a number above 0, at most 1");
  CHECK(!parse({"--stop", "1.5"})->positive("stop", 1));
  CHECK(!parse({"--stop", "nan"})->positive("stop", 1));
}

TEST_CASE("help names every flag with its default, in at most 100 columns") {
  const auto help = help_text(sample());
  for (const auto& f : sample().flags) {
    CAPTURE(f.name);
    CHECK(help.find(f.is_negatable ? "--[no-]" + f.name : "--" + f.name) != std::string::npos);
  }
  CHECK(help.find("[default: 256]") != std::string::npos);
  CHECK(help.find("[default: 60s]") != std::string::npos);
  CHECK(help.find("Usage: deepinfer sample [FLAGS] [TEXT]") != std::string::npos);
  for (std::size_t begin = 0; begin < help.size();) {
    const auto end = std::min(help.find('\n', begin), help.size());
    const auto line = help.substr(begin, end - begin);
    CAPTURE(line);
    CHECK(line.size() <= 100);
    begin = end + 1;
  }
}
