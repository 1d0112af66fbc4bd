#include <doctest/doctest.h>

#include <fcntl.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <map>

#include "runtime/base/json.hpp"
#include "runtime/model/safetensors.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

TEST_CASE(
  "results go to stdout, mistakes to stderr with exit code 2 and one line that names them") {
  struct mistake {
    std::vector<std::string> args;
    std::string message;
  };
  // clang-format off
  const mistake table[] = {
    {{"tokenise", "x"}, "unknown command 'tokenise'; did you mean 'tokenize'?"},
    {{"cofnig"}, "unknown command 'cofnig'; did you mean 'config'?"},
    {{"config"}, "config: found nothing, expected one of print, validate, get, set, docs, metrics"},
    {{"config", "prnt"}, "config: found unknown 'prnt', expected one of print, validate, get, set, docs, metrics"},
    {{"tokenize", "--jsno", "x"}, "unknown flag '--jsno'; did you mean '--json'?"},
    {{"tokenize", "a", "b"}, "unexpected argument 'b'"},
    {{"config", "validate"}, "missing argument: FILE"},
    {{"config", "print", "--depth", "4"}, "--depth: found '4', expected a whole number from 1 to 3"},
    {{"config", "print", "--config", "/nonexistent.yaml"}, "/nonexistent.yaml: "},
    {{"detokenize", "1,x"}, "id 2: found 'x', expected a whole number, at least 0"},
    {{"detokenize", "1,,2"}, "id 2: found ''"},
    {{"tokenize", "--jsonl", "/nonexistent.jsonl"}, "/nonexistent.jsonl: "},
    {{"render", "/nonexistent.json"}, "/nonexistent.json: "},
    {{"render"}, "expected FILE.json"},
    {{"logits", "--out", "/tmp/x"}, "--ids: found none"},
    {{"logits", "--ids", "0"}, "--out: found none"},
    {{"logits", "--ids", "0,2048", "--out", "x"}, "--ids: id 2: found '2048', expected a whole number, 0 to 2047"},
    {{"check", "--ep-size", "0"}, "--ep-size: found '0', expected a whole number from 1"},
    {{"check", "--device-memory", "0"}, "--device-memory: found '0', expected more than 0 bytes"},
    {{"check", "--device-memory", "9999TiB"}, "--device-memory: found '9999TiB', expected a size such as 8GiB, 512MiB or 1000000, at most 8192TiB"},
    {{"help", "tokenise"}, "unknown command 'tokenise'; did you mean 'tokenize'?"},
    {{"generate", "--max-model-len", "1", "x"}, "--max-model-len: found '1', expected a whole number from 2 to 16777216"},
    {{"generate", "--watchdog", "2501999792h", "x"}, "--watchdog: found '2501999792h', expected a duration such as 500ms, 30s or 2m, from 1ms to 24h"},
    {{"generate", "--ignore-eos=no", "x"}, "--ignore-eos: found 'no', expected no value, =true or =false"},
    {{"generate", "--max-tokens=", "Once"}, "--max-tokens: found nothing after '=', expected N"},
    {{"tokenize", "--jsonl", "/dev/null", "extra"}, "found 'extra' beside --jsonl /dev/null"},
    {{"detokenize", "--jsonl", "/dev/null", "1"}, "found '1' beside --jsonl /dev/null"},
    {{"render", "--jsonl", "/dev/null", "a.json"}, "found 'a.json' beside --jsonl /dev/null"},
    {{"parse", "--jsonl", "/dev/null", "a.json"}, "found 'a.json' beside --jsonl /dev/null"},
    {{"gateway"}, "--connect: found none, expected HOST:PORT of a node"},
    {{"gateway", "--connect", "x:1", "--actor-port", "5"}, "--actor-port: found it for a gateway, where it has no effect: set actor.port at the nodes"},
    {{"gateway", "--connect", "x:1", "--depth", "1"}, "--depth: found it for a gateway, where it has no effect: set engine.depth at the nodes"},
    {{"gateway", "--connect", "x:1", "--model", "x"}, "--model: found it for a gateway"},
    {{"ps", "--connect", "x:99999"}, "--connect: "},
    {{"drain", "--timeout", "soon"}, "--timeout: found 'soon', expected a duration such as 500ms, 30s, 2m or 1h"},
    {{"trace", "--steps", "0"}, "--steps: found '0', expected a whole number from 1"},
    {{"config", "set", "engine.depth"}, "missing argument"},
    {{"completion", "tcsh"}, "shell: found 'tcsh', expected bash, zsh or fish"},
    {{"chat", "--demo", "--connect", "x"}, "found --connect and --demo"},
    {{"generate", "a", "--connect", "x", "--num-drafts", "2", "--no-prefix-cache"}, "found --num-drafts, --no-prefix-cache beside --connect"},
    {{"chat", "a", "--connect", "x", "--model", "m"}, "found --model beside --connect"},
    {{"ps", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"top", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"drain", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"trace", "--connect", "nonsense.invalid:4242"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"config", "get", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"config", "set", "a", "b", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"generate", "a", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"chat", "a", "--connect", "nonsense.invalid"}, "--connect: the host 'nonsense.invalid' is not known"},
    {{"config", "print", "--config"}, "--config: found nothing, expected FILE"},
    {{"serve", "--served-model-name", ""}, "--served-model-name: found nothing, expected text"},
    {{"serve", "--host", ""}, "--host: found nothing, expected text"},
    {{"serve", "--trace-file", "/nonexistent/t.json"}, "observability.trace_file: /nonexistent/t.json: No such file"},
    {{"generate", "a", "--trace-file", "/nonexistent/t.json"}, "observability.trace_file: /nonexistent/t.json: No such file"},
    {{"chat", "a", "--trace-file", "/"}, "observability.trace_file: /: Is a directory"},
    {{"trace", "-o", "/nonexistent/t.json"}, "--out: /nonexistent/t.json: No such file"},
    {{"logits", "--ids", "0", "--out", "/nonexistent/l"}, "--out: /nonexistent/l: No such file"},
    {{"run", DI_SOURCE_DIR "/tests/scenarios", "--junit", "/nonexistent/j.xml"}, "--junit: /nonexistent/j.xml: No such file"},
    {{"bench", "serve", "--save-result", "/nonexistent/r.json"}, "--save-result: /nonexistent/r.json: No such file"},
    {{"bench", "serve", "--dataset", "/nonexistent.jsonl"}, "--dataset: /nonexistent.jsonl: No such file"},
    {{"bench", "serve", "--dataset", "/nonexistent.json"}, "--dataset: /nonexistent.json: No such file"},
    {{"bench", "serve", "--url", "127.0.0.1:8000"}, "--url: found '127.0.0.1:8000', expected http://HOST"},
    {{"config", "print", "--config", ""}, "--config: found nothing, expected FILE"},
    {{"check", ""}, "found nothing, expected a directory"},
    {{"make-model", "--shape", "S", "--out", "/proc/x"}, "--out: /proc/x: "},
    {{"bench", "serve", "--depth", "1"}, "--depth: found it without --beside-offline"},
    {{"bench", "serve", "--no-prefix-cache"}, "--no-prefix-cache: found it without --beside-offline"},
    {{"bench", "serve", "--config", "x.yaml"}, "--config: found it without --beside-offline"},
    {{"check", "--device-memory", "much"}, "--device-memory: found 'much', expected a size"},
  };
  // clang-format on
  for (const auto& row : table) {
    CAPTURE(row.message);
    const auto run = run_binary(row.args);
    CHECK(run.code == 2);
    CHECK(run.out.empty());
    CHECK(run.err.starts_with("deepinfer: error: "));
    CHECK(holds(run.err, row.message));
  }
}

