#include "messages/wire_fields.hpp"

#include <algorithm>

#include "messages/api.pb.h"
#include "runtime/base/check.hpp"

namespace deepinfer::wire_fields {

static_assert(static_cast<int>(finish_reason::stop) == v1::FINISH_REASON_STOP);
static_assert(static_cast<int>(finish_reason::length) == v1::FINISH_REASON_LENGTH);
static_assert(static_cast<int>(finish_reason::abort) == v1::FINISH_REASON_ABORT);
static_assert(static_cast<int>(finish_reason::error) == v1::FINISH_REASON_ERROR);
static_assert(static_cast<int>(finish_reason::resource) == v1::FINISH_REASON_RESOURCE);
static_assert(static_cast<int>(finish_reason::tool_calls) == v1::FINISH_REASON_TOOL_CALLS);
static_assert(static_cast<int>(health_state::failed) == v1::HEALTH_STATE_FAILED);

bool is_utf8(const std::string& text) {
  return google::protobuf::internal::IsStructurallyValidUTF8(text.data(),
                                                             static_cast<int>(text.size()));
}

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

void put(Message& m, const FieldDescriptor& f, bool v) {
  m.GetReflection()->SetBool(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, std::int32_t v) {
  m.GetReflection()->SetInt32(&m, &f, v);
}
void put(Message& m, const FieldDescriptor& f, std::uint32_t v) {
  m.GetReflection()->SetUInt32(&m, &f, v);
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
void take(const Message& m, const FieldDescriptor& f, std::uint32_t& v) {
  v = m.GetReflection()->GetUInt32(m, &f);
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

void put(Message& m, const FieldDescriptor&, const biases& list) {
  auto& map = *dynamic_cast<v1::SamplingParams&>(m).mutable_logit_bias();
  for (const auto& [id, bias] : list) map[id] = bias;
}
void take(const Message& m, const FieldDescriptor&, biases& list) {
  const auto& map = dynamic_cast<const v1::SamplingParams&>(m).logit_bias();
  list.assign(map.begin(), map.end());
  std::sort(list.begin(), list.end());
}

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

}  // namespace deepinfer::wire_fields
