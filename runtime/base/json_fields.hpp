/// Typed access to the fields of a JSON object of a request. `null` counts as absent.
///
/// A field of the wrong type or out of its range is invalid_argument; the message and `param` name
/// it by its path ("tools[0].function.name"), say what was found (at most 100 bytes of it) and what
/// was expected. Fields that nobody has asked for are `unknown`.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

class json_fields {
public:
  /// `object` must outlive this and all that comes from it, and stay as it is. `path` is "" for the
  /// body itself.
  explicit json_fields(const json::object& object, std::string path = {})
    : object_(&object),
      path_(std::move(path)) {}
  explicit json_fields(const json::object&& object, std::string path = {}) = delete;

  /// The value, or null where the field is absent or null.
  const json::value* find(std::string_view name);
  /// The value, also where it is null, or null where the field is absent.
  const json::value* given(std::string_view name);

  result<std::optional<std::string>> text(std::string_view name);
  result<bool> flag(std::string_view name, bool otherwise);
  result<std::optional<double>> number(std::string_view name, double least, double most);
  result<std::optional<double>> positive(std::string_view name, double most);  ///< above 0
  result<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t least,
                                              std::int64_t most);
  /// Where the caller knows the upper bound later; what passes every bound is the largest number.
  result<std::optional<std::int64_t>> whole(std::string_view name, std::int64_t least);
  result<std::optional<json_fields>> object(std::string_view name);

  /// Fields that must be there; null is of the wrong type.
  result<std::string> required_text(std::string_view name);
  result<json_fields> required_object(std::string_view name);

  /// A list of objects, of strings, of token ids; empty where the field is absent.
  result<std::vector<json_fields>> objects(std::string_view name, std::size_t most);
  result<std::vector<std::string>> texts(std::string_view name, std::size_t most);
  result<std::vector<token_id>> ids(std::string_view name, std::size_t most);

  /// The token ids of `items`, a list that was found at `place` in this object.
  result<std::vector<token_id>> ids_of(const json::array& items, std::string_view place) const;

  const json::object& entries() const { return *object_; }
  std::string path(std::string_view name) const;
  std::vector<std::string> unknown() const;

  tl::unexpected<error> failure(std::string_view name, std::string_view what) const;
  tl::unexpected<error> wrong(std::string_view name, const json::value& found,
                              std::string_view expected) const;

private:
  /// Null where the field is absent. `kind` is what is expected of it.
  result<const json::array*> list(std::string_view name, std::size_t most, std::string_view kind);

  const json::object* object_;
  std::string path_;
  std::vector<bool> asked_;  ///< by place in the object; empty until one is found
};

/// What a value looks like in a message; a long one by its kind.
std::string shown_value(const json::value& value);

/// A token id as decimal text, the key of an object; nothing where it is none.
std::optional<token_id> token_id_of(std::string_view key);

}  // namespace deepinfer
