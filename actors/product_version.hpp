/// What this build is.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

std::string_view product_version();
std::string_view product_git();  ///< what git describes it as; "" where it was built without

/// "0.1.0 (1a2b3c4)".
std::string product_name();

/// {"version":..., "git":..., "compiler":...}
std::string product_version_json();

}  // namespace deepinfer
