/// openapi.json: what every path takes and answers, from the table of paths (api_routes.hpp).
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

/// OpenAPI 3.1, compact JSON.
std::string openapi_text();

/// Components, as JSON text: schemas by name.
std::string_view openapi_schemas();

}  // namespace deepinfer
