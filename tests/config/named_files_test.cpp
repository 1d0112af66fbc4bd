#include <doctest/doctest.h>

#include <sys/stat.h>

#include "config/effective.hpp"
#include "tests/support/temp_directory.hpp"

using namespace deepinfer;

namespace {

result<void> check(std::map<std::string, std::vector<std::string>> values) {
  parsed_flags flags;
  flags.values = std::move(values);
  const auto config = make_effective({.file = {}, .environment = {}, .flags = flags});
  REQUIRE_MESSAGE(config, config.error().message);
  return check_files(*config);
}

}  // namespace

TEST_CASE("files that settings name are looked for where that is asked") {
  const auto missing = check({{"api-key-file", {"/no/such/keys"}}});
  REQUIRE(!missing);
  CHECK(missing.error().code == errc::bad_config);
  CHECK(missing.error().message.starts_with("server.api_key_file: /no/such/keys"));
  const temp_directory place;
  place.write("keys", "bob=k\n");
  CHECK(check({{"api-key-file", {place.file("keys")}}}));
}

TEST_CASE("a pipe is no file of TLS: nobody may ever write into it") {
  const temp_directory place;
  const auto pipe = place.file("pipe");
  REQUIRE(mkfifo(pipe.c_str(), 0600) == 0);
  const auto refused =
    check({{"actor-tls-certificate", {pipe}}, {"actor-tls-key", {pipe}}, {"actor-tls-ca", {pipe}}});
  REQUIRE(!refused);
  CHECK(refused.error().message == "actor.tls_certificate: " + pipe + ": not a regular file");
}
