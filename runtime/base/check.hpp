/// DI_CHECK: an assertion that stays on in release builds.
///
/// For programmer errors only: no user input may reach one (user mistakes are `result<T>`, see
/// error.hpp). The message is a fmt format that should print the values involved. Failing prints
/// file, line, condition and message to stderr and aborts.
#pragma once

#include <fmt/core.h>

#include <string_view>

namespace deepinfer {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace deepinfer

#define DI_CHECK(condition, ...)                                                                   \
  do {                                                                                             \
    if (!(condition)) [[unlikely]]                                                                 \
      ::deepinfer::check_failed(__FILE__, __LINE__, #condition, fmt::format(__VA_ARGS__));         \
  } while (false)
