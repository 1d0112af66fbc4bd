/// The file of clients' keys that both doors of a node read, HTTP and the network's.
#pragma once

#include <string>

#include "config/engine_settings.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

/// Its text; empty where the settings name none. Error bad_config, naming the setting.
result<std::string> key_file_text(const server_settings& settings);

}  // namespace deepinfer
