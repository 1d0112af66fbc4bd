/// What this build is: its version, and the commit it was made from.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

/// "0.1.0".
std::string_view build_version();
/// As git describes the commit; empty where the sources are no clone.
std::string_view build_commit();
/// "0.1.0 (1a2b3c4)".
std::string build_name();

}  // namespace deepinfer
