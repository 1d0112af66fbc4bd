#include <doctest/doctest.h>

#include <cstdio>
#include <filesystem>
#include <functional>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "tests/cli/run_binary.hpp"
#include "tests/cli/serving_binary.hpp"
#include "tests/http/raw_client.hpp"
#include "tests/support/deepseek_tokenizer.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;
using deepinfer::test::raw_client;

namespace {

json::value object_of(const run_result& run) {
  CAPTURE(run.err);
  REQUIRE(run.code == 0);
  const auto parsed = parse_json(run.out);
  REQUIRE(parsed);
  return *parsed;
}

std::vector<json::value> lines_of(const std::string& text) {
  std::vector<json::value> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const auto end = std::min(text.find('\n', begin), text.size());
    auto parsed = parse_json(std::string_view(text).substr(begin, end - begin));
    REQUIRE(parsed);
    lines.push_back(*std::move(parsed));
    begin = end + 1;
  }
  return lines;
}

json::value tiny_file(const std::string& name) {
  return read_json_file(DI_SOURCE_DIR "/examples/models/tiny-v41/" + name).value();
}

std::string ids_text(const json::value& ids) {
  auto text = to_text(ids);
  return text.substr(1, text.size() - 2);
}

/// Runs every record of a fixture file through one start of `command` and compares each answer.
void compare_fixture(const std::string& command, const std::string& file,
                     const std::function<bool(const json::object&, const json::object&)>& equal) {
  const auto words = deepseek_tokenizer_path();
  if (!words) {
    std::fprintf(stderr, "skipped: %s needs DeepSeek's tokenizer.json\n", file.c_str());
    return;
  }
  const std::string path = DI_SOURCE_DIR "/tests/golden/text/" + file;
  const auto run = run_binary({command, "-q", "--jsonl", path, "--tokenizer", *words});
  CHECK(run.code == 0);
  CHECK(run.err.empty());
  const auto records = lines_of(read_file(path).value()), answers = lines_of(run.out);
  REQUIRE(records.size() == answers.size());
  for (std::size_t i = 0; i < records.size(); ++i) {
    CAPTURE(to_text(records[i].at("id")));
    CAPTURE(to_text(answers[i]).substr(0, 400));
    CHECK(equal(records[i].as_object(), answers[i].as_object()));
  }
}

bool same(const json::object& a, const json::object& b, std::initializer_list<const char*> keys) {
  for (const auto* key : keys) {
    const auto* found = b.if_contains(key);
    if (!found || *found != a.at(key)) return false;
  }
  return true;
}

/// What a shell prints that finds the binary by its name.
std::string shell_output(const std::string& line) {
  const auto bin = std::filesystem::absolute(DI_BINARY).parent_path().string();
  std::string out;
  auto* pipe = ::popen(("PATH='" + bin + "':\"$PATH\"; " + line).c_str(), "r");
  REQUIRE(pipe);
  for (int c = std::fgetc(pipe); c != EOF; c = std::fgetc(pipe)) out += static_cast<char>(c);
  CHECK(::pclose(pipe) == 0);
  return out;
}

/// The line of a command's help that follows "Example:".
std::string example_of(const std::string& command) {
  const auto help = run_binary({command, "--help"}).out;
  const std::string mark = "Example:\n";
  const auto at = help.find(mark);
  REQUIRE_MESSAGE(at != std::string::npos, help);
  const auto begin = at + mark.size();
  return help.substr(begin, help.find('\n', begin) - begin);
}

}  // namespace

TEST_CASE("tokenize gives ids of an argument or of standard input, special tokens on or off") {
  const auto on = object_of(run_binary({"tokenize", "--json", "Hello <think>"}));
  const auto off = object_of(run_binary({"tokenize", "--json", "--no-special", "Hello <think>"}));
  CHECK(on.at("ids").as_array().size() < off.at("ids").as_array().size());
  const auto piped = object_of(run_binary({"tokenize", "--json"}, {.input = "Hello <think>"}));
  CHECK(piped == on);
  CHECK(run_binary({"tokenize", "Hello <think>"}).out == ids_text(on.at("ids")) + "\n");
  CHECK(to_text(object_of(run_binary({"tokenize", "--json", ""}))) == "{\"ids\":[]}");
}

