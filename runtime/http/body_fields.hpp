/// Typed access to the fields of a JSON object of a request. `null` counts as absent.
///
/// A field of the wrong type or out of its range is invalid_argument; the message and `param` name
/// it by its path ("stream_options.include_usage"), say what was found and what was expected.
/// Fields that nobody has asked for are `unknown`.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

class body_fields {
public:
  /// `object` must outlive this. `path` is "" for the body itself.
  explicit body_fields(const json::object& object, std::string path = {})
    : object_(&object),
      path_(std::move(path)) {}

  /// The value, or null where the field is absent or null.
  const json::value* find(std::string_view name);

  result<std::optional<std::string>> text(std::string_view name);
  result<bool> flag(std::string_view name, bool otherwise);
  result<std::optional<double>> number(std::string_view name, double least, double most);
  result<std::optional<double>> positive(std::string_view name, double most);  ///< above 0
  result<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t least,
                                              std::int64_t most);
  /// Where the caller knows the upper bound later; what passes every bound is the largest number.
  result<std::optional<std::int64_t>> whole(std::string_view name, std::int64_t least);
  result<std::optional<body_fields>> object(std::string_view name);
  result<std::vector<std::string>> texts(std::string_view name, std::size_t most);
  result<std::vector<token_id>> ids(std::string_view name, std::size_t most);

  const json::object& whole() const { return *object_; }
  std::string path(std::string_view name) const;
  std::vector<std::string> unknown() const;

  tl::unexpected<error> failure(std::string_view name, std::string_view what) const;
  tl::unexpected<error> wrong(std::string_view name, const json::value& found,
                              std::string_view expected) const;

private:
  const json::object* object_;
  std::string path_;
  std::set<std::string, std::less<>> known_;
};

/// A body of bytes as JSON. Errors: invalid_utf8 (the byte), invalid_json (the place),
/// json_too_deep, invalid_argument (no object).
result<json::value> parse_body(std::string_view body, std::size_t max_depth);

/// What a value looks like in a message; a long one by its kind.
std::string shown_value(const json::value& value);

/// A token id, where `value` is one.
std::optional<token_id> token_id_of(const json::value& value);

}  // namespace deepinfer
