#include "actors/actor_host.hpp"

#include <algorithm>
#include <thread>

#include <caf/io/middleman.hpp>
#include <caf/openssl/manager.hpp>
#include <fmt/format.h>

#include "actors/caf_compat.hpp"
#include "actors/host_address.hpp"
#include "runtime/base/file.hpp"

namespace deepinfer {
namespace {

std::size_t actor_threads(const host_options& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

/// The library ends the process over a file it can't use, so they are looked at first.
result<void> check_pem(const std::string& setting, const std::string& path,
                       std::string_view content) {
  const auto read = read_small_file(path, 1 << 20);
  if (!read) return fail(errc::bad_config, setting + ": " + read.error().message, setting);
  const auto& text = *read;
  if (text.find("-----BEGIN ") == std::string::npos || text.find(content) == std::string::npos)
    return fail(errc::bad_config,
                fmt::format("{}: {} holds no {} in PEM form", setting, path, content), setting);
  return {};
}

/// Whether TLS is wanted.
result<bool> check_tls(const actor_settings& settings) {
  const bool has_all =
    !settings.tls_certificate.empty() && !settings.tls_key.empty() && !settings.tls_ca.empty();
  const bool has_none =
    settings.tls_certificate.empty() && settings.tls_key.empty() && settings.tls_ca.empty();
  if (has_none) return false;
  const auto shown = [](const std::string& path) { return path.empty() ? "nothing" : path; };
  if (!has_all)
    return fail(errc::bad_config,
                fmt::format("actor.tls_certificate, actor.tls_key, actor.tls_ca: found {}, {} and "
                            "{}, expected all three or none",
                            shown(settings.tls_certificate), shown(settings.tls_key),
                            shown(settings.tls_ca)),
                "actor.tls_certificate");
  DI_TRY_VOID(check_pem("actor.tls_certificate", settings.tls_certificate, "CERTIFICATE"));
  DI_TRY_VOID(check_pem("actor.tls_key", settings.tls_key, "PRIVATE KEY"));
  DI_TRY_VOID(check_pem("actor.tls_ca", settings.tls_ca, "CERTIFICATE"));
  return true;
}

}  // namespace

struct actor_host::system_config : actor_config {
  explicit system_config(const host_options& options) : actor_config(actor_threads(options)) {
    set("work-stealing.relaxed-sleep-duration", caf::timespan(options.idle_look));
  }

  void add_network(const actor_settings& settings, bool has_tls) {
    load<caf::io::middleman>();
    set("middleman.heartbeat-interval", caf::timespan(settings.heartbeat_interval));
    set("middleman.connection-timeout", caf::timespan(settings.connection_timeout));
    if (!has_tls) return;
    load<caf::openssl::manager>();
    openssl_certificate = settings.tls_certificate;
    openssl_key = settings.tls_key;
    openssl_cafile = settings.tls_ca;
  }
};

actor_host::actor_host(host_options options)
  : actor_host(std::make_unique<system_config>(options), false, false) {}

actor_host::actor_host(std::unique_ptr<system_config> config, bool has_network, bool has_tls)
  : config_(std::move(config)),
    system_(std::make_unique<caf::actor_system>(*config_)),
    has_network_(has_network),
    has_tls_(has_tls) {}

actor_host::~actor_host() = default;

result<std::shared_ptr<actor_host>> actor_host::open(const actor_settings& settings,
                                                     host_options options) {
  DI_TRY(const bool has_tls, check_tls(settings));
  if (!has_tls && !is_loopback(settings.host))
    return fail(errc::bad_config,
                fmt::format("actor.host: found '{}', which others can reach; without "
                            "actor.tls_certificate, actor.tls_key and actor.tls_ca expected an "
                            "address of this machine alone, as 127.0.0.1",
                            settings.host),
                "actor.host");
  auto config = std::make_unique<system_config>(options);
  config->add_network(settings, has_tls);
  return std::shared_ptr<actor_host>(new actor_host(std::move(config), true, has_tls));
}

}  // namespace deepinfer