TEST_CASE("without a command the usage is a mistake, with --help it is the result") {
  const auto bare = run_binary({});
  CHECK(bare.code == 2);
  CHECK(bare.out.empty());
  CHECK(holds(bare.err, "Usage: deepinfer COMMAND"));
  const auto help = run_binary({"--help"});
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  CHECK(help.out == bare.err);
  CHECK(holds(help.out, "10 to 12 of run (a check failed, a file was skipped under --strict, the "
                        "time was up)"));
}

TEST_CASE("every command of the list has help with its flags, defaults and usage") {
  const auto list = run_binary({"--help"}).out;
  const std::vector<std::vector<std::string>> commands{{"generate"},
                                                       {"chat"},
                                                       {"check"},
                                                       {"tokenize"},
                                                       {"detokenize"},
                                                       {"render"},
                                                       {"parse"},
                                                       {"logits"},
                                                       {"version"},
                                                       {"config", "print"},
                                                       {"config", "validate"},
                                                       {"serve"},
                                                       {"gateway"},
                                                       {"ps"},
                                                       {"top"},
                                                       {"trace"},
                                                       {"drain"},
                                                       {"completion"},
                                                       {"config", "get"},
                                                       {"config", "set"}};
  for (auto words : commands) {
    std::string name;
    for (const auto& word : words) name += (name.empty() ? "" : " ") + word;
    CAPTURE(name);
    CHECK(holds(list, "  " + name + " "));
    auto asked = words;
    asked.push_back("--help");
    const auto help = run_binary(asked);
    CHECK(help.code == 0);
    CHECK(help.err.empty());
    CHECK(holds(help.out, "Usage: deepinfer " + name + " [FLAGS]"));
    words.insert(words.begin(), "help");
    CHECK(run_binary(words).out == help.out);
  }
  const auto gateway = run_binary({"gateway", "--help"}).out;
  CHECK(holds(gateway, "--max-queued-requests N"));
  CHECK(holds(gateway, "--heartbeat-interval"));
  CHECK_FALSE(holds(gateway, "--actor-port"));
  CHECK_FALSE(holds(gateway, "--depth"));
  const auto print = run_binary({"config", "print", "--help"}).out;
  CHECK(holds(print, "--depth N"));
  CHECK(holds(print, "[default: 60s]"));
  CHECK(holds(print, "--[no-]mixed-steps"));
}

