#include <thread>

#include <caf/config.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "actors/node/commands.hpp"
#include "actors/product_version.hpp"
#include "config/schema.hpp"
#include "runtime/base/json.hpp"

namespace deepinfer {

namespace {

std::string caf_version() {
  return fmt::format("{}.{}.{}", CAF_VERSION / 10000, CAF_VERSION / 100 % 100, CAF_VERSION % 100);
}

/// Vector extensions that this CPU has and kernels may use.
std::vector<std::string> vector_extensions() {
  std::vector<std::string> found;
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) found.emplace_back("avx2");
  if (__builtin_cpu_supports("fma")) found.emplace_back("fma");
  if (__builtin_cpu_supports("avx512f")) found.emplace_back("avx512f");
#endif
  return found;
}

result<int> version(const cli_context& context, const parsed_flags& flags) {
  const auto git = product_git();
  const auto cores = std::thread::hardware_concurrency();
  const std::vector<std::string> devices{"cpu", "virtual"};
  if (flags.is_on("json")) {
    json::object out;
    out["version"] = product_version();
    out["git"] = git.empty() ? json::value(nullptr) : json::value(git);
    out["compiler"] = "g++ " __VERSION__;
    out["caf"] = caf_version();
    out["protobuf"] = protobuf_version();
    out["devices"] = json::array(devices.begin(), devices.end());
    out["cores"] = cores;
    const auto extensions = vector_extensions();
    out["vector_extensions"] = json::array(extensions.begin(), extensions.end());
    fmt::print(context.out, "{}\n", to_text(out));
    return 0;
  }
  fmt::print(context.out, "deepinfer {}\n", product_name());
  fmt::print(context.out, "compiler   {}\n", __VERSION__);
  fmt::print(context.out, "libraries  CAF {}, Protobuf {}\n", caf_version(), protobuf_version());
  fmt::print(context.out, "devices    {}\n", fmt::join(devices, ", "));
  fmt::print(context.out, "cpu        {} cores{}{}\n", cores,
             vector_extensions().empty() ? "" : ", ", fmt::join(vector_extensions(), " "));
  return 0;
}

}  // namespace

command version_command() {
  return {.name = "version",
          .summary = "print version, libraries and devices",
          .flags = {{.name = "json", .help = "one JSON object"}},
          .run = version};
}

}  // namespace deepinfer
