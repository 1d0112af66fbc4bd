// The house rules as a test: who may include whom, words, sizes, headers. A rule that fails names
// file, line and rule.
#include <doctest/doctest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/file.hpp"

namespace fs = std::filesystem;
using namespace deepinfer;

namespace {

struct source_file {
  std::string path;  // relative to the source tree
  std::vector<std::string> lines;
};

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines(1);
  for (const char c : text) {
    if (c == '\n')
      lines.emplace_back();
    else
      lines.back() += c;
  }
  if (lines.back().empty()) lines.pop_back();
  return lines;
}

bool is_code(const std::string& path) {
  static const std::set<std::string> kinds{".hpp", ".cpp", ".cu", ".proto", ".cmake", ".sh", ".py"};
  return kinds.contains(fs::path(path).extension().string());
}

bool is_cpp(const source_file& it) {
  const auto kind = fs::path(it.path).extension();
  return kind == ".hpp" || kind == ".cpp" || kind == ".cu";
}

const std::vector<source_file>& sources() {
  static const auto found = [] {
    std::vector<source_file> out;
    const fs::path root = DI_SOURCE_DIR;
    for (const auto* top :
         {"actors", "config", "examples", "kernels", "messages", "runtime", "tests"})
      for (const auto& entry : fs::recursive_directory_iterator(root / top)) {
        const auto path = fs::relative(entry.path(), root).string();
        if (!entry.is_regular_file() || !is_code(path)) continue;
        out.push_back({path, lines_of(read_file(entry.path().string()).value())});
      }
    std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.path < b.path; });
    return out;
  }();
  return found;
}

/// Collects findings of one rule, so that all of them are shown at once.
struct findings {
  std::vector<std::string> lines;
  void add(const source_file& file, std::size_t line, const std::string& what) {
    lines.push_back(fmt::format("{}:{}: {}", file.path, line + 1, what));
  }
  void check() const {
    for (const auto& line : lines) FAIL_CHECK(line);
    CHECK(lines.empty());
  }
};

/// The folder a path belongs to, most specific first: one row of the include table.
const std::map<std::string, std::vector<std::string>>& may_include() {
  static const std::map<std::string, std::vector<std::string>> table{
    {"runtime/base", {"runtime/base"}},
    {"messages", {"runtime/base", "messages"}},
    {"kernels", {"runtime/base", "kernels"}},
    {"runtime/core", {"runtime/base", "messages", "runtime/core"}},
    {"runtime/device", {"runtime/base", "kernels", "runtime/device"}},
    {"runtime/model", {"runtime/base", "messages", "kernels", "runtime/device", "runtime/model"}},
    {"runtime/text", {"runtime/base", "messages", "runtime/text"}},
    {"runtime/http", {"runtime/base", "messages", "runtime/http"}},
    {"config", {"runtime/base", "messages", "config"}},
    {"actors",
     {"runtime/base", "messages", "kernels", "runtime/core", "runtime/device", "runtime/model",
      "runtime/text", "runtime/http", "config", "actors"}},
    {"examples",
     {"actors/actor_host.hpp", "actors/client.hpp", "actors/node.hpp", "actors/protocol.hpp",
      "actors/wire_door.hpp", "messages", "runtime/base", "config/engine_settings.hpp"}},
  };
  return table;
}

bool starts_with_any(const std::string& text, const std::vector<std::string>& starts) {
  return std::any_of(starts.begin(), starts.end(),
                     [&](const auto& start) { return text.rfind(start, 0) == 0; });
}

std::string folder_of(const std::string& path) {
  std::string best;
  for (const auto& [folder, allowed] : may_include())
    if (path.rfind(folder + "/", 0) == 0 && folder.size() > best.size()) best = folder;
  return best;
}

/// Third-party headers and the only files that may name them (as prefixes of paths).
struct library_row {
  std::regex header;
  std::vector<std::string> homes;
};
const std::vector<library_row>& libraries() {
  static const std::vector<library_row> table = [] {
    std::vector<library_row> rows;
    const auto row = [&rows](const char* pattern, std::vector<std::string> homes) {
      rows.push_back({std::regex(pattern), std::move(homes)});
    };
    row("^caf/", {"actors/", "tests/actors/", "tests/remote/"});
    row("^cuda", {"kernels/", "runtime/device/"});
    row("^boost/json", {"runtime/base/json"});
    row("^boost/(asio|beast)", {"runtime/http/http_server.cpp"});
    row("^prometheus/", {"runtime/base/metrics.cpp"});
    row("^spdlog/", {"runtime/base/log.cpp"});
    row("^yaml-cpp/", {"config/yaml_to_proto.cpp"});
    row("^CLI/", {"config/flags.cpp"});
    row("^google/protobuf/|\\.pb\\.h$",
        {"messages/", "config/", "tests/messages/", "tests/config/"});
    row("^utf8proc", {"runtime/text/token_classes.cpp"});
    row("^pcre2", {"runtime/text/regex_split.cpp"});
    row("^openssl/", {"actors/openssl_guard.cpp", "actors/tls_context.cpp"});
    row("^doctest/", {"tests/"});
    return rows;
  }();
  return table;
}

