#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <iostream>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "actors/node/generation.hpp"
#include "actors/node/remote_flags.hpp"
#include "actors/node/standard_input.hpp"
#include "actors/node/stats_report.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/chat_request.hpp"

namespace deepinfer {
namespace {

/// The conversation so far, as the chat request the engine reads.
class conversation {
public:
  static result<conversation> open(const parsed_flags& flags) {
    conversation it;
    const auto effort = flags.text("effort");
    // Whoever says how long to think wants it to.
    const bool thinks = flags.is_on("thinking", effort && *effort != "none");
    it.body_["thinking"] = json::object{{"type", thinks ? "enabled" : "disabled"}};
    if (effort) {
      const auto value = effort_of(*effort);
      if (!is_effort(value))
        return fail(errc::bad_config,
                    fmt::format("--effort: found '{}', expected {}", *effort, efforts_text()));
      it.body_["reasoning_effort"] = value;
    }
    if (const auto tools = flags.text("tools")) {
      auto read = read_json_file(*tools);
      if (!read) return fail(errc::bad_config, "--tools: " + read.error().message);
      it.body_["tools"] = std::move(*read);
    }
    if (const auto system = flags.text("system")) it.say("system", *system);
    return it;
  }

  void say(const char* role, const std::string& content) {
    messages_.push_back(json::object{{"role", role}, {"content", repair_utf8(content)}});
  }

  /// Replaces everything said so far.
  void set_messages(json::array messages) { messages_ = std::move(messages); }
  void set(const char* key, json::value value) { body_[key] = std::move(value); }
  void forget_last() {
    if (!messages_.empty()) messages_.pop_back();
  }
  void forget_all() { messages_.clear(); }

  std::string text() const {
    auto body = body_;
    body["messages"] = messages_;
    return to_text(body);
  }

private:
  /// A number where it is one: the chat format knows both.
  static json::value effort_of(const std::string& text) {
    int number = 0;
    const auto* end = text.data() + text.size();
    const auto read = std::from_chars(text.data(), end, number);
    if (read.ec == std::errc{} && read.ptr == end) return number;
    return json::string(text);
  }

