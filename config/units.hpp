/// Numbers with units as people write them: durations (500ms, 30s, 2m, 1h), those of a virtual
/// clock (500us, 2ms, 1s: whole microseconds) and sizes (8GiB, 512MB).
///
/// Fractions are allowed (1.5GiB), a space before the unit too. KiB is 1024, kB 1000; a bare number
/// is bytes, but never a duration (0 excepted). Errors: `invalid_argument` with what was found and
/// expected; the caller adds the place.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/base/error.hpp"

namespace deepinfer {

result<std::int64_t> parse_milliseconds(std::string_view text);
result<std::int64_t> parse_microseconds(std::string_view text);
result<std::int64_t> parse_bytes(std::string_view text);

/// Shortest exact form: 90s, 1500ms, 2m; 10100us, 0us; 8GiB, 1000000.
std::string duration_text(std::int64_t milliseconds);
std::string microseconds_text(std::int64_t microseconds);
std::string size_text(std::int64_t bytes);

}  // namespace deepinfer
