#include "messages/wire.hpp"

#include <charconv>
#include <concepts>

#include <fmt/format.h>

#include "messages/api.pb.h"
#include "messages/wire_fields.hpp"

namespace deepinfer {

using namespace wire_fields;

namespace {

/// Whether the whole of `text` is one number.
bool read_number(const std::string& text, std::uint64_t& out) {
  const auto* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end;
}

/// -1 in these fields of a struct means absent; their messages say so with presence.
void clear_absent(const sampling_params&, v1::SamplingParams& m) {
  if (m.max_tokens() < 0) m.clear_max_tokens();
  if (m.logprobs() < 0) m.clear_logprobs();
}
void clear_absent(const sequence_finish&, v1::Finish& m) {
  if (m.stop_bytes() < 0) m.clear_stop_bytes();
}
template <class Chunk>
requires std::same_as<Chunk, sequence_chunk> || std::same_as<Chunk, token_chunk>
void clear_absent(const Chunk& chunk, v1::TokenChunk& m) {
  if (chunk.finish) clear_absent(*chunk.finish, *m.mutable_finish());
}

void clear_absent(const chunk_list& list, v1::ChunkList& m) {
  for (int i = 0; i < m.chunks_size(); ++i)
    clear_absent(list.chunks[static_cast<std::size_t>(i)], *m.mutable_chunks(i));
}
void clear_absent(const sampling_request& sampling, v1::SamplingParams& m) {
  if (sampling.n == 1) m.clear_n();
}
void clear_absent(const generate_request& request, v1::GenerateRequest& m) {
  clear_absent(request.sampling, *m.mutable_sampling());
}

template <class Wire, described T>
Wire message_of(const T& object) {
  Wire m;
  write(m, object);
  if constexpr (requires { clear_absent(object, m); }) clear_absent(object, m);
  return m;
}

}  // namespace

std::string to_wire(const sampling_params& params) {
  return message_of<v1::SamplingParams>(params).SerializeAsString();
}
std::string to_wire(const usage_counts& usage) {
  return message_of<v1::Usage>(usage).SerializeAsString();
}
std::string to_wire(const sequence_finish& finish) {
  return message_of<v1::Finish>(finish).SerializeAsString();
}
std::string to_wire(const sequence_chunk& chunk) {
  return message_of<v1::TokenChunk>(chunk).SerializeAsString();
}

std::string to_wire(const sequence_request& request) {
  v1::GenerateRequest m;
  m.set_request_id(fmt::format("{}", request.sequence.value));
  m.set_priority(request.priority);
  if (request.cache_salt != 0) m.set_cache_salt(fmt::format("{}", request.cache_salt));
  auto& ids = *m.mutable_token_ids()->mutable_ids();
  if (request.prompt) ids.Assign(request.prompt->begin(), request.prompt->end());
  if (request.params) *m.mutable_sampling() = message_of<v1::SamplingParams>(*request.params);
  return m.SerializeAsString();
}

template <>
result<sampling_params> from_wire(std::string_view bytes) {
  return object_of<v1::SamplingParams, sampling_params>(bytes);
}
template <>
result<usage_counts> from_wire(std::string_view bytes) {
  return object_of<v1::Usage, usage_counts>(bytes);
}
template <>
result<sequence_finish> from_wire(std::string_view bytes) {
  return object_of<v1::Finish, sequence_finish>(bytes);
}
template <>
result<sequence_chunk> from_wire(std::string_view bytes) {
  return object_of<v1::TokenChunk, sequence_chunk>(bytes);
}

template <>
result<sequence_request> from_wire(std::string_view bytes) {
  DI_TRY(const v1::GenerateRequest m, parse<v1::GenerateRequest>(bytes));
  sequence_request request;
  const auto& id = m.request_id();
  if (!read_number(id, request.sequence.value))
    return fail(errc::invalid_argument,
                fmt::format("found '{}', expected the number of a sequence", id), "request_id");
  if (m.has_cache_salt() && !read_number(m.cache_salt(), request.cache_salt))
    return fail(errc::invalid_argument,
                fmt::format("found '{}', expected the number of a salt", as_utf8(m.cache_salt())),
                "cache_salt");
  if (!m.has_token_ids() || m.token_ids().ids().empty())
    return fail(errc::invalid_argument, "found no token ids, expected at least one", "token_ids");
  const auto& ids = m.token_ids().ids();
  request.prompt = std::make_shared<const std::vector<token_id>>(ids.begin(), ids.end());
  sampling_params params;
  read(m.sampling(), params);
  request.params = std::make_shared<const sampling_params>(std::move(params));
  request.priority = m.priority();
  return request;
}

std::string to_wire(const sampling_request& sampling) {
  return message_of<v1::SamplingParams>(sampling).SerializeAsString();
}
std::string to_wire(const tool_call_delta& delta) {
  return message_of<v1::ToolCallDelta>(delta).SerializeAsString();
}
std::string to_wire(const token_chunk& chunk) {
  return message_of<v1::TokenChunk>(chunk).SerializeAsString();
}
std::string to_wire(const node_stats& stats) {
  return message_of<v1::NodeStats>(stats).SerializeAsString();
}

std::string to_wire(const generate_request& request) {
  auto m = message_of<v1::GenerateRequest>(request);
  if (request.text && !is_utf8(*request.text)) m.set_text_bytes(*request.text);
  // The last of several would win on the wire, and a mended chat would ask something else.
  const int inputs =
    int{request.text.has_value()} + int{request.ids.has_value()} + int{request.chat.has_value()};
  if (inputs != 1 || (request.chat && !is_utf8(*request.chat))) m.clear_input();
  return m.SerializeAsString();
}

template <>
result<sampling_request> from_wire(std::string_view bytes) {
  return object_of<v1::SamplingParams, sampling_request>(bytes);
}
template <>
result<tool_call_delta> from_wire(std::string_view bytes) {
  return object_of<v1::ToolCallDelta, tool_call_delta>(bytes);
}
template <>
result<token_chunk> from_wire(std::string_view bytes) {
  return object_of<v1::TokenChunk, token_chunk>(bytes);
}
template <>
result<node_stats> from_wire(std::string_view bytes) {
  return object_of<v1::NodeStats, node_stats>(bytes);
}

template <>
result<generate_request> from_wire(std::string_view bytes) {
  DI_TRY(const v1::GenerateRequest m, parse<v1::GenerateRequest>(bytes));
  generate_request request;
  read(m, request);
  if (m.has_text_bytes()) request.text = m.text_bytes();
  return request;
}

std::string to_wire(const error& it) {
  v1::Error m;
  m.set_code(std::string(name_of(it.code)));
  m.set_message(as_utf8(it.message));
  m.set_param(as_utf8(it.param));
  return m.SerializeAsString();
}
template <>
result<error> from_wire(std::string_view bytes) {
  DI_TRY(const v1::Error m, parse<v1::Error>(bytes));
  return error{code_named(m.code()), m.message(), m.param()};
}

std::string to_wire(const node_health& it) {
  return message_of<v1::Health>(it).SerializeAsString();
}
template <>
result<node_health> from_wire(std::string_view bytes) {
  return object_of<v1::Health, node_health>(bytes);
}

std::string to_wire(const model_info& it) {
  return message_of<v1::ModelInfo>(it).SerializeAsString();
}
template <>
result<model_info> from_wire(std::string_view bytes) {
  return object_of<v1::ModelInfo, model_info>(bytes);
}

std::string to_wire(const tokenize_call& it) {
  return message_of<v1::TokenizeCall>(it).SerializeAsString();
}
template <>
result<tokenize_call> from_wire(std::string_view bytes) {
  return object_of<v1::TokenizeCall, tokenize_call>(bytes);
}

std::string to_wire(const token_list& it) {
  return message_of<v1::Tokens>(it).SerializeAsString();
}
template <>
result<token_list> from_wire(std::string_view bytes) {
  return object_of<v1::Tokens, token_list>(bytes);
}

std::string to_wire(const text_reply& it) {
  return message_of<v1::TextReply>(it).SerializeAsString();
}
template <>
result<text_reply> from_wire(std::string_view bytes) {
  return object_of<v1::TextReply, text_reply>(bytes);
}

std::string to_wire(const number_call& it) {
  return message_of<v1::NumberCall>(it).SerializeAsString();
}
template <>
result<number_call> from_wire(std::string_view bytes) {
  return object_of<v1::NumberCall, number_call>(bytes);
}

std::string to_wire(const config_change& it) {
  return message_of<v1::ConfigChange>(it).SerializeAsString();
}
template <>
result<config_change> from_wire(std::string_view bytes) {
  return object_of<v1::ConfigChange, config_change>(bytes);
}

std::string to_wire(const request_info& it) {
  return message_of<v1::RequestInfo>(it).SerializeAsString();
}
template <>
result<request_info> from_wire(std::string_view bytes) {
  return object_of<v1::RequestInfo, request_info>(bytes);
}

std::string to_wire(const request_list& it) {
  return message_of<v1::RequestList>(it).SerializeAsString();
}
template <>
result<request_list> from_wire(std::string_view bytes) {
  return object_of<v1::RequestList, request_list>(bytes);
}

std::string to_wire(const chunk_list& it) {
  return message_of<v1::ChunkList>(it).SerializeAsString();
}
template <>
result<chunk_list> from_wire(std::string_view bytes) {
  return object_of<v1::ChunkList, chunk_list>(bytes);
}

std::string to_wire(const hello_reply& it) {
  return message_of<v1::HelloReply>(it).SerializeAsString();
}
template <>
result<hello_reply> from_wire(std::string_view bytes) {
  return object_of<v1::HelloReply, hello_reply>(bytes);
}

std::string to_wire(const join_call& it) {
  return message_of<v1::JoinCall>(it).SerializeAsString();
}
template <>
result<join_call> from_wire(std::string_view bytes) {
  return object_of<v1::JoinCall, join_call>(bytes);
}

std::string to_wire(const node_entry& it) {
  return message_of<v1::NodeEntry>(it).SerializeAsString();
}
template <>
result<node_entry> from_wire(std::string_view bytes) {
  return object_of<v1::NodeEntry, node_entry>(bytes);
}

std::string to_wire(const node_list& it) {
  return message_of<v1::NodeList>(it).SerializeAsString();
}
template <>
result<node_list> from_wire(std::string_view bytes) {
  return object_of<v1::NodeList, node_list>(bytes);
}

}  // namespace deepinfer
