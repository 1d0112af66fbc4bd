#include <doctest/doctest.h>

#include "actors/actor_host.hpp"
#include "actors/tls_context.hpp"
#include "tests/remote/authority.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

actor_settings settings_of(const authority& ours) {
  actor_settings out;
  out.tls_certificate = ours.file("node.crt");
  out.tls_key = ours.file("node.key");
  out.tls_ca = ours.file("ca.crt");
  return out;
}

/// The error names the setting and its file, what was found and what was expected.
void check_refused(const actor_settings& settings, const std::string& setting,
                   const std::string& path, const std::string& found) {
  const auto opened = open_tls_context(settings);
  REQUIRE_MESSAGE(!opened, found);
  const auto& why = opened.error();
  INFO(why.message);
  CHECK(why.code == errc::bad_config);
  CHECK(why.param == setting);
  CHECK(why.message.find(setting + ": " + path) == 0);
  CHECK(why.message.find(found) != std::string::npos);
  CHECK(why.message.find(", expected ") != std::string::npos);
  CHECK(!actor_host::open(settings));
}

}  // namespace

TEST_CASE("the files of TLS are taken as operators have them") {
  const authority ours;
  auto settings = settings_of(ours);
  CHECK(open_tls_context(settings).value() != nullptr);
  ours.run("cat node.crt ca.crt > chain.pem");
  settings.tls_certificate = ours.file("chain.pem");
  CHECK(open_tls_context(settings).has_value());
  ours.run("cat node.key node.crt ca.crt > all.pem");
  settings.tls_certificate = settings.tls_key = settings.tls_ca = ours.file("all.pem");
  CHECK(open_tls_context(settings).has_value());
  ours.run("openssl pkcs8 -topk8 -nocrypt -in node.key -out node.pkcs8");
  settings.tls_key = ours.file("node.pkcs8");
  CHECK(open_tls_context(settings).has_value());
  CHECK(open_tls_context({}).value() == nullptr);
}

TEST_CASE("a key that can't be used is refused when the node starts") {
  const authority ours;
  auto settings = settings_of(ours);
  ours.run("openssl ec -in node.key -aes256 -passout pass:secret -out locked.key");
  ours.run("openssl pkcs8 -topk8 -in node.key -passout pass:secret -out locked.pkcs8");
  ours.run("openssl ecparam -name prime256v1 -genkey -noout -out other.key");
  ours.run("openssl genrsa -out rsa.key 2048");
  ours.run("head -c 60 node.key > half.key");
  ours.run("sed 's/^[^-].*/bm90IGEga2V5/' node.key > damaged.key");
  const std::pair<const char*, const char*> cases[] = {
    {"locked.key", "found one that is protected by a passphrase"},
    {"locked.pkcs8", "found one that is protected by a passphrase"},
    {"other.key", "found the key of another certificate than "},
    {"rsa.key", "found the key of another certificate than "},
    {"half.key", "found a private key that can't be read"},
    {"damaged.key", "found a private key that can't be read"},
    {"node.crt", "found no private key"},
    {"missing.key", "No such file"}};
  for (const auto& [file, found] : cases) {
    settings.tls_key = ours.file(file);
    check_refused(settings, "actor.tls_key", settings.tls_key, found);
  }
}

TEST_CASE("certificates that can't be used are refused when the node starts") {
  const authority ours;
  ours.run("sed 's/^[^-].*/bm90IGEgY2VydGlmaWNhdGU=/' node.crt > damaged.crt");
  ours.run("cat node.crt damaged.crt > chain.crt");
  ours.run("touch empty.crt");
  ours.run("mkdir folder");
  const std::pair<const char*, const char*> cases[] = {
    {"damaged.crt", "found a certificate that can't be read"},
    {"chain.crt", "found a certificate that can't be read"},
    {"node.key", "found no certificate"},
    {"empty.crt", "found no certificate"},
    {"folder", "not a regular file"},
    {"missing.crt", "No such file"}};
  for (const auto& [file, found] : cases) {
    auto settings = settings_of(ours);
    settings.tls_certificate = ours.file(file);
    check_refused(settings, "actor.tls_certificate", ours.file(file), found);
    settings = settings_of(ours);
    settings.tls_ca = ours.file(file);
    check_refused(settings, "actor.tls_ca", ours.file(file), found);
  }
}
