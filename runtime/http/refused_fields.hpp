/// Fields of other servers' requests that ask for what is not there: a constraint on the answer, a
/// way to decode, more than text. To ignore one would give an answer that looks as if it held.
#pragma once

#include <string_view>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/base/json_fields.hpp"

namespace deepinfer {

struct refused_field {
  std::string_view name;
  std::string_view why;
  json::array accepted;  ///< the values that ask for nothing
};

const std::vector<refused_field>& refused_fields();

/// Of a chat or a completion. Errors: invalid_argument, `param` is the field.
result<void> refuse_fields(json_fields& body);

}  // namespace deepinfer
