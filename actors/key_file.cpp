#include "actors/key_file.hpp"

#include "runtime/base/file.hpp"

namespace deepinfer {

result<std::string> key_file_text(const server_settings& settings) {
  if (settings.api_key_file.empty()) return std::string();
  auto text = read_file(settings.api_key_file);
  if (!text) return fail(errc::bad_config, "server.api_key_file: " + text.error().message);
  return text;
}

}  // namespace deepinfer
