#include "config/flags.hpp"

#include <algorithm>
#include <charconv>
#include <memory>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "config/nearest.hpp"
#include "config/schema.hpp"

namespace deepinfer {

namespace {

/// Spelling for CLI11: "-o,--out,--alias" or "--x,--no-x{false}".
std::string names_of(const flag& f) {
  std::string names = f.short_name ? fmt::format("-{},", f.short_name) : std::string();
  names += "--" + f.name;
  for (const auto& alias : f.aliases) names += ",--" + alias;
  if (!f.is_negatable) return names;
  names += ",--no-" + f.name + "{false}";
  for (const auto& alias : f.aliases) names += ",--no-" + alias + "{false}";
  return names;
}

tl::unexpected<error> misuse(const command_line& command, std::string_view message) {
  return fail(errc::bad_config, fmt::format("{} (see '{} --help')", message, command.program));
}

tl::unexpected<error> unknown_flag(const command_line& command, const std::string& found) {
  std::vector<std::string> known{"help"};
  for (const auto& f : command.flags) {
    known.push_back(f.name);
    known.insert(known.end(), f.aliases.begin(), f.aliases.end());
    if (!f.is_negatable) continue;
    known.push_back("no-" + f.name);
    for (const auto& alias : f.aliases) known.push_back("no-" + alias);
  }
  const auto word = found.substr(found.find_first_not_of('-'));
  return misuse(command, fmt::format("unknown flag '{}'{}", found,
                                     did_you_mean(word.substr(0, word.find('=')), known, "--")));
}

/// Checks that a value stands where one must, and what stands after `=`. CLI11 would take any text
/// for a switch, and for an empty value the next argument; for none it has words of its own.
class value_check {
public:
  explicit value_check(const command_line& command) : command_(command) {}

  result<void> check(std::span<const std::string> args) {
    for (std::size_t i = 0; i < args.size(); ++i) {
      const std::string_view argument = args[i];
      const auto equals = argument.find('=');
      const auto word = argument.substr(0, equals);
      const auto* own = find(word);
      const bool is_added = word == "--help" || word == "--verbose" || word == "--quiet";
      if (own && equals == std::string_view::npos && takes_value(*own)) {
        // The next argument is the value, whatever it looks like.
        if (++i == args.size() || is_no_path(*own, args[i])) return missing(word, *own);
      } else if (own && equals != std::string_view::npos) {
        DI_TRY_VOID(check_assigned(word, own, argument.substr(equals + 1)));
      } else if (is_added && equals != std::string_view::npos) {
        DI_TRY_VOID(check_assigned(word, nullptr, argument.substr(equals + 1)));
      } else if (const auto* last = own ? nullptr : open_end(argument)) {
        if (++i == args.size() || is_no_path(*last, args[i]))
          return missing(std::string("-") + last->short_name, *last);
      }
    }
    return {};
  }

private:
  static bool takes_value(const flag& f) { return !f.value_name.empty(); }

  /// An empty text is a value of some flags, and the name of no file.
  static bool is_no_path(const flag& f, std::string_view value) {
    const auto names = [&f](const char* what) {
      return f.value_name.find(what) != f.value_name.npos;
    };
    return value.empty() && (names("FILE") || names("DIR"));
  }

  const flag* find(std::string_view word) const {
    const auto is_called = [](const flag& f, std::string_view name) {
      const auto is_own = [&f](std::string_view alias) {
        return alias == f.name ||
               std::find(f.aliases.begin(), f.aliases.end(), alias) != f.aliases.end();
      };
      return is_own(name) || (f.is_negatable && name.starts_with("no-") && is_own(name.substr(3)));
    };
    for (const auto& f : command_.flags) {
      if (word.starts_with("--") && is_called(f, word.substr(2))) return &f;
      if (word.size() == 2 && word[0] == '-' && f.short_name && word[1] == f.short_name) return &f;
    }
    return nullptr;
  }

  /// Of short flags in one word, "-vo": the last one, where it still needs its value.
  const flag* open_end(std::string_view word) const {
    if (word.size() < 3 || word[0] != '-' || word[1] == '-') return nullptr;
    for (std::size_t i = 1; i < word.size(); ++i) {
      const auto* own = find(std::string("-") + word[i]);
      if (own && takes_value(*own)) return i + 1 == word.size() ? own : nullptr;
      if (!own && word[i] != 'h' && word[i] != 'v' && word[i] != 'q') return nullptr;
    }
    return nullptr;
  }

  tl::unexpected<error> missing(std::string_view word, const flag& f) const {
    return misuse(command_, fmt::format("{}: found nothing, expected {}", word, f.value_name));
  }

