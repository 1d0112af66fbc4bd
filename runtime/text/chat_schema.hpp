/// JSON Schema as requests carry it: is it one, and what `strict` makes of it.
///
/// The check knows the keywords of draft 2020-12 whose values have a fixed form; keywords it does
/// not know are let pass, as the draft demands. References must point into the same document.
#pragma once

#include <string>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// Error: invalid_argument with the place inside of the schema.
result<void> check_schema(const json::value& schema);

/// `strict`: every object gets "additionalProperties": false and all its properties are required.
/// Errors (invalid_argument): a schema without `type`, `anyOf` or `$ref`; an object without
/// properties (but for `empty_allowed` at the top); additionalProperties other than false; a
/// `required` that is not all properties; a top level that is not an object.
result<json::value> strict_schema(const json::value& schema, bool empty_allowed);

}  // namespace deepinfer
