#include "actors/product_version.hpp"

#include "runtime/base/json.hpp"

#ifndef DI_VERSION
#define DI_VERSION "0.0.0"
#endif
#ifndef DI_GIT_DESCRIBE
#define DI_GIT_DESCRIBE ""
#endif

namespace deepinfer {

std::string_view product_version() {
  return DI_VERSION;
}

std::string_view product_git() {
  return DI_GIT_DESCRIBE;
}

std::string product_name() {
  std::string out(product_version());
  if (!product_git().empty()) out += " (" + std::string(product_git()) + ")";
  return out;
}

std::string product_version_json() {
  return to_text(json::object{
    {"version", product_version()}, {"git", product_git()}, {"compiler", "g++ " __VERSION__}});
}

}  // namespace deepinfer