std::string without_comments_and_strings(const std::string& line) {
  static const std::regex strings(R"("(\\.|[^"\\])*")");
  auto code = std::regex_replace(line, strings, "\"\"");
  const auto comment = code.find("//");
  return comment == std::string::npos ? code : code.substr(0, comment);
}

std::size_t columns_of(const std::string& line) {
  return static_cast<std::size_t>(std::count_if(line.begin(), line.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;  // not a UTF-8 continuation byte
  }));
}

/// Files that may be longer, with the reason.
const std::map<std::string, std::string>& long_files() {
  static const std::map<std::string, std::string> table{
    {"messages/scenario.proto", "one format, described where it is defined"}};
  return table;
}

bool is_generated_table(const std::string& path) {
  return path.rfind("runtime/text/data/", 0) == 0;
}

}  // namespace

TEST_CASE("a folder includes only what its row of the house table allows") {
  findings found;
  static const std::regex include(R"(^\s*#include\s+([<"])([^>"]+)[>"])");
  for (const auto& file : sources()) {
    if (!is_cpp(file)) continue;
    const auto folder = folder_of(file.path);
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, include)) continue;
      const std::string header = match[2];
      for (const auto& row : libraries())
        if (std::regex_search(header, row.header) && !starts_with_any(file.path, row.homes))
          found.add(file, i, header + " is included outside its home");
      if (match[1] != "\"" || folder.empty() || header.find(".pb.h") != std::string::npos) continue;
      if (!starts_with_any(header, may_include().at(folder)))
        found.add(file, i, fmt::format("{} may not include {}", folder, header));
    }
  }
  found.check();
}

TEST_CASE("no include of CAF in a .cu file and no thread or allocation call in a kernel") {
  findings found;
  static const std::regex forbidden(R"(std::thread|std::async|\bnew [a-z]|\bmalloc\(|std::mutex)");
  for (const auto& file : sources()) {
    if (file.path.rfind("kernels/", 0) != 0) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i)
      if (std::regex_search(without_comments_and_strings(file.lines[i]), forbidden))
        found.add(file, i, "kernels neither create threads nor allocate");
  }
  found.check();
}

TEST_CASE("identifiers use the words of the house") {
  findings found;
  static const std::regex banned(
    R"(\b\w*(page_table|pos_id|batch_slot|seat_|slot_mapping|table_idx|schedule_output|batch_info|)"
    R"(speculative_token|postprocess|zombie|lookahead|watermark|delayed_free|garbage|fake_token|)"
    R"(dummy|phy2log|redundant_expert|balancedness)\w*)");
  for (const auto& file : sources()) {
    if (!is_cpp(file) || file.path == "tests/tidy/tidy_test.cpp") continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      const auto code = without_comments_and_strings(file.lines[i]);
      if (std::regex_search(code, match, banned)) found.add(file, i, "banned word " + match.str());
    }
  }
  found.check();
}

TEST_CASE("files have at most 500 lines, of C++ at most 100 columns") {
  findings found;
  for (const auto& file : sources()) {
    if (is_generated_table(file.path)) continue;
    if (file.lines.size() > 500 && !long_files().contains(file.path))
      found.add(file, 0, fmt::format("{} lines", file.lines.size()));
    if (!is_cpp(file)) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const bool is_table = file.lines[i].find("clang-format off") != std::string::npos;
      if (is_table) break;  // the rest of such a file is a table
      if (columns_of(file.lines[i]) > 100)
        found.add(file, i, fmt::format("{} columns", columns_of(file.lines[i])));
    }
  }
  found.check();
}

