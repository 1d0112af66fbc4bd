/// Typed access to the fields of a JSON object of a request. Private to the request reader.
///
/// `null` counts as absent. A field of the wrong type or out of its range is invalid_argument; the
/// message and `param` name it by its path ("tools[0].function.name"), say what was found (at most
/// 100 characters of it) and what was expected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/ids.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// `text` in quotes, cut after 100 bytes (whole characters).
std::string quoted(std::string_view text);

class field_reader {
public:
  /// `object` must outlive this. `path` is "" for the body itself.
  field_reader(const json::object& object, std::string path)
    : object_(&object),
      path_(std::move(path)) {}

  std::string path(std::string_view name) const;

  /// The value, or null where the field is absent or null.
  const json::value* find(std::string_view name) const;
  bool has(std::string_view name) const { return object_->contains(name); }  ///< also when null
  const json::value& at(std::string_view name) const { return object_->at(name); }
  const json::object& whole() const { return *object_; }

  result<std::optional<std::string>> string(std::string_view name) const;
  result<std::optional<bool>> boolean(std::string_view name) const;
  result<std::optional<double>> number(std::string_view name, double least, double most) const;
  result<std::optional<double>> positive(std::string_view name, double most) const;  ///< above 0
  result<std::optional<std::int64_t>> integer(std::string_view name, std::int64_t least,
                                              std::int64_t most) const;
  result<std::optional<field_reader>> object(std::string_view name) const;
  result<std::string> required_string(std::string_view name) const;
  result<field_reader> required_object(std::string_view name) const;

  /// A list of objects, of strings, of token ids; empty where the field is absent.
  result<std::vector<field_reader>> array(std::string_view name, std::size_t most) const;
  result<std::vector<std::string>> strings(std::string_view name, std::size_t most) const;
  result<std::vector<token_id>> token_ids(std::string_view name) const;

  /// A key of this object that must be a token id.
  result<token_id> key_as_token(std::string_view key) const;

  tl::unexpected<error> failure(std::string_view name, std::string_view what) const;
  tl::unexpected<error> wrong(std::string_view name, const json::value& found,
                              std::string_view expected) const;

private:
  result<const json::array*> list(std::string_view name, std::size_t most) const;

  const json::object* object_;
  std::string path_;
};

}  // namespace deepinfer
