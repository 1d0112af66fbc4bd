/// The certificates and the key of the actor port, read and checked once.
#pragma once

#include <memory>

#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

struct ssl_ctx_st;

namespace deepinfer {

/// What all TLS connections begin from. It has no part in what becomes of the files afterwards. A
/// peer that connects and is refused is told in the log. Null where the settings name no file.
/// Error bad_config: some files but not all, one that can't be used, a key of another certificate.
result<std::shared_ptr<ssl_ctx_st>> open_tls_context(const actor_settings& settings);

}  // namespace deepinfer
