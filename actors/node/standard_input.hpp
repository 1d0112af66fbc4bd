/// Standard input as a value, bytes as they come.
#pragma once

#include <string>

#include "runtime/base/error.hpp"

namespace deepinfer {

/// Everything up to the end of the input. Error io_failed.
result<std::string> read_standard_input();

}  // namespace deepinfer