TEST_CASE("tokenize takes a trailing newline and bytes that are not text as they come") {
  const auto with = object_of(run_binary({"tokenize", "--json"}, {.input = "tide\n"}));
  const auto without = object_of(run_binary({"tokenize", "--json"}, {.input = "tide"}));
  CHECK(with.at("ids").as_array().size() == without.at("ids").as_array().size() + 1);
  // By default what is not UTF-8 is read as U+FFFD; --keep-bytes gives the bytes ids of their own.
  const auto replaced = object_of(run_binary({"tokenize", "--json"}, {.input = "a\xff"}));
  CHECK(replaced == object_of(run_binary({"tokenize", "--json"}, {.input = "a\xef\xbf\xbd"})));
  const auto kept =
    object_of(run_binary({"tokenize", "--json", "--keep-bytes"}, {.input = "a\xff"}));
  CHECK(kept.at("ids").as_array().size() == 2);
}

TEST_CASE("detokenize gives text, the pieces as they become certain, and the tail") {
  const std::string text = "Tide tables, 潮汐, 🌊.";
  const auto ids = object_of(run_binary({"tokenize", "--json", text})).at("ids");
  const auto back = object_of(run_binary({"detokenize", "--json", ids_text(ids)}));
  CHECK(back.at("text").as_string() == text);
  CHECK(back.at("tail") == "");
  CHECK(back.at("pieces").as_array().size() == ids.as_array().size());
  std::string joined;
  for (const auto& piece : back.at("pieces").as_array()) joined += piece.as_string();
  CHECK(joined == text);
  CHECK(run_binary({"detokenize", ids_text(ids)}).out == text + "\n");
  // A part of a character waits, and shows as U+FFFD once nothing can follow.
  const auto part =
    object_of(run_binary({"tokenize", "--json", "--keep-bytes"}, {.input = "\xf0\x9f"}));
  const auto cut = object_of(run_binary({"detokenize", "--json", ids_text(part.at("ids"))}));
  CHECK(cut.at("tail") == "\xef\xbf\xbd");
  CHECK(cut.at("text") == "\xef\xbf\xbd");
  const auto shown = object_of(run_binary({"detokenize", "--json", "1"}));
  const auto hidden = object_of(run_binary({"detokenize", "--json", "--skip-special", "1"}));
  CHECK(shown.at("text") == "<｜end▁of▁sentence｜>");
  CHECK(hidden.at("text") == "");
  CHECK(object_of(run_binary({"detokenize", "--json", ""})).at("text") == "");
}

TEST_CASE("detokenize refuses an id that is beyond the vocabulary, in an argument and in a line") {
  for (const auto& [ids, entry] :
       {std::pair("999999", "entry 0 is 999999"), {"5,2048,6", "entry 1 is 2048"}}) {
    CAPTURE(ids);
    const auto refused = run_binary({"detokenize", ids});
    CHECK(refused.code == 2);
    CHECK(refused.out.empty());
    CHECK(holds(refused.err, "ids: " + std::string(entry) + ", expected 0 to 2047"));
  }
  const auto lines = lines_of(
    run_binary({"detokenize", "--jsonl", "-"}, {.input = "{\"ids\":[5,2048]}\n{\"ids\":[2047]}\n"})
      .out);
  REQUIRE(lines.size() == 2);
  CHECK(lines[0].at("error").at("param") == "ids");
  CHECK(lines[1].as_object().contains("text"));
}

TEST_CASE("render and tokenize give the embedded model's own prompts and ids") {
  const auto goldens = tiny_file("goldens.json");
  for (const auto& record : goldens.at("chat").as_array()) {
    json::object options;
    options["thinking"] =
      json::object{{"type", record.at("thinking").as_bool() ? "enabled" : "disabled"}};
    if (!record.at("reasoning_effort").is_null())
      options["reasoning_effort"] = record.at("reasoning_effort");
    json::object request{
      {"model", "DeepSeek-V4.1-Flash"}, {"messages", record.at("messages")}, {"options", options}};
    if (const auto* tools = record.as_object().if_contains("tools")) request["tools"] = *tools;
    const auto done = object_of(run_binary({"render", "--ids", "-"}, {.input = to_text(request)}));
    CHECK(done.at("prompt") == record.at("prompt_text"));
    CHECK(done.at("ids") == record.at("prompt_ids"));
    const auto ids = object_of(run_binary(
      {"tokenize", "--json"}, {.input = std::string(record.at("prompt_text").as_string())}));
    CHECK(ids.at("ids") == record.at("prompt_ids"));
  }
}

