/// Structs as Protobuf bytes (messages/api.proto), both ways.
///
/// `to_wire` never fails; `from_wire` gives `invalid_argument` for bytes that are no such message.
/// A field that is absent on the wire takes the struct's default, and a field at its default may be
/// absent. Unknown fields of newer senders are ignored. Values are not checked here: that is the
/// gateway's part. `logit_bias` comes back in rising order of ids. Protobuf allows no text that is
/// not UTF-8: what is for people to read (`message`, `text`, names) then gets a question mark for
/// every byte that is not ASCII, while a prompt's `text` travels as bytes, as it is.
/// A `generate_request` that sets none or several of its inputs, or a `chat` that is not UTF-8 and
/// so no JSON, is sent without an input, which the gateway refuses.
#pragma once

#include <string>
#include <string_view>

#include "messages/client.hpp"
#include "messages/cluster.hpp"
#include "messages/control.hpp"
#include "messages/request.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

std::string to_wire(const sampling_params& params);    ///< SamplingParams
std::string to_wire(const usage_counts& usage);        ///< Usage
std::string to_wire(const sequence_finish& finish);    ///< Finish
std::string to_wire(const sequence_chunk& chunk);      ///< TokenChunk
std::string to_wire(const sequence_request& request);  ///< GenerateRequest with token ids

std::string to_wire(const sampling_request& sampling);  ///< SamplingParams
std::string to_wire(const generate_request& request);   ///< GenerateRequest
std::string to_wire(const tool_call_delta& delta);      ///< ToolCallDelta
std::string to_wire(const token_chunk& chunk);          ///< TokenChunk
std::string to_wire(const node_stats& stats);           ///< NodeStats
std::string to_wire(const node_health& it);             ///< Health
std::string to_wire(const model_info& it);              ///< ModelInfo
std::string to_wire(const tokenize_call& it);           ///< TokenizeCall
std::string to_wire(const token_list& it);              ///< Tokens
std::string to_wire(const text_reply& it);              ///< TextReply
std::string to_wire(const number_call& it);             ///< NumberCall
std::string to_wire(const config_change& it);           ///< ConfigChange
std::string to_wire(const request_info& it);            ///< RequestInfo
std::string to_wire(const request_list& it);            ///< RequestList
std::string to_wire(const chunk_list& it);              ///< ChunkList
std::string to_wire(const error& it);                   ///< Error
std::string to_wire(const hello_reply& it);             ///< HelloReply
std::string to_wire(const join_call& it);               ///< JoinCall
std::string to_wire(const node_entry& it);              ///< NodeEntry
std::string to_wire(const node_list& it);               ///< NodeList

template <class T>
result<T> from_wire(std::string_view bytes);
template <>
result<sampling_params> from_wire(std::string_view bytes);
template <>
result<usage_counts> from_wire(std::string_view bytes);
template <>
result<sequence_finish> from_wire(std::string_view bytes);
template <>
result<sequence_chunk> from_wire(std::string_view bytes);
template <>
result<sequence_request> from_wire(std::string_view bytes);
template <>
result<sampling_request> from_wire(std::string_view bytes);
template <>
result<generate_request> from_wire(std::string_view bytes);
template <>
result<tool_call_delta> from_wire(std::string_view bytes);
template <>
result<token_chunk> from_wire(std::string_view bytes);
template <>
result<node_stats> from_wire(std::string_view bytes);

template <>
result<node_health> from_wire(std::string_view bytes);
template <>
result<model_info> from_wire(std::string_view bytes);
template <>
result<tokenize_call> from_wire(std::string_view bytes);
template <>
result<token_list> from_wire(std::string_view bytes);
template <>
result<text_reply> from_wire(std::string_view bytes);
template <>
result<number_call> from_wire(std::string_view bytes);
template <>
result<config_change> from_wire(std::string_view bytes);
template <>
result<request_info> from_wire(std::string_view bytes);
template <>
result<request_list> from_wire(std::string_view bytes);
template <>
result<chunk_list> from_wire(std::string_view bytes);
template <>
result<error> from_wire(std::string_view bytes);
template <>
result<hello_reply> from_wire(std::string_view bytes);
template <>
result<join_call> from_wire(std::string_view bytes);
template <>
result<node_entry> from_wire(std::string_view bytes);
template <>
result<node_list> from_wire(std::string_view bytes);

}  // namespace deepinfer
