/// What this build is.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

std::string_view product_version();
std::string_view product_git();  ///< what git describes it as; "" where it was built without

/// {"version":..., "git":..., "compiler":...}
std::string product_version_json();

}  // namespace deepinfer
