/// What the text commands (tokenize, detokenize, render, parse) share: choosing a tokenizer,
/// reading one JSON object or a file of them.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "actors/node/cli.hpp"
#include "runtime/base/json.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

/// --tokenizer, --model and --jsonl.
std::vector<flag> text_flags();

/// The directory of --model or DEEPINFER_MODEL, else of the embedded model.
result<std::string> text_model(const cli_context& context, const parsed_flags& flags);

/// The tokenizer of --tokenizer DIR, else of `text_model`. For V4.1 (`tokenizer::as_v41`) where a
/// model's directory is meant or `is_v41` says so; its warnings are logged. Errors:
/// bad_checkpoint, io_failed.
result<tokenizer> open_tokenizer(const cli_context& context, const parsed_flags& flags,
                                 bool is_v41);

/// One request object to one result object.
using object_command = std::function<result<json::object>(const json::value&)>;

/// FILE of --jsonl, where it is given; an argument beside it is bad_config.
result<std::optional<std::string>> jsonl_file(const parsed_flags& flags);

/// Answers every line of --jsonl FILE ("-": standard input) with one line: the result, or
/// {"error": {...}} where the line fails. Empty lines are skipped. Error only where FILE cannot be
/// read.
result<int> answer_lines(const cli_context& context, const std::string& file,
                         const object_command& answer);

/// Answers the object in the file that is the command's positional ("-": standard input).
result<int> answer_file(const cli_context& context, const parsed_flags& flags,
                        const object_command& answer);

/// The argument, or standard input where there is none; bytes as they come.
result<std::string> text_argument(const parsed_flags& flags);

/// A field that must be an array of ids from 0 up.
result<std::vector<token_id>> ids_field(const json::value& request, std::string_view name);

}  // namespace deepinfer