TEST_CASE("what is shown to a node elsewhere is not told of as what this one asks for") {
  for (const auto* name : {"generate", "chat"}) {
    const auto help = run_binary({name, "--help"}).out;
    CHECK(holds(help, "with --connect: key that the node asks for"));
    CHECK(holds(help, "with --connect: certificate to show to the node, PEM"));
    CHECK_FALSE(holds(help, "key that clients must send"));
    CHECK_FALSE(holds(help, "this node's certificate"));
  }
  CHECK(holds(run_binary({"ps", "--help"}).out, " key that the node asks for"));
  CHECK(holds(run_binary({"serve", "--help"}).out, "key that clients must send"));
}

TEST_CASE("help on the first word of two lists the commands that start with it") {
  const auto help = run_binary({"config", "--help"});
  CHECK(help.code == 0);
  CHECK(help.err.empty());
  CHECK(holds(help.out, "Usage: deepinfer config COMMAND"));
  CHECK(holds(help.out, "'deepinfer config COMMAND --help'"));
  for (const auto* name : {"config print", "config validate", "config docs"})
    CHECK(holds(help.out, name));
  CHECK(help.out.find("  tokenize ") == std::string::npos);
  for (const auto& words : std::vector<std::vector<std::string>>{
         {"config", "-h"}, {"config", "help"}, {"help", "config"}})
    CHECK(run_binary(words).out == help.out);
}

TEST_CASE("what config print writes is valid for config validate") {
  const temp_directory place;
  REQUIRE(run_binary({"config", "print"}, {.out_path = place.file("p.yaml")}).code == 0);
  const auto run = run_binary({"config", "validate", place.file("p.yaml")});
  CAPTURE(run.err);
  CHECK(run.code == 0);
}

