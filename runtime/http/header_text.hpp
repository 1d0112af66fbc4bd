/// Words of HTTP headers: names in any case, lists of tokens, what may be sent, dates.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace deepinfer {

/// ASCII letters count alike in both cases.
bool equal_ignoring_case(std::string_view a, std::string_view b);

/// Whether a comma-separated list ("keep-alive, Upgrade") has that token, in any case.
bool has_token(std::string_view list, std::string_view token);

/// Whether `name` may stand before the colon of a header line.
bool is_header_name(std::string_view name);

/// Whether the first line ends with LF alone, which a parser may take for a part of the version.
bool has_bare_line_feed(std::string_view bytes);

/// Whether a line of this header goes on in the next: another server may read two (RFC 9112, 5.2).
bool has_folded_line(std::string_view header);

/// `value` with every control character but tab as a blank: no value can end its line and begin
/// another header.
std::string clean_header_value(std::string_view value);

/// "Sun, 06 Nov 1994 08:49:37 GMT"
std::string http_date(std::int64_t unix_seconds);

/// "Not Found" for 404; empty for a status without a usual phrase.
std::string_view reason_of(int status);

}  // namespace deepinfer
