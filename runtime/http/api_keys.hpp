/// Who may use the API: keys with names. A key's name is the tenant; the key itself is never shown.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/http/http_server.hpp"

namespace deepinfer {

class api_keys {
public:
  /// Entries are KEY or NAME=KEY; a file holds one a line, `#` begins a comment. Keys without a
  /// name are key-1, key-2, ... Errors: bad_config (an empty key).
  static result<api_keys> read(const std::vector<std::string>& listed,
                               std::string_view file_text = {});

  bool empty() const { return keys_.empty(); }

  /// The name of the request's key: `Authorization: Bearer KEY` or `x-api-key: KEY`; "" where no
  /// keys are set. Error: unauthenticated.
  result<std::string> tenant_of(const http_request& request) const;

private:
  struct named_key {
    std::string name, key;
  };
  result<void> add(std::string_view entry);

  std::vector<named_key> keys_;
};

}  // namespace deepinfer
