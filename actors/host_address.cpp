#include "actors/host_address.hpp"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <set>

#include <fmt/format.h>

#include "config/engine_settings.hpp"

namespace deepinfer {
namespace {

bool read_port(std::string_view text, std::uint16_t& out) {
  const auto* end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, out);
  return read.ec == std::errc() && read.ptr == end && out != 0;
}

bool is_v6(const std::string& text) {
  in6_addr ignored{};
  return ::inet_pton(AF_INET6, text.substr(0, text.find('%')).c_str(), &ignored) == 1;
}

struct address_freer {
  void operator()(addrinfo* it) const { ::freeaddrinfo(it); }
};
using address_ptr = std::unique_ptr<addrinfo, address_freer>;

/// What a name means now, or the system's words for why nothing.
tl::expected<address_ptr, std::string> resolve(const host_address& at, int flags) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  wanted.ai_flags = flags;
  addrinfo* found = nullptr;
  const auto code =
    ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &wanted, &found);
  if (code != 0) return tl::unexpected<std::string>(::gai_strerror(code));
  return address_ptr(found);
}

/// 0, or the errno of what failed.
int try_to_listen(const addrinfo& at) {
  const int made = ::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC, at.ai_protocol);
  if (made < 0) return errno;
  const int on = 1;
  ::setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const bool is_good = ::bind(made, at.ai_addr, at.ai_addrlen) == 0 && ::listen(made, 1) == 0;
  const int failure = is_good ? 0 : errno;
  ::close(made);
  return failure;
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
    if (!is_v6(out.host)) return malformed(text);
    rest = {};
  } else {
    const auto colon = std::min(text.find(':'), text.size());
    out.host = text.substr(0, colon);
    rest = text.substr(colon);
  }
  if (out.host.empty() || out.host.find_first_of(" ,/") != std::string::npos)
    return malformed(text);
  if (!rest.empty() && !read_port(rest.substr(1), out.port)) return malformed(text);
  return out;
}

result<address_list> read_addresses(const std::vector<std::string>& texts, std::string_view place) {
  const auto usual_port = actor_settings{}.port;
  address_list out;
  std::set<std::string> known;
  for (const auto& text : texts) {
    DI_TRY(auto at, parse_host_address(text, 0), place);
    if (at.port == 0) {
      at.port = usual_port;
      out.warnings.push_back(fmt::format("{}: found '{}' without a port, {} is taken", place, text,
                                         format_host_address(at)));
    }
    if (known.insert(format_host_address(at)).second) out.addresses.push_back(std::move(at));
  }
  return out;
}

std::string format_host_address(const host_address& at) {
  const bool is_v6 = at.host.find(':') != std::string::npos;
  return is_v6 ? fmt::format("[{}]:{}", at.host, at.port) : fmt::format("{}:{}", at.host, at.port);
}

result<void> check_host_known(const std::string& host) {
  const auto found = resolve({host, 0}, 0);
  if (found) return {};
  return fail(errc::bad_config, fmt::format("the host '{}' is not known ({}), expected HOST:PORT",
                                            host, found.error()));
}

result<void> check_can_listen(const host_address& at) {
  const auto refuse = [&at](errc code, const char* at_fault, std::string_view why) {
    return fail(code, fmt::format("can't listen on {}: {}", format_host_address(at), why),
                at_fault);
  };
  const auto found = resolve(at, AI_PASSIVE);
  if (!found)
    return refuse(errc::bad_config, "host",
                  fmt::format("the host is not known ({})", found.error()));
  switch (const int failure = try_to_listen(**found)) {
  case 0: return {};
  case EADDRINUSE:
    return refuse(errc::port_in_use, "port",
                  "the port is in use; choose another port, or 0 for any free one");
  case EADDRNOTAVAIL:
    return refuse(errc::bad_config, "host", "the address is none of this machine's");
  case EACCES:
    return refuse(errc::bad_config, "port",
                  "this user may not listen on the port; choose one of 1024 or more");
  default: return refuse(errc::bad_config, "host", std::strerror(failure));
  }
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
