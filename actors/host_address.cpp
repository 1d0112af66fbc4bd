#include "actors/host_address.hpp"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

namespace deepinfer {
namespace {

bool read_port(std::string_view text, std::uint16_t& out) {
  const auto* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end && out != 0;
}

tl::unexpected<error> malformed(std::string_view text) {
  return fail(errc::bad_config,
              fmt::format("found '{}', expected HOST:PORT with a port of 1 to 65535", text));
}

}  // namespace

result<host_address> parse_host_address(std::string_view text, std::uint16_t default_port) {
  host_address out;
  out.port = default_port;
  auto rest = text;
  if (text.starts_with('[')) {
    const auto end = text.find(']');
    if (end == std::string_view::npos) return malformed(text);
    out.host = text.substr(1, end - 1);
    rest = text.substr(end + 1);
    if (!rest.empty() && !rest.starts_with(':')) return malformed(text);
  } else if (std::count(text.begin(), text.end(), ':') > 1) {
    out.host = text;  // a bare IPv6 address has no port
    rest = {};
  } else {
    const auto colon = std::min(text.find(':'), text.size());
    out.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (out.host.empty()) return malformed(text);
  if (!rest.empty() && !read_port(rest.substr(1), out.port)) return malformed(text);
  return out;
}

std::string format_host_address(const host_address& at) {
  const bool is_v6 = at.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", at.host, at.port) : fmt::format("{}:{}", at.host, at.port);
}

result<void> check_host_known(const std::string& host) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const auto code = ::getaddrinfo(host.c_str(), nullptr, &wanted, &found);
  if (code == 0) {
    ::freeaddrinfo(found);
    return {};
  }
  return fail(errc::bad_config, fmt::format("the host '{}' is not known ({}), expected HOST:PORT",
                                            host, ::gai_strerror(code)));
}

std::string default_node_name(std::uint16_t port) {
  return fmt::format("{}:{}", machine_name(), port != 0 ? port : ::getpid());
}

bool is_loopback(std::string_view host) {
  if (host == "localhost" || host == "::1") return true;
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

std::string machine_name() {
  std::array<char, 256> name{};
  const bool has_name = gethostname(name.data(), name.size() - 1) == 0 && name.front() != '\0';
  return has_name ? name.data() : "localhost";
}

bool is_any_host(std::string_view host) {
  return host.empty() || host == "0.0.0.0" || host == "::";
}

}  // namespace deepinfer
