// The reader of tokenizer.json: every key that changes ids is either honoured or refused.
#include <array>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/json.hpp"
#include "runtime/text/bpe_alphabet.hpp"
#include "runtime/text/tokenizer_tables.hpp"

namespace deepinfer {

namespace {

constexpr std::size_t max_file_bytes = std::size_t{1} << 28;  // the largest known is 40 MB
constexpr std::int64_t max_added_id = 1 << 24;

tl::unexpected<error> bad(std::string message) {
  return fail(errc::bad_checkpoint, std::move(message));
}

/// The start of a value as JSON, to show what was found.
std::string shown(const json::value& value) {
  if (value.is_object()) return "an object";
  if (value.is_array()) return fmt::format("an array of {}", value.get_array().size());
  auto text = to_text(value);
  return text.size() <= 60 ? text : text.substr(0, 60) + "...";
}

tl::unexpected<error> unexpected_value(std::string_view place, const json::value& found,
                                       std::string_view expected) {
  return bad(fmt::format("{} is {}, expected {}", place, shown(found), expected));
}

/// The value of a key, or null where it is missing.
const json::value& at(const json::object& object, std::string_view key) {
  static const json::value none;
  const auto* found = object.if_contains(key);
  return found == nullptr ? none : *found;
}

std::string_view text_of(const json::value& value) {
  const auto* text = value.if_string();
  return text == nullptr ? std::string_view{} : std::string_view(text->data(), text->size());
}

result<bool> flag(const json::object& object, std::string_view place, std::string_view key,
                  bool otherwise) {
  const auto& value = at(object, key);
  if (value.is_null()) return otherwise;
  if (!value.is_bool())
    return unexpected_value(fmt::format("{}.{}", place, key), value, "true or false");
  return value.get_bool();
}

result<const json::object*> object_at(const json::object& object, std::string_view key) {
  const auto& value = at(object, key);
  if (!value.is_object()) return unexpected_value(key, value, "an object");
  return &value.get_object();
}

// --- model ---------------------------------------------------------------------------------------

result<void> check_model_kind(const json::object& model) {
  if (const auto& type = at(model, "type"); !type.is_null() && text_of(type) != "BPE")
    return unexpected_value("model.type", type, "\"BPE\"");
  for (const auto* key : {"continuing_subword_prefix", "end_of_word_suffix"})
    if (const auto& value = at(model, key);
        !value.is_null() && !(value.is_string() && text_of(value).empty()))
      return unexpected_value(fmt::format("model.{}", key), value, "null (byte-level BPE)");
  const auto& dropout = at(model, "dropout");
  const bool is_zero = dropout.is_number() && dropout.to_number<double>() == 0.0;
  if (!dropout.is_null() && !is_zero) return unexpected_value("model.dropout", dropout, "null");
  DI_TRY(const bool has_fallback, flag(model, "model", "byte_fallback", false));
  if (has_fallback) return bad("model.byte_fallback is true, expected false (byte-level BPE)");
  return {};
}

result<bpe_vocabulary> read_vocabulary(const json::object& model) {
  const auto& vocab = at(model, "vocab");
  if (!vocab.is_object()) return unexpected_value("model.vocab", vocab, "an object of ids");
  bpe_vocabulary words(vocab.get_object().size());
  for (const auto& [key, id] : vocab.get_object()) {
    const std::string_view name(key.data(), key.size());
    const auto place = [&] { return fmt::format("model.vocab[\"{}\"]", name); };
    if (!id.is_int64()) return unexpected_value(place(), id, "an id");
    if (auto done = words.add(name, id.get_int64()); !done)
      return tl::unexpected<error>(std::move(done).error().within(place()));
  }
  return words;
}

/// The two names of a merge: "a b" or ["a", "b"].
result<std::array<std::string_view, 2>> merge_names(const json::value& merge, std::size_t number) {
  if (const auto* pair = merge.if_array();
      pair != nullptr && pair->size() == 2 && (*pair)[0].is_string() && (*pair)[1].is_string())
    return std::array{text_of((*pair)[0]), text_of((*pair)[1])};
  const auto text = text_of(merge);
  const auto space = text.find(' ');
  if (space == std::string_view::npos || text.find(' ', space + 1) != std::string_view::npos)
    return unexpected_value(fmt::format("model.merges[{}]", number), merge,
                            "\"a b\" or [\"a\", \"b\"]");
  return std::array{text.substr(0, space), text.substr(space + 1)};
}

result<bpe_merges> read_merges(const json::object& model, const bpe_vocabulary& words) {
  const auto& list = at(model, "merges");
  if (!list.is_array()) return unexpected_value("model.merges", list, "an array");
  std::array<token_id, 256> byte_ids{};
  for (std::size_t byte = 0; byte < byte_ids.size(); ++byte) {
    const std::string bytes(1, static_cast<char>(byte));
    const auto id = words.find_bytes(bytes);
    if (!id)
      return bad(
        fmt::format("model.vocab has no entry `{}` for byte {:#04x}, expected all 256 bytes",
                    name_of_bytes(bytes), byte));
    byte_ids[byte] = *id;
  }
  bpe_merges merges(byte_ids, list.get_array().size());
  for (std::size_t number = 0; number < list.get_array().size(); ++number) {
    const auto& merge = list.get_array()[number];
    if (number == 0 && text_of(merge).starts_with("#version")) continue;
    DI_TRY(const auto names, merge_names(merge, number));
    std::array<token_id, 3> ids{};  // left, right, product
    for (std::size_t part = 0; part < 3; ++part) {
      const auto name =
        part < 2 ? std::string(names[part]) : std::string(names[0]) + std::string(names[1]);
      const auto id = words.find(name);
      if (!id)
        return bad(
          fmt::format("model.merges[{}] needs `{}`, which is not in model.vocab", number, name));
      ids[part] = *id;
    }
    merges.add(ids[0], ids[1], ids[2]);
  }
  return merges;
}

// --- added tokens --------------------------------------------------------------------------------

result<added_token> read_added_token(const json::value& value, const std::string& place) {
  if (!value.is_object()) return unexpected_value(place, value, "an object");
  const auto& object = value.get_object();
  added_token token;
  const auto& id = at(object, "id");
  if (!id.is_int64() || id.get_int64() < 0 || id.get_int64() > max_added_id)
    return unexpected_value(place + ".id", id, fmt::format("an id from 0 to {}", max_added_id));
  token.id = static_cast<token_id>(id.get_int64());
  if (!at(object, "content").is_string())
    return unexpected_value(place + ".content", at(object, "content"), "a string");
  token.content = text_of(at(object, "content"));
  DI_TRY(token.is_special, flag(object, place, "special", false));
  DI_TRY(token.is_normalized, flag(object, place, "normalized", !token.is_special));
  DI_TRY(token.strips_left, flag(object, place, "lstrip", false));
  DI_TRY(token.strips_right, flag(object, place, "rstrip", false));
  DI_TRY(token.is_single_word, flag(object, place, "single_word", false));
  return token;
}

result<added_tokens> read_added_tokens(const json::object& file) {
  const auto& list = at(file, "added_tokens");
  if (list.is_null()) return added_tokens{};
  if (!list.is_array()) return unexpected_value("added_tokens", list, "an array");
  std::vector<added_token> tokens;
  for (const auto& value : list.get_array()) {
    DI_TRY(auto token, read_added_token(value, fmt::format("added_tokens[{}]", tokens.size())));
    tokens.push_back(std::move(token));
  }
  return added_tokens::make(std::move(tokens));
}

/// Files as Hugging Face tokenizers saves them have none of these; there the ids would shift.
void warn_of_double_names(const added_tokens& added, const bpe_vocabulary& words,
                          std::vector<std::string>& warnings) {
  for (const auto& token : added.tokens()) {
    if (words.is_known(token.id) && words.name_of(token.id) != token.content)
      warnings.push_back(fmt::format("token {} is `{}` in added_tokens, which counts, but `{}` in "
                                     "model.vocab",
                                     token.id, token.content, words.name_of(token.id)));
    if (const auto id = words.find(token.content); id && *id != token.id)
      warnings.push_back(
        fmt::format("added token `{}` has id {}, which counts, but {} in model.vocab",
                    token.content, token.id, *id));
  }
}

// --- the stages around the model -----------------------------------------------------------------

constexpr std::string_view gpt2_pattern =
  R"('(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

struct split_plan {
  std::vector<split_rule> rules;
  bool is_byte_level = false;
};

result<void> read_split(const json::object& stage, const std::string& place, split_plan& plan) {
  if (plan.is_byte_level) return bad(place + " is a Split after ByteLevel, expected before it");
  const auto& pattern = at(stage, "pattern");
  const auto* form = pattern.if_object();
  const auto* regex = form == nullptr ? nullptr : form->if_contains("Regex");
  const auto* literal = form == nullptr ? nullptr : form->if_contains("String");
  const auto* text = regex != nullptr ? regex : literal;
  if (text == nullptr || !text->is_string())
    return unexpected_value(place + ".pattern", pattern, "{\"Regex\": ...} or {\"String\": ...}");
  const auto behavior = text_of(at(stage, "behavior"));
  if (behavior != "Isolated" && behavior != "Removed")
    return unexpected_value(place + ".behavior", at(stage, "behavior"), "Isolated or Removed");
  DI_TRY(const bool is_inverted, flag(stage, place, "invert", false));
  const bool removes = behavior == "Removed";
  plan.rules.push_back({std::string(text_of(*text)), regex != nullptr, !removes || is_inverted,
                        !removes || !is_inverted});
  return {};
}

result<void> read_byte_level(const json::object& stage, const std::string& place,
                             split_plan& plan) {
  if (plan.is_byte_level) return bad(place + " is a second ByteLevel stage");
  DI_TRY(const bool adds_space, flag(stage, place, "add_prefix_space", true));
  if (adds_space) return bad(place + ".add_prefix_space is true, expected false");
  DI_TRY(const bool has_regex, flag(stage, place, "use_regex", true));
  if (has_regex) plan.rules.push_back({std::string(gpt2_pattern)});
  plan.is_byte_level = true;
  return {};
}

result<void> read_stage(const json::value& value, const std::string& place, split_plan& plan) {
  if (!value.is_object()) return unexpected_value(place, value, "an object");
  const auto& stage = value.get_object();
  const auto type = text_of(at(stage, "type"));
  if (type == "Split") return read_split(stage, place, plan);
  if (type == "ByteLevel") return read_byte_level(stage, place, plan);
  if (type != "Sequence")
    return unexpected_value(place + ".type", at(stage, "type"), "Split, ByteLevel or Sequence");
  const auto& list = at(stage, "pretokenizers");
  if (!list.is_array()) return unexpected_value(place + ".pretokenizers", list, "an array");
  for (std::size_t number = 0; number < list.get_array().size(); ++number)  // JSON bounds the depth
    DI_TRY_VOID(read_stage(list.get_array()[number],
                           fmt::format("{}.pretokenizers[{}]", place, number), plan));
  return {};
}

result<pre_tokenizer> read_pre_tokenizer(const json::object& file) {
  split_plan plan;
  DI_TRY_VOID(read_stage(at(file, "pre_tokenizer"), "pre_tokenizer", plan));
  if (!plan.is_byte_level)
    return bad("pre_tokenizer has no ByteLevel stage, expected one at its end");
  DI_TRY(auto made, pre_tokenizer::make(plan.rules), "pre_tokenizer");
  return made;
}

/// Whether a stage is missing, of type `type`, or a Sequence (under `list_key`) of nothing else.
bool is_only(const json::value& value, std::string_view type, std::string_view list_key) {
  if (value.is_null()) return true;
  if (!value.is_object()) return false;
  const auto& stage = value.get_object();
  if (!type.empty() && text_of(at(stage, "type")) == type) return true;
  const auto* list = at(stage, list_key).if_array();
  if (text_of(at(stage, "type")) != "Sequence" || list == nullptr) return false;
  for (const auto& member : *list)
    if (member.is_null() || !is_only(member, type, list_key)) return false;
  return true;
}

}  // namespace

result<tokenizer::tables> read_tokenizer_file(std::string_view json_text) {
  if (json_text.starts_with("version https://git-lfs"))
    return bad("a Git LFS pointer, expected the file itself (git lfs pull)");
  if (json_text.size() > max_file_bytes)
    return bad(fmt::format("{} bytes, at most {} are read", json_text.size(), max_file_bytes));
  auto parsed = parse_json(json_text);
  if (!parsed) return bad(parsed.error().message);
  if (!parsed->is_object()) return unexpected_value("the file", *parsed, "an object");
  const auto& file = parsed->get_object();
  if (!is_only(at(file, "normalizer"), {}, "normalizers"))
    return bad("normalizer changes the text, expected null or an empty Sequence");
  if (!is_only(at(file, "decoder"), "ByteLevel", "decoders"))
    return bad("decoder is not ByteLevel, expected ByteLevel or null");
  DI_TRY(const auto* model, object_at(file, "model"));
  DI_TRY_VOID(check_model_kind(*model));
  DI_TRY(auto words, read_vocabulary(*model));
  DI_TRY(auto merges, read_merges(*model, words));
  DI_TRY(auto splitter, read_pre_tokenizer(file));
  tokenizer::tables made;
  DI_TRY(made.added, read_added_tokens(file));
  DI_TRY(made.ignores_merges, flag(*model, "model", "ignore_merges", false));
  if (!splitter.is_deepseek())
    made.warnings.push_back(
      fmt::format("its own split pattern runs on Unicode {}: characters newer "
                  "than that may split differently",
                  regex_split::unicode_version()));
  warn_of_double_names(made.added, words, made.warnings);
  made.words = std::make_shared<const bpe_vocabulary>(std::move(words));
  made.merges = std::make_shared<const bpe_merges>(std::move(merges));
  made.splitter = std::make_shared<const pre_tokenizer>(std::move(splitter));
  return made;
}

}  // namespace deepinfer
