/// Structs as Protobuf bytes (messages/api.proto), both ways.
///
/// `to_wire` never fails; `from_wire` gives `invalid_argument` for bytes that are no such message.
/// A field that is absent on the wire takes the struct's default, and a field at its default may be
/// absent. Unknown fields of newer senders are ignored. Values are not checked here: that is the
/// gateway's part. `logit_bias` comes back in rising order of ids; bytes of a `message` that are
/// not UTF-8 are replaced, since Protobuf allows none.
#pragma once

#include <string>
#include <string_view>

#include "messages/request.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

std::string to_wire(const sampling_params& params);    ///< SamplingParams
std::string to_wire(const usage_counts& usage);        ///< Usage
std::string to_wire(const sequence_finish& finish);    ///< Finish
std::string to_wire(const sequence_chunk& chunk);      ///< TokenChunk
std::string to_wire(const sequence_request& request);  ///< GenerateRequest with token ids

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

}  // namespace deepinfer