TEST_CASE("version names itself, its libraries and devices, in text and as JSON") {
  const auto text = run_binary({"version"});
  CHECK(text.code == 0);
  CHECK(text.out.starts_with("deepinfer "));
  CHECK(run_binary({"--version"}).out == text.out);
  const auto run = run_binary({"version", "--json"});
  const auto parsed = parse_json(run.out);
  REQUIRE(parsed);
  CHECK(parsed->at("caf").as_string().starts_with("0.17."));
  CHECK(parsed->at("protobuf").as_string().starts_with("3."));
  CHECK(parsed->at("devices").as_array().at(0) == "cpu");
  CHECK(parsed->at("cores").to_number<int>() >= 1);
}

TEST_CASE("config print shows every value with its origin, by precedence") {
  const temp_directory place;
  place.write("c.yaml", "engine:\n  depth: 1\n  chunk_size: 64\n");
  const auto run =
    run_binary({"config", "print", "--json", "--config", place.file("c.yaml"), "--depth", "3"},
               {.environment = {{"DEEPINFER_CHUNK_SIZE", "128"}, {"DEEPINFER_NUM_THREADS", "1"}}});
  CHECK(run.code == 0);
  const auto parsed = parse_json(run.out);
  REQUIRE(parsed);
  const auto check = [&](std::string_view key, int value, std::string_view origin) {
    CAPTURE(key);
    CHECK(parsed->at(key).at("value") == value);
    CHECK(parsed->at(key).at("origin").as_string() == origin);
  };
  check("engine.depth", 3, "--depth");
  check("engine.chunk_size", 128, "DEEPINFER_CHUNK_SIZE");
  check("engine.num_threads", 1, "DEEPINFER_NUM_THREADS");
  check("engine.block_size", 64, "default");
  const auto by_variable =
    run_binary({"config", "print"}, {.environment = {{"DEEPINFER_CONFIG", place.file("c.yaml")}}});
  CHECK(holds(by_variable.out, place.file("c.yaml") + ":2:10"));
}

TEST_CASE("config validate accepts the presets and names file, line and column of a mistake") {
  for (const auto* preset : {"tiny.yaml", "v4.1-flash.yaml"}) {
    const auto run =
      run_binary({"config", "validate", std::string(DI_SOURCE_DIR "/config/") + preset});
    CHECK(run.code == 0);
    CHECK(holds(run.out, ": valid, "));
  }
  const temp_directory place;
  place.write("c.yaml", "version: 1\nengine:\n  dpeth: 1\n");
  const auto run = run_binary({"config", "validate", place.file("c.yaml")});
  CHECK(run.code == 2);
  CHECK(run.err == "deepinfer: error: " + place.file("c.yaml") +
                     ":3:3: engine: unknown key 'dpeth'; did you mean 'depth'?\n");
}

TEST_CASE("the embedded model answers with the presets that are made for it") {
  for (const auto* preset : {"tiny.yaml", "cluster-local.yaml"}) {
    CAPTURE(preset);
    const auto run = run_binary({"chat", "--config", std::string(DI_SOURCE_DIR "/config/") + preset,
                                 "--temperature", "0", "What is 7 + 5?"});
    CHECK_MESSAGE(run.code == 0, run.err);
    CHECK(run.out == "7 + 5 = 12\n");
  }
}

TEST_CASE("an unknown DEEPINFER_ variable is a warning on stderr, and -q hides it") {
  const run_options options{.environment = {{"DEEPINFER_DEPHT", "1"}}};
  const auto run = run_binary({"config", "print"}, options);
  CHECK(run.code == 0);
  CHECK(holds(run.err, "unknown variable DEEPINFER_DEPHT in the environment; did you mean "
                       "'DEEPINFER_DEPTH'?"));
  const auto quiet = run_binary({"config", "print", "-q"}, options);
  CHECK(quiet.err.empty());
  CHECK(quiet.out == run.out);
}

TEST_CASE("log lines are JSON where the settings say so") {
  const auto run = run_binary({"config", "print", "--log-format", "json"},
                              {.environment = {{"DEEPINFER_DEPHT", "1"}}});
  const auto parsed = parse_json(run.err);
  REQUIRE(parsed);
  CHECK(parsed->at("level") == "warning");
}

