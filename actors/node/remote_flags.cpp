#include "actors/node/remote_flags.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/host_address.hpp"

namespace deepinfer {
namespace {

/// A flag, or the variable of the setting of that name.
std::string given(const cli_context& context, const parsed_flags& flags, const std::string& name) {
  if (const auto text = flags.text(name)) return *text;
  auto variable = "DEEPINFER_" + name;
  std::transform(variable.begin(), variable.end(), variable.begin(), [](unsigned char c) {
    return static_cast<char>(c == '-' ? '_' : std::toupper(c));
  });
  const auto found = context.environment.find(variable);
  return found == context.environment.end() ? std::string() : found->second;
}

/// Of several keys that a node takes, the first will do; its holder's name is no part of it.
std::string key_of(std::string text) {
  text = text.substr(0, text.find(','));
  return text.substr(text.find('=') + 1);
}

}  // namespace

std::vector<flag> elsewhere_flags() {
  auto out = remote_flags();
  for (auto& it : out) it.help = "with --connect: " + it.help;
  out.front() = value_flag(
    "connect", "ask the node with this actor port instead of loading a model", "HOST:PORT", "none");
  return out;
}

result<void> check_elsewhere(const parsed_flags& flags) {
  if (!flags.has("connect")) return {};
  // What reaches the node, or is done here: the request's seed, keys, logs, the trace it gives.
  constexpr std::array<std::string_view, 9> meant{
    "seed",          "api-key",      "actor-tls-certificate",
    "actor-tls-key", "actor-tls-ca", "log-level",
    "log-format",    "trace-file",   "trace-buffer-steps"};
  std::vector<std::string> found;
  for (const auto& it : engine_flags()) {
    if (!flags.has(it.name) || std::find(meant.begin(), meant.end(), it.name) != meant.end())
      continue;
    found.push_back((it.is_negatable && !flags.is_on(it.name) ? "--no-" : "--") + it.name);
  }
  if (found.empty()) return {};
  return fail(errc::bad_config,
              fmt::format("found {} beside --connect, whose node has settings of its own",
                          fmt::join(found, ", ")));
}

std::vector<flag> remote_flags() {
  return {
    value_flag("connect", "actor port of the node", "HOST:PORT", "127.0.0.1:4242"),
    value_flag("api-key", "key that the node asks for", "KEY", "none"),
    value_flag("actor-tls-certificate", "certificate to show to the node, PEM", "FILE", "none"),
    value_flag("actor-tls-key", "its private key, PEM", "FILE", "none"),
    value_flag("actor-tls-ca", "certificates of those who sign nodes, PEM", "FILE", "none")};
}

result<client_options> read_remote(const cli_context& context, const parsed_flags& flags) {
  client_options out;
  if (const auto text = flags.text("connect")) {
    DI_TRY(const auto address, parse_host_address(*text, out.port), "--connect");
    out.host = address.host;
    out.port = address.port;
  }
  out.api_key = key_of(given(context, flags, "api-key"));
  out.tls_certificate = given(context, flags, "actor-tls-certificate");
  out.tls_key = given(context, flags, "actor-tls-key");
  out.tls_ca = given(context, flags, "actor-tls-ca");
  return out;
}

result<client> connect_remote(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(auto options, read_remote(context, flags));
  if (auto known = check_host_known(options.host); !known)
    return tl::unexpected<error>(std::move(known).error().within("--connect"));
  options.reconnects = false;
  auto opened = client::connect(options);
  if (opened || opened.error().code != errc::invalid_argument) return opened;
  const auto place =
    fmt::format("--connect: {}", format_host_address({options.host, options.port}));
  return tl::unexpected<error>(std::move(opened).error().within(place));
}

}  // namespace deepinfer
