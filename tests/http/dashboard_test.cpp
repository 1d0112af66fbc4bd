#include <doctest/doctest.h>

#include "runtime/base/file.hpp"
#include "runtime/http/dashboard.hpp"

using namespace deepinfer;

TEST_CASE("the binary brings the dashboard along, byte for byte") {
  const auto file = read_file(std::string(DI_SOURCE_DIR) + "/runtime/http/dashboard.html");
  REQUIRE(file.has_value());
  const bool is_same = dashboard_page() == *file;
  CHECK_MESSAGE(is_same, "the page in the binary is not runtime/http/dashboard.html");
  CHECK(dashboard_page().starts_with("<!doctype html>"));
  CHECK(dashboard_page().ends_with("</html>\n"));
  CHECK(dashboard_page().size() < 100'000);
}
