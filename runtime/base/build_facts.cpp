#include "runtime/base/build_facts.hpp"

#ifndef DI_VERSION
#define DI_VERSION "0.0.0"
#endif
#ifndef DI_GIT_DESCRIBE
#define DI_GIT_DESCRIBE ""
#endif

namespace deepinfer {

std::string_view build_version() {
  return DI_VERSION;
}

std::string_view build_commit() {
  return DI_GIT_DESCRIBE;
}

std::string build_name() {
  std::string out(build_version());
  if (!build_commit().empty()) out += " (" + std::string(build_commit()) + ")";
  return out;
}

}  // namespace deepinfer
