#include "actors/actor_host.hpp"

#include <algorithm>
#include <thread>

namespace deepinfer {
namespace {

std::size_t actor_threads() {
  return std::max(1u, std::thread::hardware_concurrency());
}

}  // namespace

actor_host::actor_host()
  : config_(std::make_unique<actor_config>(actor_threads())),
    system_(std::make_unique<caf::actor_system>(*config_)) {}

actor_host::~actor_host() = default;

}  // namespace deepinfer
