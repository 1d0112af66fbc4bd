#include "runtime/text/tokenizer.hpp"

#include <algorithm>
#include <filesystem>

#include <fmt/format.h>

#include "runtime/base/file.hpp"
#include "runtime/base/utf8.hpp"
#include "runtime/text/tokenizer_tables.hpp"

namespace deepinfer {

namespace {

constexpr std::string_view system_marker = "<｜System｜>";
constexpr std::string_view reserved_prefix = "<｜place▁holder▁no▁";
constexpr token_id v41_system_id = 128'799;

/// A piece is merged whole up to here; places within one are 32-bit numbers.
constexpr std::size_t max_piece_bytes = std::size_t{1} << 30;

/// Bytes of the longest prefix that is valid UTF-8 (`valid`) or that holds no valid sequence.
std::size_t prefix_size(std::string_view text, bool valid) {
  std::size_t at = 0;
  while (at < text.size()) {
    const auto step = read_utf8(text.substr(at));
    if ((step.what == utf8_step::kind::valid) != valid) break;
    at += step.size;
  }
  return at;
}

/// One encode call.
class encoding {
public:
  encoding(const tokenizer::tables& tables, std::vector<token_id>& ids, std::size_t text_bytes)
    : tables_(tables),
      ids_(ids),
      memory_(text_bytes) {}

  void valid_text(std::string_view text, specials mode) {
    if (mode == specials::off) return plain(text);
    std::vector<text_part> parts;
    tables_.added.split(text, parts);
    for (const auto& part : parts) {
      if (part.id < 0)
        plain(part.text);
      else
        ids_.push_back(part.id);
    }
  }

  void piece(std::string_view bytes) {
    if (tables_.ignores_merges)
      if (const auto id = tables_.words->find_bytes(bytes)) return ids_.push_back(*id);
    for (; bytes.size() > max_piece_bytes; bytes.remove_prefix(max_piece_bytes))
      tables_.merges->encode(bytes.substr(0, max_piece_bytes), memory_, ids_);
    tables_.merges->encode(bytes, memory_, ids_);
  }

private:
  void plain(std::string_view text) {
    pieces_.clear();
    tables_.splitter->split(text, pieces_);
    for (const auto bytes : pieces_) piece(bytes);
  }

  const tokenizer::tables& tables_;
  std::vector<token_id>& ids_;
  bpe_merges::scratch memory_;
  std::vector<std::string_view> pieces_;
};

}  // namespace

result<tokenizer> tokenizer::open(const std::string& path) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  const auto file = is_directory ? (std::filesystem::path(path) / "tokenizer.json").string() : path;
  DI_TRY(const auto text, read_file(file));
  DI_TRY(auto opened, parse(text), file);
  return opened;
}

result<tokenizer> tokenizer::parse(std::string_view json_text) {
  DI_TRY(auto loaded, read_tokenizer_file(json_text));
  return tokenizer(std::make_shared<const tables>(std::move(loaded)));
}

tokenizer tokenizer::as_v41() const {
  if (id_of(system_marker)) return *this;
  auto changed = *tables_;
  const auto* old = changed.added.find(v41_system_id);
  if (old == nullptr || !old->content.starts_with(reserved_prefix)) {
    changed.warnings.push_back(
      fmt::format("no token {}: prompts in V4.1's chat format cannot be encoded", system_marker));
    return tokenizer(std::make_shared<const tables>(std::move(changed)));
  }
  changed.warnings.push_back(fmt::format("token {} is the placeholder `{}`; it is read as {}",
                                         v41_system_id, old->content, system_marker));
  auto tokens = changed.added.tokens();
  for (auto& token : tokens)
    if (token.id == v41_system_id) token.content = system_marker;
  changed.added = *added_tokens::make(std::move(tokens));  // the new content was not there before
  return tokenizer(std::make_shared<const tables>(std::move(changed)));
}

std::int32_t tokenizer::vocab_size() const {
  auto size = tables_->words->size();
  for (const auto& token : tables_->added.tokens()) size = std::max(size, token.id + 1);
  return size;
}

std::vector<token_id> tokenizer::encode(std::string_view text, specials mode,
                                        bad_bytes rule) const {
  std::vector<token_id> ids;
  encode_into(ids, text, mode, rule);
  return ids;
}

void tokenizer::encode_into(std::vector<token_id>& ids, std::string_view text, specials mode,
                            bad_bytes rule) const {
  encoding run(*tables_, ids, text.size());
  if (is_utf8(text)) return run.valid_text(text, mode);
  if (rule == bad_bytes::replace) return run.valid_text(repair_utf8(text), mode);
  while (!text.empty()) {
    const auto good = prefix_size(text, true);
    run.valid_text(text.substr(0, good), mode);
    text.remove_prefix(good);
    const auto bad = prefix_size(text, false);
    run.piece(text.substr(0, bad));
    text.remove_prefix(bad);
  }
}

std::vector<std::size_t> tokenizer::split(std::string_view text) const {
  std::vector<std::string_view> pieces;
  tables_->splitter->split(text, pieces);
  std::vector<std::size_t> sizes;
  for (const auto piece : pieces) sizes.push_back(piece.size());
  return sizes;
}

std::optional<token_id> tokenizer::id_of(std::string_view name) const {
  if (const auto* token = tables_->added.find(name)) return token->id;
  const auto id = tables_->words->find(name);
  return id && !is_added(*id) ? id : std::nullopt;  // an added token's old key is no name of it
}

std::string_view tokenizer::bytes_of(token_id id) const {
  if (const auto* token = tables_->added.find(id)) return token->content;
  return tables_->words->bytes_of(id);
}

std::string tokenizer::name_of(token_id id) const {
  if (const auto* token = tables_->added.find(id)) return token->content;
  return tables_->words->name_of(id);
}

bool tokenizer::is_known(token_id id) const {
  return is_added(id) || tables_->words->is_known(id);
}

bool tokenizer::is_added(token_id id) const {
  return tables_->added.find(id) != nullptr;
}

bool tokenizer::is_special(token_id id) const {
  const auto* token = tables_->added.find(id);
  return token != nullptr && token->is_special;
}

const std::vector<std::string>& tokenizer::warnings() const {
  return tables_->warnings;
}

}  // namespace deepinfer
