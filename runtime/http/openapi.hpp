/// openapi.json: what every path takes and answers, from the table of paths (api_routes.hpp).
#pragma once

#include <cstdint>
#include <string>

namespace deepinfer {

/// OpenAPI 3.1, compact JSON. `vocab_size` 0: not known yet.
std::string openapi_text(std::int32_t max_n, std::int32_t vocab_size);

/// Components, as JSON text: schemas by name.
std::string openapi_schemas();

}  // namespace deepinfer
