#include "runtime/http/api_keys.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "runtime/base/secret.hpp"
#include "runtime/base/trim.hpp"

namespace deepinfer {
namespace {

bool is_bearer(std::string_view scheme) {
  constexpr std::string_view word = "bearer";
  return std::equal(scheme.begin(), scheme.end(), word.begin(), word.end(),
                    [](char a, char b) { return (a | 0x20) == b; });
}

/// The key that a request shows.
result<std::string> given_key(const http_request& request) {
  const auto refuse = [](const char* why) { return fail(errc::unauthenticated, why); };
  if (request.count("authorization") > 1 || request.count("x-api-key") > 1)
    return refuse("API key: the header comes more than once");
  if (const auto* header = request.header("authorization")) {
    const auto whole = trimmed(*header);
    const auto space = whole.find_first_of(" \t");
    if (space == std::string_view::npos || !is_bearer(whole.substr(0, space)))
      return refuse("Authorization: expected \"Bearer\" and an API key");
    return std::string(trimmed(whole.substr(space)));
  }
  if (const auto* header = request.header("x-api-key")) return std::string(trimmed(*header));
  return refuse("an API key is needed: \"Authorization: Bearer KEY\" or \"x-api-key: KEY\"");
}

}  // namespace

result<void> api_keys::add(std::string_view entry) {
  const auto listed = split_key(entry);
  named_key it;
  it.name =
    listed.name.empty() ? fmt::format("key-{}", keys_.size() + 1) : std::string(listed.name);
  it.key = std::string(trimmed(listed.key));
  if (it.key.empty()) return fail(errc::bad_config, "API key: an empty key lets everyone in");
  keys_.push_back(std::move(it));
  return {};
}

result<api_keys> api_keys::read(const std::vector<std::string>& listed,
                                std::string_view file_text) {
  api_keys out;
  for (const auto& entry : listed) DI_TRY_VOID(out.add(trimmed(entry)));
  for (const auto& entry : key_entries(file_text)) DI_TRY_VOID(out.add(entry));
  return out;
}

result<std::string> api_keys::tenant_of(const http_request& request) const {
  if (keys_.empty()) return std::string();
  DI_TRY(const auto given, given_key(request));
  const named_key* found = nullptr;
  for (const auto& it : keys_)  // all of them: the time does not tell which
    if (same_secret(it.key, given) && !found) found = &it;
  if (!found) return fail(errc::unauthenticated, "the API key is not one of this server's");
  return found->name;
}

}  // namespace deepinfer
