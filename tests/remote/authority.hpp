/// An authority of its own and a certificate of it, as an operator would make them: ca.crt,
/// node.crt and node.key in a folder of their own.
#pragma once

#include <doctest/doctest.h>

#include <cstdlib>
#include <string>

#include "actors/client.hpp"
#include "tests/support/temp_directory.hpp"

namespace deepinfer::test {

class authority {
public:
  authority() {
    run("openssl ecparam -name prime256v1 -genkey -noout -out ca.key");
    run("openssl req -x509 -new -key ca.key -subj /CN=authority -days 2 -out ca.crt");
    run("openssl ecparam -name prime256v1 -genkey -noout -out node.key");
    run("openssl req -new -key node.key -subj /CN=node -out node.csr");
    run("openssl x509 -req -in node.csr -CA ca.crt -CAkey ca.key -CAcreateserial -days 2 "
        "-out node.crt");
  }

  const std::string& path() const { return files_.path(); }
  std::string file(const std::string& name) const { return files_.file(name); }
  const temp_directory& files() const { return files_; }

  /// In the folder of the files.
  void run(const std::string& command) const {
    const auto line = "cd " + files_.path() + " && " + command + " 2>/dev/null";
    REQUIRE_MESSAGE(std::system(line.c_str()) == 0, command);
  }

  client_options to(std::uint16_t port) const {
    client_options out;
    out.port = port;
    out.connect_timeout = std::chrono::seconds(20);
    out.connection_timeout = std::chrono::seconds(20);
    out.tls_certificate = files_.file("node.crt");
    out.tls_key = files_.file("node.key");
    out.tls_ca = files_.file("ca.crt");
    return out;
  }

private:
  temp_directory files_;
};

}  // namespace deepinfer::test
