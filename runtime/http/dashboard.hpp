/// The dashboard: one page of HTML with everything in it (dashboard.html), part of the binary.
///
/// It reads GET /v1/internal/events (server-sent events, each a snapshot of
/// actors/dashboard_snapshot.hpp, of a gateway that of actors/gateway_snapshot.hpp), or
/// GET /v1/internal/snapshot?step=N where streams fail; it calls POST /v1/internal/drain and
/// /v1/internal/resume, DELETE /v1/internal/requests/{id}, POST /v1/chat/completions, and
/// GET /debug/trace. It is served without a key and asks for one.
#pragma once

#include <string_view>

namespace deepinfer {

/// text/html; charset=utf-8
std::string_view dashboard_page();

}  // namespace deepinfer
