#include "messages/wire.hpp"

#include <algorithm>
#include <charconv>
#include <concepts>

#include <fmt/format.h>

#include "messages/api.pb.h"
#include "messages/describe.hpp"
#include "runtime/base/check.hpp"

namespace deepinfer {

namespace pb = google::protobuf;
using pb::FieldDescriptor;
using pb::Message;

namespace {

static_assert(static_cast<int>(finish_reason::stop) == v1::FINISH_REASON_STOP);
static_assert(static_cast<int>(finish_reason::length) == v1::FINISH_REASON_LENGTH);
static_assert(static_cast<int>(finish_reason::abort) == v1::FINISH_REASON_ABORT);
static_assert(static_cast<int>(finish_reason::error) == v1::FINISH_REASON_ERROR);
static_assert(static_cast<int>(finish_reason::resource) == v1::FINISH_REASON_RESOURCE);
static_assert(static_cast<int>(finish_reason::tool_calls) == v1::FINISH_REASON_TOOL_CALLS);
static_assert(static_cast<int>(health_state::failed) == v1::HEALTH_STATE_FAILED);

bool is_utf8(const std::string& text) {
  return pb::internal::IsStructurallyValidUTF8(text.data(), static_cast<int>(text.size()));
}

/// Protobuf strings are UTF-8; whatever else a message quotes is shown as question marks.
std::string as_utf8(std::string text) {
  if (!is_utf8(text))
    std::replace_if(
      text.begin(), text.end(), [](char c) { return (c & 0x80) != 0; }, '?');
  return text;
}

errc code_named(std::string_view name) {
  for (int i = 0; i <= static_cast<int>(errc::io_failed); ++i)
    if (name_of(static_cast<errc>(i)) == name) return static_cast<errc>(i);
  return errc::internal;  // a code of a newer sender
}

// One `put` and one `take` per type of field. `m` is the message, `f` the field of the same name.

void put(Message& m, const FieldDescriptor& f, bool v) {
  m.GetReflection()->SetBool(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, std::int32_t v) {
  m.GetReflection()->SetInt32(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, std::int64_t v) {
  m.GetReflection()->SetInt64(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, std::uint64_t v) {
  m.GetReflection()->SetUInt64(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, float v) {
  m.GetReflection()->SetFloat(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, double v) {
  m.GetReflection()->SetDouble(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, const std::string& v) {
  const bool is_text = f.type() == FieldDescriptor::TYPE_STRING;
  m.GetReflection()->SetString(&m, &f, is_text ? as_utf8(v) : v);
}
void put(Message& m, const FieldDescriptor& f, seq_id v) {
  put(m, f, v.value);
}
void put(Message& m, const FieldDescriptor& f, finish_reason v) {
  m.GetReflection()->SetEnumValue(&m, &f, static_cast<int>(v));
}
void put(Message& m, const FieldDescriptor& f, health_state v) {
  m.GetReflection()->SetEnumValue(&m, &f, static_cast<int>(v));
}
void put(Message& m, const FieldDescriptor& f, errc v) {
  if (v != errc::ok) put(m, f, std::string(name_of(v)));
}

void take(const Message& m, const FieldDescriptor& f, bool& v) {
  v = m.GetReflection()->GetBool(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, std::int32_t& v) {
  v = m.GetReflection()->GetInt32(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, std::int64_t& v) {
  v = m.GetReflection()->GetInt64(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, std::uint64_t& v) {
  v = m.GetReflection()->GetUInt64(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, float& v) {
  v = m.GetReflection()->GetFloat(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, double& v) {
  v = m.GetReflection()->GetDouble(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, std::string& v) {
  v = m.GetReflection()->GetString(m, &f);
}
void take(const Message& m, const FieldDescriptor& f, seq_id& v) {
  take(m, f, v.value);
}
void take(const Message& m, const FieldDescriptor& f, finish_reason& v) {
  const int number = m.GetReflection()->GetEnumValue(m, &f);
  const bool is_known = number >= 0 && number <= static_cast<int>(finish_reason::tool_calls);
  v = is_known ? static_cast<finish_reason>(number) : finish_reason::error;
}
void take(const Message& m, const FieldDescriptor& f, health_state& v) {
  const int number = m.GetReflection()->GetEnumValue(m, &f);
  const bool is_known = number >= 0 && number <= static_cast<int>(health_state::failed);
  v = is_known ? static_cast<health_state>(number) : health_state::unspecified;
}
void take(const Message& m, const FieldDescriptor& f, errc& v) {
  const auto name = m.GetReflection()->GetString(m, &f);
  v = name.empty() ? errc::ok : code_named(name);
}

template <described T>
void write(Message& m, const T& object);
template <described T>
void read(const Message& m, T& object);

template <described T>
void put(Message& m, const FieldDescriptor& f, const T& v) {
  write(*m.GetReflection()->MutableMessage(&m, &f), v);
}
template <described T>
void take(const Message& m, const FieldDescriptor& f, T& v) {
  read(m.GetReflection()->GetMessage(m, &f), v);
}

template <class T>
void put(Message& m, const FieldDescriptor& f, const std::optional<T>& v) {
  if (v) put(m, f, *v);
}
template <class T>
void take(const Message& m, const FieldDescriptor& f, std::optional<T>& v) {
  take(m, f, v.emplace());
}

template <class T>
void put(Message& m, const FieldDescriptor& f, const std::vector<T>& list) {
  const auto& r = *m.GetReflection();
  for (const auto& v : list) {
    if constexpr (std::same_as<T, std::int32_t>)
      r.AddInt32(&m, &f, v);
    else if constexpr (std::same_as<T, float>)
      r.AddFloat(&m, &f, v);
    else if constexpr (std::same_as<T, std::string>)
      r.AddString(&m, &f, v);
    else
      write(*r.AddMessage(&m, &f), v);
  }
}
template <class T>
void take(const Message& m, const FieldDescriptor& f, std::vector<T>& list) {
  const auto& r = *m.GetReflection();
  for (int i = 0; i < r.FieldSize(m, &f); ++i) {
    if constexpr (std::same_as<T, std::int32_t>)
      list.push_back(r.GetRepeatedInt32(m, &f, i));
    else if constexpr (std::same_as<T, float>)
      list.push_back(r.GetRepeatedFloat(m, &f, i));
    else if constexpr (std::same_as<T, std::string>)
      list.push_back(r.GetRepeatedString(m, &f, i));
    else
      read(r.GetRepeatedMessage(m, &f, i), list.emplace_back());
  }
}

using biases = std::vector<std::pair<token_id, float>>;
void put(Message& m, const FieldDescriptor&, const biases& list) {
  auto& map = *dynamic_cast<v1::SamplingParams&>(m).mutable_logit_bias();
  for (const auto& [id, bias] : list) map[id] = bias;
}
void take(const Message& m, const FieldDescriptor&, biases& list) {
  const auto& map = dynamic_cast<const v1::SamplingParams&>(m).logit_bias();
  list.assign(map.begin(), map.end());
  std::sort(list.begin(), list.end());
}

using prompt_ids = std::optional<std::vector<token_id>>;
void put(Message& m, const FieldDescriptor& f, const prompt_ids& ids) {
  if (!ids) return;
  auto& list = dynamic_cast<v1::TokenIds&>(*m.GetReflection()->MutableMessage(&m, &f));
  list.mutable_ids()->Assign(ids->begin(), ids->end());
}
void take(const Message& m, const FieldDescriptor& f, prompt_ids& ids) {
  const auto& list = dynamic_cast<const v1::TokenIds&>(m.GetReflection()->GetMessage(m, &f)).ids();
  ids.emplace(list.begin(), list.end());
}

const FieldDescriptor& field_named(const Message& m, std::string_view name) {
  const auto* f = m.GetDescriptor()->FindFieldByName(std::string(name));
  DI_CHECK(f, "{} has no field {}", m.GetDescriptor()->full_name(), name);
  return *f;
}

template <described T>
void write(Message& m, const T& object) {
  for_each_field(
    object, [&](std::string_view name, const auto& value) { put(m, field_named(m, name), value); });
}

template <described T>
void read(const Message& m, T& object) {
  for_each_field(object, [&](std::string_view name, auto& value) {
    const auto& f = field_named(m, name);
    // Absent: the struct's default stays.
    if (f.has_presence() && !m.GetReflection()->HasField(m, &f)) return;
    take(m, f, value);
  });
}

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

template <class Wire, described T>
Wire message_of(const T& object) {
  Wire m;
  write(m, object);
  if constexpr (requires { clear_absent(object, m); }) clear_absent(object, m);
  return m;
}

template <class Wire>
result<Wire> parse(std::string_view bytes) {
  Wire m;
  const pb::LogSilencer quiet;  // the error says it, the library need not
  if (!m.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return fail(errc::invalid_argument, fmt::format("{} bytes that are not a {} message",
                                                    bytes.size(), Wire::descriptor()->name()));
  return m;
}

template <class Wire, described T>
result<T> object_of(std::string_view bytes) {
  DI_TRY(const Wire m, parse<Wire>(bytes));
  T object;
  read(m, object);
  return object;
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

}  // namespace deepinfer