TEST_CASE("functions have at most 70 lines") {
  findings found;
  // A function body closes with a brace in the first column and opens with a line that ends in one.
  static const std::regex opens(R"(^[A-Za-z_].*\)[^;=]*\{$|^    [^ ].*\)[^;=]*\{$)");
  static const std::regex not_a_function(R"(^(namespace|struct|class|enum|union|extern)\b)");
  for (const auto& file : sources()) {
    if (!is_cpp(file) || is_generated_table(file.path)) continue;
    if (file.path.rfind("tests/", 0) == 0) continue;
    std::size_t begin = 0;
    bool is_open = false;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      const auto& line = file.lines[i];
      if (!is_open && std::regex_search(line, opens) && !std::regex_search(line, not_a_function) &&
          line[0] != ' ') {
        is_open = true;
        begin = i;
      }
      if (is_open && !line.empty() && line[0] == '}') {
        if (i - begin + 1 > 70) found.add(file, begin, fmt::format("{} lines", i - begin + 1));
        is_open = false;
      }
    }
  }
  found.check();
}

TEST_CASE("a header says what it is before anything else, and is guarded") {
  findings found;
  for (const auto& file : sources()) {
    if (fs::path(file.path).extension() != ".hpp") continue;
    if (file.lines.empty() || file.lines[0].rfind("///", 0) != 0)
      found.add(file, 0, "the first line is not a /// paragraph");
    if (std::find(file.lines.begin(), file.lines.end(), "#pragma once") == file.lines.end())
      found.add(file, 0, "no #pragma once");
  }
  found.check();
}

TEST_CASE("nothing is left unfinished, and no path of a machine is in the tree") {
  findings found;
  // Written apart, so that this file does not find itself.
  const std::regex left_over(std::string("\\b(FIX") + "ME|TO" + "DO|XX" + "X)\\b");
  const std::regex machine_path(std::string("(^|[\"' =(])/(ro") + "ot|ho" + "me|wo" + "rk)/");
  for (const auto& file : sources()) {
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      if (std::regex_search(file.lines[i], left_over)) found.add(file, i, "unfinished");
      if (std::regex_search(file.lines[i], machine_path)) found.add(file, i, "path of a machine");
    }
  }
  found.check();
}

TEST_CASE("every kernel has a reference and a test") {
  findings found;
  std::string tests;
  std::string references;
  for (const auto& file : sources()) {
    const bool is_test = file.path.rfind("tests/kernels/", 0) == 0;
    const bool is_reference = file.path.rfind("kernels/", 0) == 0 && !file.path.ends_with(".hpp");
    if (!is_test && !is_reference) continue;
    for (const auto& line : file.lines) (is_test ? tests : references) += line + "\n";
  }
  static const std::regex declares(R"(^void (\w+)_ref\()");
  int kernels = 0;
  for (const auto& file : sources()) {
    if (file.path.rfind("kernels/", 0) != 0 || !file.path.ends_with(".hpp")) continue;
    for (std::size_t i = 0; i < file.lines.size(); ++i) {
      std::smatch match;
      if (!std::regex_search(file.lines[i], match, declares)) continue;
      ++kernels;
      const std::string name = match[1];
      if (references.find("void " + name + "_ref(") == std::string::npos)
        found.add(file, i, name + " has no reference");
      if (tests.find(name) == std::string::npos) found.add(file, i, name + " has no test");
    }
  }
  CHECK(kernels > 0);
  found.check();
}

TEST_CASE("every invariant that holds now is named by a test") {
  const auto list =
    lines_of(read_file(std::string(DI_SOURCE_DIR) + "/tests/invariants.md").value());
  std::string titles;
  for (const auto& file : sources()) {
    if (file.path.rfind("tests/", 0) != 0) continue;
    for (const auto& line : file.lines)
      if (line.find("[I") != std::string::npos) titles += line + "\n";
  }
  for (const auto& entry :
       std::filesystem::directory_iterator(std::string(DI_SOURCE_DIR) + "/tests/scenarios"))
    for (const auto& line : lines_of(read_file(entry.path().string()).value()))
      if (line.rfind("covers:", 0) == 0)
        titles += std::regex_replace(line, std::regex("I\\d\\d"), "[$&]");
  static const std::regex id(R"(^\| (I\d\d) \|)");
  int invariants = 0;
  for (const auto& line : list) {
    std::smatch match;
    if (!std::regex_search(line, match, id)) continue;
    ++invariants;
    if (titles.find("[" + match[1].str() + "]") == std::string::npos)
      FAIL_CHECK(match[1].str() << " is in no test title and no scenario");
  }
  CHECK(invariants >= 33);
}
