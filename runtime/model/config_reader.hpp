/// Reads the keys of a JSON object with type and range checks, for model_config.cpp only.
///
/// A key may have a second spelling; giving both with different values is an error. The first error
/// latches, so that a parser is a plain list of keys followed by one look at the latch. Keys that
/// no read asked for can be listed afterwards.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

/// A key, its second spelling (may be empty).
struct config_key {
  std::string_view name;
  std::string_view other = {};
};

struct integer_range {
  std::int64_t least = 0;
  std::int64_t most = 0;
};

class config_reader {
public:
  /// `place` is the JSON path of `object`, "" for the document. `latch` is shared by the readers of
  /// one document. Both must outlive the reader.
  config_reader(const json::object& object, std::string place, std::optional<error>& latch)
    : object_(object),
      place_(std::move(place)),
      latch_(latch) {}

  /// The value of a key, or null if it is absent or JSON null.
  const json::value* find(config_key key);
  bool has(config_key key) { return find(key) != nullptr; }

  void integer(config_key key, std::int32_t& out, integer_range range) {
    if (const auto value = whole(key, range)) out = static_cast<std::int32_t>(*value);
  }
  void integer(config_key key, std::int64_t& out, integer_range range) {
    if (const auto value = whole(key, range)) out = *value;
  }
  void real(config_key key, double& out, double least, double most);
  void boolean(config_key key, bool& out);
  void text(config_key key, std::string& out);
  void integers(config_key key, std::vector<std::int32_t>& out, integer_range each,
                std::size_t most_entries);

  /// As the above, but an absent key leaves `out` as it is.
  template <class Out, class... Limits>
  void optional_integer(config_key key, Out& out, Limits... limits) {
    if (has(key)) integer(key, out, limits...);
  }
  void optional_real(config_key key, double& out, double least, double most) {
    if (has(key)) real(key, out, least, most);
  }
  void optional_boolean(config_key key, bool& out) {
    if (has(key)) boolean(key, out);
  }

  /// The key, if present, must hold one of `allowed`, each written as JSON text.
  void only(config_key key, std::initializer_list<std::string_view> allowed);
  /// As `only`, and the key must be present.
  void exactly(config_key key, std::string_view allowed);
  /// The object under a key, or null if absent.
  const json::object* child(config_key key);

  /// Marks a key as known without reading it.
  void ignore(std::string_view name) { asked_.insert(std::string(name)); }
  /// Keys of the object that nobody asked for, in file order.
  std::vector<std::string> unread() const;

  std::string path(std::string_view name) const {
    return place_.empty() ? std::string(name) : place_ + "." + std::string(name);
  }
  /// Latches "PATH: found FOUND, expected EXPECTED".
  void refuse(config_key key, const json::value* found, std::string_view expected);

private:
  std::optional<std::int64_t> whole(config_key key, integer_range range);
  std::optional<std::int64_t> whole_value(config_key key, const json::value& value,
                                          integer_range range);

  const json::object& object_;
  std::string place_;
  std::optional<error>& latch_;
  std::set<std::string, std::less<>> asked_;
};

/// JSON text of a value, cut after 60 bytes at a character's end.
std::string short_text(const json::value& value);

}  // namespace deepinfer
