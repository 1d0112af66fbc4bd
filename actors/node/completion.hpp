/// Completion scripts for shells, made from the table of commands.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "actors/node/cli.hpp"

namespace deepinfer {

/// A script for bash, zsh or fish. Error bad_config for another shell.
result<std::string> completion_script(std::string_view shell, std::span<const command> commands);

}  // namespace deepinfer
