#include "actors/actor_host.hpp"

#include <algorithm>
#include <thread>

#include <caf/io/middleman.hpp>
#include <caf/openssl/manager.hpp>
#include <fmt/format.h>

#include "actors/caf_compat.hpp"
#include "actors/host_address.hpp"
#include "actors/openssl_guard.hpp"
#include "actors/tls_context.hpp"

namespace deepinfer {
namespace {

std::size_t actor_threads(const host_options& options) {
  if (options.threads > 0) return options.threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

struct actor_host::system_config : actor_config, tls_carrier {
  explicit system_config(const host_options& options) : actor_config(actor_threads(options)) {
    set("work-stealing.relaxed-sleep-duration", caf::timespan(options.idle_look));
  }

  void add_network(const actor_settings& settings, std::shared_ptr<ssl_ctx_st> tls) {
    load<caf::io::middleman>();
    set("middleman.heartbeat-interval", caf::timespan(settings.heartbeat_interval));
    set("middleman.connection-timeout", caf::timespan(settings.connection_timeout));
    if (!tls) return;
    context = std::move(tls);
    load<caf::openssl::manager>();
    // By these the library sees that peers must show certificates; it does not read them.
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
  DI_TRY(auto tls, open_tls_context(settings));
  const bool has_tls = tls != nullptr;
  if (!has_tls && !is_loopback(settings.host))
    return fail(errc::bad_config,
                fmt::format("actor.host: found '{}', which others can reach; without "
                            "actor.tls_certificate, actor.tls_key and actor.tls_ca expected an "
                            "address of this machine alone, as 127.0.0.1",
                            settings.host),
                "actor.host");
  auto config = std::make_unique<system_config>(options);
  config->add_network(settings, std::move(tls));
  return std::shared_ptr<actor_host>(new actor_host(std::move(config), true, has_tls));
}

}  // namespace deepinfer
