/// Prometheus text of two registries as one.
#pragma once

#include <string>
#include <string_view>

namespace deepinfer {

/// What `node` tells, but the families of HTTP (`...http_requests_...`) as `own` has them: they are
/// this process's affair, and may be in both where both are one.
std::string merged_metrics(std::string_view node, std::string_view own);

}  // namespace deepinfer
