#include "runtime/http/dashboard.hpp"

namespace deepinfer {

std::string_view dashboard_page() {
  static constexpr std::string_view page =
#include "runtime/http/dashboard.html.inc"
    ;
  return page;
}

}  // namespace deepinfer