  /// `own` is null for a switch that every command has.
  result<void> check_assigned(std::string_view word, const flag* own,
                              std::string_view value) const {
    if (own && takes_value(*own)) {
      if (!value.empty()) return {};
      return misuse(command_,
                    fmt::format("{}: found nothing after '=', expected {}", word, own->value_name));
    }
    if (own && (value == "true" || value == "false")) return {};
    return misuse(command_, fmt::format("{}: found '{}', expected {}", word, value.substr(0, 100),
                                        own ? "no value, =true or =false" : "no value"));
  }

  const command_line& command_;
};

/// The app that CLI11 parses with; options in the order of `command.flags`.
std::vector<CLI::Option*> declare(CLI::App& app, const command_line& command) {
  std::vector<CLI::Option*> options;
  for (const auto& f : command.flags) {
    auto* option = f.value_name.empty() ? app.add_flag(names_of(f)) : app.add_option(names_of(f));
    if (!f.value_name.empty()) option->expected(1);
    // Lists in brackets are CLI11's own syntax; here a value is one argument, whatever it holds.
    option->allow_extra_args(false);
    option->multi_option_policy(f.is_repeatable ? CLI::MultiOptionPolicy::TakeAll
                                                : CLI::MultiOptionPolicy::TakeLast);
    options.push_back(option);
  }
  return options;
}

bool is_negative_number(std::string_view text) {
  const auto is_digit = [text](std::size_t i) {
    return i < text.size() && text[i] >= '0' && text[i] <= '9';
  };
  return text.starts_with('-') && (is_digit(1) || (text.substr(1).starts_with('.') && is_digit(2)));
}

/// What CLI11 did not take: unknown flags are errors, the rest is positional.
result<void> take_rest(const command_line& command, const std::vector<std::string>& rest,
                       parsed_flags& out) {
  for (const auto& argument : rest) {
    if (argument.size() > 1 && argument.starts_with('-') && !is_negative_number(argument) &&
        argument.find_first_not_of('-') != std::string::npos)
      return unknown_flag(command, argument);
    out.positionals.push_back(argument);
  }
  return {};
}

result<void> check_positionals(const command_line& command, const parsed_flags& parsed) {
  const auto count = static_cast<std::int32_t>(parsed.positionals.size());
  if (parsed.help) return {};
  if (count > command.positionals_max)
    return misuse(
      command, fmt::format("unexpected argument '{}'",
                           parsed.positionals[static_cast<std::size_t>(command.positionals_max)]));
  if (count < command.positionals_min)
    return misuse(command, fmt::format("missing argument: {}", command.positionals));
  return {};
}

std::string describe_flag(const flag& f) {
  auto names = f.short_name ? fmt::format("-{}, ", f.short_name) : std::string("    ");
  names += f.is_negatable ? "--[no-]" + f.name : "--" + f.name;
  if (!f.value_name.empty()) names += " " + f.value_name;
  return names;
}

constexpr char glue = '\x1f';  ///< a space that help does not break at

/// Text broken at spaces so that no line passes column 100, further lines indented by `indent`.
std::string wrapped(std::string_view text, std::size_t indent) {
  constexpr std::size_t columns = 100;
  std::string out;
  std::size_t column = indent;
  while (!text.empty()) {
    const auto word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (column > indent && column + 1 + word.size() > columns) {
      (out += '\n').append(indent, ' ');
      column = indent;
    } else if (column > indent) {
      out += ' ';
      ++column;
    }
    out += word;
    column += word.size();
  }
  std::replace(out.begin(), out.end(), glue, ' ');
  return out;
}

/// The last value given of a flag as a number that `is_good`.
template <class Predicate>
result<std::optional<double>> read_number(const parsed_flags& flags, const std::string& name,
                                          Predicate is_good, const std::string& expected) {
  const auto found = flags.text(name);
  if (!found) return std::nullopt;
  double value = 0;
  const auto* last = found->data() + found->size();
  const auto [end, code] = std::from_chars(found->data(), last, value);
  if (found->empty() || code != std::errc() || end != last || !is_good(value))
    return fail(errc::bad_config,
                fmt::format("--{}: found '{}', expected {}", name, *found, expected));
  return value;
}

}  // namespace

flag value_flag(const char* name, const char* help, const char* value_name, const char* usual) {
  return {.name = name, .help = help, .value_name = value_name, .default_text = usual};
}

flag switch_flag(const char* name, const char* help, bool is_negatable) {
  return {.name = name, .help = help, .is_negatable = is_negatable};
}

std::optional<std::string> parsed_flags::text(const std::string& name) const {
  const auto found = values.find(name);
  if (found == values.end() || found->second.empty()) return {};
  return found->second.back();
}

bool parsed_flags::is_on(const std::string& name, bool otherwise) const {
  const auto value = text(name);
  return value ? *value == "true" : otherwise;
}

result<std::optional<std::int64_t>> parsed_flags::integer(const std::string& name, std::int64_t min,
                                                          std::int64_t max) const {
  const auto found = text(name);
  if (!found) return std::nullopt;
  std::int64_t value = 0;
  const auto* last = found->data() + found->size();
  const auto [end, code] = std::from_chars(found->data(), last, value);
  if (found->empty() || code != std::errc() || end != last || value < min || value > max)
    return fail(errc::bad_config,
                fmt::format("--{}: found '{}', expected a whole number from {} to {}", name, *found,
                            min, max));
  return value;
}

result<std::optional<double>> parsed_flags::number(const std::string& name, double min,
                                                   double max) const {
  return read_number(
    *this, name, [min, max](double it) { return it >= min && it <= max; },
    fmt::format("a number from {} to {}", min, max));
}

result<std::optional<double>> parsed_flags::positive(const std::string& name, double max) const {
  return read_number(
    *this, name, [max](double it) { return it > 0 && it <= max; },
    fmt::format("a number above 0, at most {}", max));
}

result<parsed_flags> parse_flags(const command_line& command, std::span<const std::string> args) {
  parsed_flags out;
  const auto end = std::find(args.begin(), args.end(), "--");
  DI_TRY_VOID(value_check(command).check({args.begin(), end}));
  try {
    CLI::App app;
    app.set_help_flag();
    app.allow_extras();
    const auto options = declare(app, command);
    auto* help = app.add_flag("-h,--help");
    auto* more = app.add_flag("-v,--verbose");
    auto* less = app.add_flag("-q,--quiet");
    std::vector<std::string> reversed(args.begin(), end);  // CLI11 takes them from the back
    std::reverse(reversed.begin(), reversed.end());
    app.parse(reversed);
    out.help = help->count() > 0;
    out.verbosity =
      static_cast<std::int32_t>(more->count()) - static_cast<std::int32_t>(less->count());
    for (std::size_t i = 0; i < options.size(); ++i)
      if (options[i]->count() > 0) {
        auto& values = out.values[command.flags[i].name];
        values = options[i]->results();
        if (!command.flags[i].is_repeatable) values.erase(values.begin(), values.end() - 1);
      }
    DI_TRY_VOID(take_rest(command, app.remaining(), out));
  } catch (const CLI::Error& problem) {
    return misuse(command, problem.what());
  }
  if (end != args.end()) out.positionals.insert(out.positionals.end(), end + 1, args.end());
  DI_TRY_VOID(check_positionals(command, out));
  return out;
}

std::string help_text(const command_line& command) {
  constexpr std::size_t help_column = 34;
  auto out = fmt::format("{}\n\nUsage: {} [FLAGS]{}{}\n", command.summary, command.program,
                         command.positionals.empty() ? "" : " ", command.positionals);
  if (!command.details.empty()) out += "\n" + command.details;
  std::vector<std::string> groups{""};
  for (const auto& f : command.flags)
    if (std::find(groups.begin(), groups.end(), f.group) == groups.end()) groups.push_back(f.group);
  auto flags = command.flags;
  flags.push_back({.name = "help", .help = "this text", .short_name = 'h'});
  flags.push_back({.name = "verbose", .help = "say more on stderr", .short_name = 'v'});
  flags.push_back({.name = "quiet", .help = "say less on stderr", .short_name = 'q'});
  for (const auto& group : groups) {
    out += fmt::format("\n{}:\n", group.empty() ? "Options" : group);
    for (const auto& f : flags) {
      if (f.group != group) continue;
      auto line = "  " + describe_flag(f);
      line += line.size() + 2 > help_column ? "\n" + std::string(help_column, ' ')
                                            : std::string(help_column - line.size(), ' ');
      auto help = f.help;
      for (const auto& alias : f.aliases) help += "; also --" + alias;
      if (!f.default_text.empty()) help += fmt::format(" [default:{}{}]", glue, f.default_text);
      out += line + wrapped(help, help_column) + "\n";
    }
  }
  return out;
}

std::vector<flag> engine_flags() {
  std::vector<flag> flags;
  for (const auto& info : all_settings()) {
    if (info.flag.empty()) continue;
    flag f;
    f.name = info.flag;
    f.help = info.help;
    f.value_name = info.value_name;
    f.default_text = info.default_text.empty() ? info.absent : info.default_text;
    f.group = "Settings: " + info.key.substr(0, info.key.find('.'));
    f.aliases = info.aliases;
    f.is_negatable = info.value_name.empty();
    f.is_repeatable = info.is_repeated;
    flags.push_back(std::move(f));
  }
  return flags;
}

}  // namespace deepinfer