TEST_CASE("render takes the requests that /render of a server takes, and gives their prompt") {
  serving_binary server(serve_args());
  REQUIRE_MESSAGE(server.wait_for_line("Ready: http://127.0.0.1:"), server.err());
  const auto ask = [&](const std::string& body) {
    raw_client it(server.http_port());
    REQUIRE(it.send(post_request("/render", body)));
    return it.read_answer();
  };
  const std::string chat = R"({"messages":[{"role":"user","content":"Hi"}])";
  for (const auto* rest :
       {"", R"("model":null)", R"("model":"tiny-v41")", R"("thinking":{"type":"enabled"})",
        R"("chat_template_kwargs":{"enable_thinking":true})",
        R"("chat_template_kwargs":{"reasoning_effort":"max"})",
        R"("chat_template_kwargs":{"thinking":true},"thinking":{"type":"disabled"})",
        R"("reasoning_effort":"low","n":2,"top_k":-1,"user":"u","logprobs":false)",
        R"("stream":true,"stream_options":{"include_usage":true})"}) {
    CAPTURE(rest);
    const auto body = chat + (*rest ? "," : "") + rest + "}";
    const auto served = ask(body);
    REQUIRE_MESSAGE(served.status == 200, served.body);
    const auto expected = parse_json(served.body).value();
    const auto done = object_of(run_binary({"render", "--ids", "-"}, {.input = body}));
    CHECK(done.at("prompt") == expected.at("prompt"));
    CHECK(done.at("ids") == expected.at("tokens"));
  }
  const auto thinks = object_of(
    run_binary({"render", "-"}, {.input = chat + R"(,"chat_template_kwargs":{"thinking":true}})"}));
  CHECK(thinks.at("parse_start") == "reasoning");
  for (const auto* wrong : {R"("model":"other")", R"("model":7)", R"("thinking":5)"}) {
    CAPTURE(wrong);
    const auto body = chat + "," + wrong + "}";
    CHECK(ask(body).status >= 400);
    CHECK(run_binary({"render", "-"}, {.input = body}).code == 2);
  }
  const auto other = run_binary({"render", "-"}, {.input = chat + R"(,"model":"other"})"});
  CHECK(holds(other.err, "model \"other\" is not served here, only tiny-v41, DeepSeek-V4-Pro, "
                         "DeepSeek-V4.1-Flash"));
}

TEST_CASE("render knows a model by its directory, and tiny as the embedded one") {
  const std::string body = R"({"messages":[{"role":"user","content":"Hi"}],"model":"named"})";
  const temp_directory place;
  std::filesystem::create_directory_symlink(DI_SOURCE_DIR "/examples/models/tiny-v41",
                                            place.file("named"));
  const auto named =
    object_of(run_binary({"render", "--model", place.file("named") + "/", "-"}, {.input = body}));
  const auto by_variable = object_of(run_binary(
    {"render", "-"}, {.input = body, .environment = {{"DEEPINFER_MODEL", place.file("named")}}}));
  CHECK(by_variable == named);
  const std::string nameless = R"({"messages":[{"role":"user","content":"Hi"}]})";
  CHECK(object_of(run_binary({"render", "--model", "tiny", "-"}, {.input = nameless})) == named);
  // Beside a tokenizer no model has to be there.
  CHECK(
    object_of(run_binary({"render", "--tokenizer", place.file("named"), "-"},
                         {.input = nameless,
                          .environment = {{"DEEPINFER_MODEL", place.file("named/config.json")}}}))
      .at("prompt") == named.at("prompt"));
}

TEST_CASE("the examples in the help of render and parse work as they are written") {
  const auto rendered = parse_json(shell_output(example_of("render")));
  REQUIRE(rendered);
  CHECK(holds(std::string(rendered->at("prompt").as_string()), "<｜User｜>"));
  const auto parsed = parse_json(shell_output(example_of("parse")));
  REQUIRE(parsed);
  CHECK_FALSE(parsed->at("reasoning").as_string().empty());
  CHECK_FALSE(parsed->at("content").as_string().empty());
}

TEST_CASE("parse splits reasoning, content and tool calls, from text or from ids") {
  const std::string request =
    R"({"mode":{"start":"reasoning","tools":false},"text":"So it is.</think>Noon."})";
  const temp_directory place;
  place.write("p.json", request);
  const auto done = object_of(run_binary({"parse", place.file("p.json")}));
  CHECK(done.at("reasoning") == "So it is.");
  CHECK(done.at("content") == "Noon.");
  CHECK(done.at("tool_calls").as_array().empty());
  CHECK(done.at("finish_reason") == "stop");
  const auto ids =
    object_of(run_binary({"tokenize", "--json", "So it is.</think>Noon."})).at("ids");
  const json::object by_ids{{"mode", json::object{{"start", "reasoning"}, {"tools", false}}},
                            {"ids", ids}};
  CHECK(object_of(run_binary({"parse", "-"}, {.input = to_text(by_ids)})) == done);
  // The result is JSON with and without --json.
  CHECK(object_of(run_binary({"parse", "--json", "-"}, {.input = to_text(by_ids)})) == done);
  CHECK(holds(run_binary({"render", "--help"}).out, "--json "));
}