  json::object body_;
  json::array messages_;
};

/// The first of the model's own demonstration prompts.
result<std::string> load_demo(const std::string& model_path, conversation& talk) {
  const auto path = model_path + "/demo_prompts.json";
  DI_TRY(const auto file, read_json_file(path));
  const auto* prompts = file.is_object() ? file.as_object().if_contains("prompts") : nullptr;
  const auto* list = prompts ? prompts->if_array() : nullptr;
  const auto* first = list && !list->empty() ? list->front().if_object() : nullptr;
  const auto* messages = first ? first->if_contains("messages") : nullptr;
  if (!messages || !messages->is_array() || messages->as_array().empty())
    return fail(errc::bad_checkpoint,
                path + ": expected an object with prompts: [{\"messages\": [...]}, ...]");
  talk.set_messages(messages->as_array());
  if (const auto* tools = first->if_contains("tools"); tools && !tools->is_null())
    talk.set("tools", *tools);
  if (const auto* thinking = first->if_contains("thinking"); thinking && thinking->is_bool())
    talk.set("thinking", json::object{{"type", thinking->as_bool() ? "enabled" : "disabled"}});
  const auto* last = messages->as_array().back().if_object();
  const auto* content = last ? last->if_contains("content") : nullptr;
  return content && content->is_string() ? std::string(content->as_string()) : std::string();
}

void print_calls(const cli_context& context, const generate_result& content) {
  for (const auto& call : content.tool_calls)
    fmt::print(context.out, "[call {}({})]", call.name, call.arguments);
}

struct session {
  const cli_context& context;
  const opened_engine& opened;
  const client& engine;
  sampling_request sampling;
  std::optional<std::string> cache_salt;
  bool is_json = false;
  bool with_stats = false;
  interrupt_guard& interrupts;
};

result<answer> say_and_answer(const session& it, const conversation& talk) {
  generate_request request;
  request.chat = talk.text();
  request.sampling = it.sampling;
  request.cache_salt = it.cache_salt;
  DI_TRY(auto reply, run_request(it.context, it.engine, request, !it.is_json, it.interrupts));
  if (it.is_json) {
    fmt::print(it.context.out, "{}\n",
               to_text(answer_object(reply, it.engine, true, it.with_stats)));
  } else {
    print_calls(it.context, reply.content);
    fmt::print(it.context.out, "\n");
    std::fflush(it.context.out);
    show_figures(it.context, reply, it.engine, it.with_stats);
  }
  return reply;
}

/// Lines of a person at a terminal. A line that starts with a slash is for the program.
result<int> converse(const session& it, conversation& talk) {
  print_err("{} on {}. /new starts over, /stats, /quit.\n", it.opened.model_name,
            it.opened.device_name);
  std::string line;
  while (true) {
    print_err("> ");
    const bool has_line = static_cast<bool>(std::getline(std::cin, line));
    if (it.interrupts.is_asked()) {
      print_err("\n");
      return 130;
    }
    line.erase(0, line.find_first_not_of(" \t"));
    line.erase(line.find_last_not_of(" \t") + 1);
    if (!has_line || line == "/quit") return 0;
    if (line.empty()) continue;
    if (line == "/new") {
      talk.forget_all();
      continue;
    }
    if (line == "/stats") {
      DI_TRY(const auto stats, it.engine.stats());
      print_err("{}", stats_text(stats));
      continue;
    }
    if (line.front() == '/') {
      print_err("{} is not known; /new starts over, /stats, /quit\n", line);
      continue;
    }
    talk.say("user", line);
    const auto reply = say_and_answer(it, talk);
    if (!reply) {
      // A refused request changes nothing: the next one works.
      warn(it.context, reply.error().message);
      if (reply.error().code == errc::context_length_exceeded)
        print_err("the conversation is as long as the model can read: /new starts over\n");
      talk.forget_last();
      continue;
    }
    if (reply->was_interrupted)
      it.interrupts.forget();  // the answer ends, the conversation goes on
    talk.say("assistant", reply->content.text);
  }
}

result<int> chat(const cli_context& context, const parsed_flags& flags) {
  DI_TRY_VOID(check_elsewhere(flags));
  DI_TRY(const auto config, settings_of(context, flags));
  DI_TRY(auto sampling, read_sampling(flags));
  // Elsewhere the node has a seed of its own, or none.
  if (config.settings.engine.seed) sampling.seed = config.settings.engine.seed;
  DI_TRY(auto talk, conversation::open(flags));
  const bool is_demo = flags.is_on("demo");
  if (is_demo && !flags.positionals.empty())
    return fail(errc::bad_config, "found a message and --demo, expected one of them");
  if (is_demo && flags.has("connect"))
    return fail(errc::bad_config,
                "found --connect and --demo, which is read from the model's folder");
  std::string message;
  const bool has_message = !flags.positionals.empty() || ::isatty(STDIN_FILENO) == 0;
  if (!flags.positionals.empty()) {
    message = flags.positionals.front();
  } else if (has_message && !is_demo) {
    DI_TRY(message, read_standard_input());
  }
  DI_TRY(const auto opened, open_engine(context, flags, config));
  interrupt_guard interrupts;
  const session it{context,
                   opened,
                   opened.engine,
                   std::move(sampling),
                   flags.text("cache-salt"),
                   flags.is_on("json"),
                   flags.is_on("stats"),
                   interrupts};
  if (is_demo) {
    DI_TRY(message, load_demo(opened.model_path, talk));
    if (!it.is_json) print_err("> {}\n", message);
  } else if (has_message) {
    talk.say("user", message);
  } else {
    return converse(it, talk);
  }
  DI_TRY(const auto reply, say_and_answer(it, talk));
  DI_TRY_VOID(write_trace(context, config, opened));
  return reply.was_interrupted ? 130 : 0;
}

}  // namespace

command chat_command() {
  command it;
  it.name = "chat";
  it.summary = "answer a message in the model's chat format; without one, a conversation";
  it.positionals = "[MESSAGE]";
  it.positionals_max = 1;
  const auto effort_help = "how long it thinks: " + efforts_text();
  it.flags = {switch_flag("json", "one JSON object instead of streamed text"),
              stats_flag(),
              cache_salt_flag(),
              switch_flag("demo", "the first of the model's own demonstration prompts"),
              switch_flag("thinking", "let the model think first", true),
              value_flag("effort", effort_help.c_str(), "LEVEL", "high"),
              value_flag("system", "a system message before the first one", "TEXT", "none"),
              value_flag("tools", "tools the model may call: a JSON array as in the OpenAI API",
                         "FILE", "none")};
  const auto sampling = sampling_flags();
  it.flags.insert(it.flags.end(), sampling.begin(), sampling.end());
  const auto elsewhere = elsewhere_flags();
  it.flags.insert(it.flags.end(), elsewhere.begin(), elsewhere.end());
  it.takes_settings = true;
  it.run = chat;
  return it;
}

}  // namespace deepinfer
