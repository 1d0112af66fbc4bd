/// A port of this machine that is taken for as long as this lives.
#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "runtime/base/check.hpp"

namespace deepinfer::test {

class taken_port {
public:
  taken_port() : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* any = reinterpret_cast<sockaddr*>(&address);
    DI_CHECK(::bind(socket_, any, size) == 0 && ::listen(socket_, 1) == 0 &&
               ::getsockname(socket_, any, &size) == 0,
             "no port: errno {}", errno);
    number_ = ntohs(address.sin_port);
  }
  taken_port(const taken_port&) = delete;
  taken_port& operator=(const taken_port&) = delete;
  ~taken_port() { ::close(socket_); }

  std::uint16_t number() const { return number_; }
  std::string text() const { return std::to_string(number_); }

private:
  int socket_;
  std::uint16_t number_ = 0;
};

}  // namespace deepinfer::test