TEST_CASE("each line of --jsonl gets a line, and a wrong one an error with code and field") {
  const std::string input = "{\"text\":\"a\"}\n"
                            "\n"
                            "{\"text\":\n"
                            "[1]\n"
                            "{\"txt\":\"a\"}\n"
                            "{\"text\":7}\n"
                            "{\"repeat\":[\"ab\",3],\"special\":\"on\"}\r\n"
                            "{\"concat\":[[\"ab\",1],[\"abab\",1]]}\n"
                            "{\"bytes_hex\":\"616\"}\n"
                            "{\"repeat\":[\"ab\",9000000000000000000]}\n"
                            "{\"text\":\"a\",\"special\":\"maybe\"}\n"
                            "{\"bytes_hex\":\"61\"}";
  const auto run = run_binary({"tokenize", "--jsonl", "-"}, {.input = input});
  CHECK(run.code == 0);
  const auto lines = lines_of(run.out);
  REQUIRE(lines.size() == 11);
  CHECK(lines[0].as_object().contains("ids"));
  CHECK(lines[1].at("error").at("code") == "invalid_json");
  for (const std::size_t i : {2u, 3u, 4u, 7u, 8u, 9u})
    CHECK(lines[i].at("error").at("code") == "invalid_argument");
  CHECK(lines[9].at("error").at("param") == "special");
  CHECK(lines[5] == lines[6]);
  CHECK(lines[10] == lines[0]);
  const auto ids = run_binary(
    {"detokenize", "--jsonl", "-"},
    {.input = "{\"ids\":[1],\"skip_special\":true}\n{\"ids\":[-1]}\n{\"ids\":[1.5]}\n{}"});
  const auto answers = lines_of(ids.out);
  REQUIRE(answers.size() == 4);
  CHECK(answers[0].at("text") == "");
  for (const std::size_t i : {1u, 2u, 3u}) CHECK(answers[i].at("error").at("param") == "ids");
  const auto render = lines_of(run_binary({"render", "--jsonl", "-"}, {.input = "{}\n7\n"}).out);
  REQUIRE(render.size() == 2);
  for (const auto& line : render) CHECK(line.as_object().contains("error"));
}

TEST_CASE("a request file that is wrong is exit code 2 and names file and field") {
  const auto run = run_binary({"render", "-"}, {.input = "{\"model\":\"DeepSeek-V4.1-Flash\"}"});
  CHECK(run.code == 2);
  CHECK(run.out.empty());
  CHECK(holds(run.err, "messages"));
}

TEST_CASE("the fixtures of tokenize, detokenize, render and parse hold through the command line") {
  compare_fixture("tokenize", "tokenize.jsonl",
                  [](const auto& want, const auto& got) { return same(want, got, {"ids"}); });
  compare_fixture("detokenize", "decode.jsonl", [](const auto& want, const auto& got) {
    // Where the stream of an engine drops an id that no token has, a person is told.
    if (got.contains("error")) return want.at("id") == "unknown-inside-char-109";
    return same(want, got, {"text", "pieces", "tail"});
  });
  for (const auto* file : {"chat_v41.jsonl", "chat_v4.jsonl"})
    compare_fixture("render", file, [](const auto& want, const auto& got) {
      // Records made from a conversation know nothing of the parser.
      if (want.contains("parse_start") && !same(want, got, {"parse_start", "parse_tool_calls"}))
        return false;
      return same(want, got, {"prompt", "ids", "special_ranges"});
    });
  compare_fixture("parse", "parse_output.jsonl", [](const auto& want, const auto& got) {
    auto expected = want.at("expect").as_object();
    if (want.at("id") == "bad-json-t")  // theirs are no JSON, ours are made to be
      expected["tool_calls"].at(0).as_object()["arguments"] = R"({"a": "{oops", "port": "x"})";
    if (want.at("compare") == "exact" && !same(expected, got, {"content"})) return false;
    return same(expected, got, {"reasoning", "tool_calls", "finish_reason"});
  });
}
