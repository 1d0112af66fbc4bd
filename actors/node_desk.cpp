#include "actors/node_desk.hpp"

#include <fmt/format.h>

#include "actors/node.hpp"
#include "actors/product_version.hpp"
#include "messages/wire.hpp"
#include "runtime/base/fingerprint.hpp"
#include "runtime/text/chat_encoding.hpp"
#include "runtime/text/chat_request.hpp"
#include "runtime/text/detokenizer.hpp"

namespace deepinfer {
namespace {

/// Some milliseconds of tokenizing.
constexpr std::size_t long_text_bytes = 16 << 10;

/// Equal where the same request with the same seed gives the same tokens: the build, the model, and
/// every setting that can change one.
std::string fingerprint_of(const node_facts& facts, const engine_settings& settings) {
  const auto& engine = settings.engine;
  const auto text = fmt::format(
    "{} {} {} {} {} {} {} {} {} {} {} {}", product_name(), facts.model_name, facts.identity,
    facts.max_model_len, facts.kernels, static_cast<int>(engine.numeric),
    static_cast<int>(engine.sampling_policy), static_cast<int>(engine.acceptance),
    engine.acceptance == acceptance_setting::rejection ? engine.num_drafts : 0,
    static_cast<int>(engine.replay), engine.replay_keep_tokens, engine.stop_in_reasoning);
  return "di_" + fingerprint().add(text).text();
}

}  // namespace

model_info model_info_of(const node_facts& facts, const engine_settings& settings,
                         std::int32_t vocab_size, std::int64_t loaded_at) {
  model_info out;
  out.names = settings.model.served_names;
  if (out.names.empty()) out.names.push_back(facts.model_name);
  out.max_model_len = facts.max_model_len;
  out.vocab_size = vocab_size;
  out.num_kv_blocks = facts.num_kv_blocks;
  out.block_size = facts.block_size;
  out.replicas = facts.replicas;
  out.capacity = settings.engine.max_num_seqs * std::max(1, facts.replicas);
  out.device = facts.device_name;
  out.kernels = facts.kernels;
  out.fingerprint = fingerprint_of(facts, settings);
  out.identity = facts.identity;
  out.loaded_at = loaded_at;
  return out;
}

result<std::string> node_desk::answer(std::string_view verb, std::string_view bytes) const {
  if (verb == verb::model) return to_wire(model_);
  if (verb == verb::config_get) return to_wire(text_reply{config_->json()});
  if (verb == verb::tokenize) return tokenize(bytes);
  if (verb == verb::detokenize) return detokenize(bytes);
  if (verb == verb::render) return render(bytes);
  return fail(errc::not_found, fmt::format("verb: found '{}', which is none", verb), "verb");
}

bool node_desk::is_long(std::string_view verb, std::size_t bytes) {
  const bool is_text = verb == verb::tokenize || verb == verb::detokenize || verb == verb::render;
  return is_text && bytes > long_text_bytes;
}

token_list node_desk::list_of(std::vector<token_id> ids, std::string text) const {
  token_list out;
  out.pieces.reserve(ids.size());
  for (const auto id : ids) out.pieces.emplace_back(intake_->words().bytes_of(id));
  out.ids = std::move(ids);
  out.text = std::move(text);
  return out;
}

result<std::string> node_desk::tokenize(std::string_view bytes) const {
  DI_TRY(const auto asked, from_wire<tokenize_call>(bytes));
  if (asked.chat_json) return render(bytes);
  if (!asked.text)
    return fail(errc::invalid_argument, "text: found nothing, expected a text or a chat", "text");
  std::vector<token_id> ids;
  if (asked.add_special) ids.push_back(intake_->facts().bos);
  intake_->words().encode_into(ids, *asked.text, specials::on);
  return to_wire(list_of(std::move(ids), {}));
}

result<std::string> node_desk::detokenize(std::string_view bytes) const {
  DI_TRY(const auto asked, from_wire<token_list>(bytes));
  DI_TRY_VOID(check_known_ids(asked.ids, intake_->facts().vocab_size, "tokens"));
  text_reply out;
  out.text = deepinfer::detokenize(intake_->words(), asked.ids, {.skip_special = false});
  return to_wire(out);
}

result<std::string> node_desk::render(std::string_view bytes) const {
  DI_TRY(const auto asked, from_wire<tokenize_call>(bytes));
  if (!asked.chat_json)
    return fail(errc::invalid_argument, "chat: found nothing, expected a chat request", "chat");
  DI_TRY(const auto chat, intake_->read_chat(*asked.chat_json));
  const auto prompt = render_chat(chat.conversation, intake_->facts().variant);
  DI_TRY(auto ids, encode_prompt(prompt, intake_->words()));
  return to_wire(list_of(std::move(ids), prompt.text));
}

}  // namespace deepinfer
