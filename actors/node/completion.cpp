#include "actors/node/completion.hpp"

#include <algorithm>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace deepinfer {
namespace {

/// What may follow some words of a command line.
struct word {
  std::string text;
  std::string help;
};

/// What may follow the words of `after`: of no command, the first words of all; of a group, its
/// second words; of a command, its flags.
struct word_list {
  std::string after;
  std::vector<word> words;
};

std::string first_word(const std::string& name) {
  return name.substr(0, name.find(' '));
}

std::vector<word> flags_of(const command& it) {
  std::vector<word> out;
  for (const auto& f : command_line_of(it).flags) {
    out.push_back({"--" + f.name, f.help});
    if (f.is_negatable) out.push_back({"--no-" + f.name, f.help});
  }
  out.push_back({"--help", "flags with defaults and units"});
  return out;
}

std::vector<word_list> lists_of(std::span<const command> commands) {
  std::vector<word_list> out{{"", {}}};
  for (const auto& it : commands) {
    const auto first = first_word(it.name);
    const bool is_grouped = first != it.name;
    auto& top = out.front().words;
    const auto is_first = [&first](const word& w) { return w.text == first; };
    if (std::none_of(top.begin(), top.end(), is_first))
      top.push_back({first, is_grouped ? first + " ..." : it.summary});
    if (!is_grouped) continue;
    const auto is_group = [&first](const word_list& list) { return list.after == first; };
    auto group = std::find_if(out.begin(), out.end(), is_group);
    if (group == out.end()) group = out.insert(out.end(), {first, {}});
    group->words.push_back({it.name.substr(first.size() + 1), it.summary});
  }
  for (const auto& it : commands) out.push_back({it.name, flags_of(it)});
  return out;
}

/// In single quotes of a shell, with nothing that a description of zsh or fish gives a meaning.
std::string quoted(std::string text) {
  for (std::size_t at = 0; (at = text.find('\'', at)) != std::string::npos; at += 4)
    text.replace(at, 1, "'\\''");
  return "'" + text + "'";
}

std::string texts_of(const std::vector<word>& words) {
  std::vector<std::string> out;
  for (const auto& it : words) out.push_back(it.text);
  return fmt::format("{}", fmt::join(out, " "));
}

/// The longest list whose words begin the command line, as a shell's case: two words, then one.
std::string bash_script(const std::vector<word_list>& lists) {
  std::string cases, singles;
  for (const auto& list : lists) {
    if (list.after.empty()) continue;
    const bool is_pair = list.after.find(' ') != std::string::npos;
    (is_pair ? cases : singles) +=
      fmt::format("    {}) words={} ;;\n",
                  quoted(list.after) + (is_pair ? "" : "|" + quoted(list.after + " ") + "*"),
                  quoted(texts_of(list.words)));
  }
  return fmt::format(
    R"(# bash completion of deepinfer: source it, or put it into bash-completion's folder.
_deepinfer() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words={}
  local first="" second=""
  ((COMP_CWORD > 1)) && first="${{COMP_WORDS[1]}}"
  ((COMP_CWORD > 2)) && second="${{COMP_WORDS[2]}}"
  case "$first${{second:+ $second}}" in
{}{}  esac
  COMPREPLY=($(compgen -W "$words" -- "$current"))
  # Nothing of ours fits: names of files.
  [[ ${{#COMPREPLY[@]}} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$current"))
}}
complete -o filenames -F _deepinfer deepinfer
)",
    quoted(texts_of(lists.front().words)), cases, singles);
}

/// zsh shows a help behind each word: WORD:HELP, where a colon in the word has a backslash.
std::string zsh_script(const std::vector<word_list>& lists) {
  const auto entries = [](const std::vector<word>& words) {
    std::vector<std::string> out;
    for (const auto& it : words) out.push_back(quoted(it.text + ":" + it.help));
    return fmt::format("{}", fmt::join(out, " "));
  };
  std::string cases, singles;
  for (const auto& list : lists) {
    if (list.after.empty()) continue;
    const bool is_pair = list.after.find(' ') != std::string::npos;
    (is_pair ? cases : singles) +=
      fmt::format("    {}) choices=({}) ;;\n",
                  quoted(list.after) + (is_pair ? "" : "|" + quoted(list.after + " ") + "*"),
                  entries(list.words));
  }
  return fmt::format(R"(#compdef deepinfer
# zsh completion of deepinfer: put it into a folder of $fpath as _deepinfer.
_deepinfer() {{
  local -a choices
  local line=""
  ((CURRENT > 2)) && line="${{words[2]}}"
  ((CURRENT > 3)) && line="$line ${{words[3]}}"
  case "$line" in
{}{}    *) choices=({}) ;;
  esac
  _describe deepinfer choices || _files
}}
compdef _deepinfer deepinfer
)",
                     cases, singles, entries(lists.front().words));
}

std::string fish_script(const std::vector<word_list>& lists) {
  std::string out = "# fish completion of deepinfer: put it into ~/.config/fish/completions.\n";
  for (const auto& list : lists) {
    auto condition = std::string("__fish_use_subcommand");
    if (!list.after.empty()) {
      condition.clear();
      for (std::size_t begin = 0; begin < list.after.size();) {
        const auto end = std::min(list.after.find(' ', begin), list.after.size());
        condition += fmt::format("{}__fish_seen_subcommand_from {}", begin == 0 ? "" : "; and ",
                                 list.after.substr(begin, end - begin));
        begin = end + 1;
      }
    }
    for (const auto& it : list.words) {
      const bool is_flag = it.text.starts_with("--");
      out += fmt::format("complete -c deepinfer {}-n {} {} {} -d {}\n", is_flag ? "" : "-f ",
                         quoted(condition), is_flag ? "-l" : "-a",
                         is_flag ? it.text.substr(2) : it.text, quoted(it.help));
    }
  }
  return out;
}

}  // namespace

result<std::string> completion_script(std::string_view shell, std::span<const command> commands) {
  const auto lists = lists_of(commands);
  if (shell == "bash") return bash_script(lists);
  if (shell == "zsh") return zsh_script(lists);
  if (shell == "fish") return fish_script(lists);
  return fail(errc::bad_config,
              fmt::format("shell: found '{}', expected bash, zsh or fish", shell));
}

}  // namespace deepinfer