TEST_CASE("a device that is not there ends with exit code 5, a model that is not there with 3") {
  const temp_directory place;
  const auto file = place.file("x");
  const auto device = run_binary({"logits", "--ids", "0", "--out", file, "--device", "cuda"});
  CHECK(device.code == 5);
  CHECK(holds(device.err, "this build has no CUDA device"));
  CHECK_FALSE(std::filesystem::exists(file));  // whether it may be written is known, and no more
  const auto model = run_binary({"logits", "--ids", "0", "--out", file, "--model", "/nonexistent"});
  CHECK(model.code == 3);
  CHECK_FALSE(std::filesystem::exists(file));
  CHECK(holds(model.err, "/nonexistent"));
  const auto words = run_binary({"tokenize", "x", "--tokenizer", "/nonexistent"});
  CHECK(words.code == 3);
}

TEST_CASE("output that cannot be written is exit code 1, not silence") {
  const auto run = run_binary({"config", "docs"}, {.out_path = "/dev/full"});
  CHECK(run.code == 1);
  CHECK(holds(run.err, "results could not be written"));
}

TEST_CASE("a standard stream that is closed or full ends a command with its code, not a crash") {
  const auto no_output = run_binary({"config", "print"}, {.closed = {1}});
  CHECK(no_output.code == 1);
  CHECK(holds(no_output.err, "results could not be written"));
  CHECK(run_binary({"config", "print"}, {.closed = {0, 1, 2}}).code == 1);
  const auto no_log =
    run_binary({"config", "print"}, {.environment = {{"DEEPINFER_FOO", "1"}}, .closed = {2}});
  CHECK(no_log.code == 0);
  CHECK(holds(no_log.out, "depth: 2"));
  CHECK(run_binary({"nope"}, {.closed = {2}}).code == 2);
  CHECK(run_binary({}, {.closed = {2}}).code == 2);
  CHECK(run_binary({"nope"}, {.err_path = "/dev/full"}).code == 2);
  CHECK(run_binary({}, {.err_path = "/dev/full"}).code == 2);
  CHECK(run_binary({"tokenize", "--json"}, {.closed = {0}}).out == "{\"ids\":[]}\n");
  // A file that a command writes must not land in the place of a closed stream.
  const temp_directory place;
  const auto file = place.file("l.safetensors");
  CHECK(run_binary({"logits", "--ids", "0", "--out", file}, {.closed = {1}}).code == 1);
  CHECK(tensor_file::open(file));
}

TEST_CASE("an error is red on a terminal, unless NO_COLOR is set and not empty") {
  const auto shown = [](const std::map<std::string, std::string>& environment) {
    const int terminal = posix_openpt(O_RDWR | O_NOCTTY);
    REQUIRE(terminal >= 0);
    REQUIRE(grantpt(terminal) == 0);
    REQUIRE(unlockpt(terminal) == 0);
    // Held open, so that what the program wrote stays to be read after its end.
    const std::string name = ptsname(terminal);
    const int other_end = open(name.c_str(), O_RDWR | O_NOCTTY);
    CHECK(run_binary({"nope"}, {.environment = environment, .err_path = name}).code == 2);
    std::string text(4096, '\0');
    const auto length = read(terminal, text.data(), text.size());
    REQUIRE(length > 0);
    text.resize(static_cast<std::size_t>(length));
    close(other_end);
    close(terminal);
    return text;
  };
  CHECK(holds(shown({{"NO_COLOR", ""}}), "\033[31merror"));
  CHECK(holds(shown({{"NO_COLOR", "1"}}), "deepinfer: error: "));
}

TEST_CASE("nothing is coloured when the output is not a terminal") {
  for (const auto& args : std::vector<std::vector<std::string>>{
         {"nope"}, {"--help"}, {"version"}, {"check"}, {"config", "print", "-v"}}) {
    const auto run = run_binary(args, {.environment = {{"DEEPINFER_DEPHT", "1"}}});
    CHECK(run.out.find('\033') == std::string::npos);
    CHECK(run.err.find('\033') == std::string::npos);
  }
}
