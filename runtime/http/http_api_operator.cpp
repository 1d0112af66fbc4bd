// What of the API is for operators, probes and the page that shows them the node.
#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "runtime/base/json_fields.hpp"
#include "runtime/base/quoted.hpp"
#include "runtime/http/api_rules.hpp"
#include "runtime/http/dashboard.hpp"
#include "runtime/http/event_feed.hpp"
#include "runtime/http/http_api.hpp"
#include "runtime/http/metrics_text.hpp"
#include "runtime/http/request_body.hpp"
#include "runtime/http/struct_json.hpp"

namespace deepinfer {
namespace {

constexpr std::int64_t most_trace_steps = 1'000'000;
constexpr std::int64_t most_drain_ms = 86'400'000;
constexpr std::chrono::milliseconds probe_timeout{5'000};
constexpr std::chrono::milliseconds trace_timeout{30'000};

json::object model_json(const std::string& name, const model_info& served) {
  json::object out;
  out["id"] = name;
  out["object"] = "model";
  out["created"] = served.loaded_at;
  out["owned_by"] = "deepinfer";
  out["root"] = served.names.front();
  out["max_model_len"] = served.max_model_len;
  return out;
}

/// What a config value is as text: strings as they are, everything else as JSON.
std::string plain_text(const json::value& value) {
  return value.is_string() ? std::string(value.get_string()) : to_text(value);
}

/// Whether `id` is `answer`, or one of the requests of an answer to several prompts: cmpl-7-0, ...
bool is_part_of(std::string_view id, std::string_view answer) {
  if (id == answer) return true;
  if (!answer.starts_with("cmpl-") || !id.starts_with(answer)) return false;
  const auto rest = id.substr(answer.size());
  return rest.size() > 1 && rest[0] == '-' &&
         rest.find_first_not_of("0123456789", 1) == std::string_view::npos;
}

}  // namespace

void http_api::dispatch_operator(const exchange_ptr& on) {
  switch (on->route->call) {
  case api_call::requests: return show_requests(on);
  case api_call::cancel_request: return cancel_request(on);
  case api_call::stats: return show_stats(on);
  case api_call::reset_prefix_cache: return tell(on, verb::reset_prefix_cache);
  case api_call::drain: return drain(on);
  case api_call::resume: return tell(on, verb::resume);
  case api_call::config_get: return show_config(on);
  case api_call::config_set: return change_config(on);
  case api_call::start_profile: return start_profile(on);
  case api_call::stop_profile: return stop_profile(on);
  case api_call::trace: {
    const auto steps = query_number(on->request().query, "steps", 64, 1, most_trace_steps);
    return steps ? show_trace(on, *steps) : on->fail(steps.error());
  }
  case api_call::snapshot: return show_snapshot(on);
  case api_call::events: return begin_events(on);
  default: return on->fail({errc::internal, "a path without a handler", {}});
  }
}

void http_api::show_health(const exchange_ptr& on) {
  node_health local;
  std::shared_ptr<engine_link> link;
  {
    const std::lock_guard lock(mutex_);
    link = engine_;
    local.state = is_draining_ ? health_state::draining : health_state::loading;
    local.progress = loading_.progress;
    local.stage = loading_.stage;
  }
  const auto show = [on](const node_health& it) {
    auto out = json_of(it).get_object();
    out["status"] = out["state"];
    out.erase("state");
    const bool is_ready = it.state == health_state::ready;
    on->extra.push_back({"Cache-Control", "no-store"});
    on->send_json(to_text(out), is_ready ? 200 : 503);
  };
  if (!link) return show(local);
  link->call(
    verb::health, {},
    [show, local](result<std::string> bytes) {
      node_health it;
      auto read = bytes ? from_wire<node_health>(*bytes) : tl::unexpected<error>(bytes.error());
      if (read) {
        it = std::move(*read);
      } else {
        it.state = health_state::failed;
        it.stage = read.error().message;
      }
      if (it.state == health_state::ready && local.state == health_state::draining)
        it.state = health_state::draining;
      show(it);
    },
    probe_timeout);
}

void http_api::show_models(const exchange_ptr& on) {
  const auto show = [self = shared_from_this(), on](const model_info& served) {
    self->note_served(served);
    if (on->route->call == api_call::model) {
      if (const auto fits = check_model_name(on->rest, served); !fits)
        return on->fail(fits.error());
      return on->send_json(to_text(model_json(on->rest, served)));
    }
    json::array list;
    for (const auto& name : served.names) list.push_back(model_json(name, served));
    on->send_json(to_text(json::object{{"object", "list"}, {"data", std::move(list)}}));
  };
  ask_for<model_info>(on, verb::model, {}, show);
}

void http_api::show_metrics(const exchange_ptr& on) {
  const auto own = metrics_ ? metrics_->text() : std::string();
  const auto show = [on](std::string text) {
    on->send(
      {200, {{"Content-Type", "text/plain; version=0.0.4; charset=utf-8"}}, std::move(text)});
  };
  const auto link = engine();
  if (!link) return show(own);
  link->call(
    verb::metrics, {},
    [show, own](result<std::string> bytes) {
      const auto node =
        bytes ? from_wire<text_reply>(*bytes) : tl::unexpected<error>(bytes.error());
      show(node ? merged_metrics(node->text, own) : own);
    },
    probe_timeout);
}

void http_api::show_requests(const exchange_ptr& on) {
  ask_for<request_list>(on, verb::requests, {}, [on](const request_list& list) {
    on->send_json(to_text(json::object{{"object", "list"}, {"data", json_of(list.requests)}}));
  });
}

void http_api::cancel_request(const exchange_ptr& on) {
  ask_for<request_list>(
    on, verb::requests, {}, [self = shared_from_this(), on](const request_list& list) {
      const auto link = self->engine();
      int cancelled = 0;
      for (const auto& it : list.requests) {
        if (!is_part_of(it.id, on->rest)) continue;
        if (link) link->drop(it.id);
        ++cancelled;
      }
      if (cancelled == 0)
        return on->fail(
          {errc::not_found, fmt::format("no open request has the id {}", quoted(on->rest)), "id"});
      on->send_json(to_text(json::object{{"id", on->rest}, {"cancelled", cancelled}}));
    });
}

void http_api::show_stats(const exchange_ptr& on) {
  ask_for<node_stats>(on, verb::stats, {},
                      [on](const node_stats& stats) { on->send_json(to_text(json_of(stats))); });
}

void http_api::tell(const exchange_ptr& on, std::string_view verb) {
  ask_for<text_reply>(on, verb, {}, [on](const text_reply& reply) {
    on->send_json(to_text(json::object{{"status", "ok"}, {"message", json_of(reply.text)}}));
  });
}

void http_api::drain(const exchange_ptr& on) {
  std::int64_t timeout_ms = 30'000;
  if (!on->request().body.empty()) {
    const auto body = parse_body(on->request().body, options_.limits.max_depth);
    if (!body) return on->fail(body.error());
    json_fields fields(body->get_object());
    const auto given = fields.integer("timeout_ms", 0, most_drain_ms);
    if (!given) return on->fail(given.error());
    timeout_ms = given->value_or(timeout_ms);
  }
  ask_for<text_reply>(
    on, verb::drain, to_wire(number_call{timeout_ms}),
    [on](const text_reply& reply) {
      on->send_json(to_text(json::object{{"status", "ok"}, {"message", json_of(reply.text)}}));
    },
    std::chrono::milliseconds(timeout_ms + 5'000));
}

void http_api::show_config(const exchange_ptr& on) {
  ask_for<text_reply>(on, verb::config_get, {},
                      [on](const text_reply& reply) { on->send_json(reply.text); });
}

void http_api::change_config(const exchange_ptr& on) {
  const auto body = parse_body(on->request().body, options_.limits.max_depth);
  if (!body) return on->fail(body.error());
  json_fields fields(body->get_object());
  const auto key = fields.text("key");
  if (!key) return on->fail(key.error());
  const auto* value = fields.find("value");
  if (!*key || !value)
    return on->fail(fields.failure(*key ? "value" : "key", "is missing").value());
  if (value->is_object() || value->is_array())
    return on->fail(fields.wrong("value", *value, "a string, a number or a boolean").value());
  const config_change change{**key, plain_text(*value)};
  ask_for<text_reply>(on, verb::config_set, to_wire(change), [on](const text_reply& reply) {
    on->send_json(to_text(json::object{{"status", "ok"}, {"message", json_of(reply.text)}}));
  });
}

void http_api::start_profile(const exchange_ptr& on) {
  ask_for<node_stats>(
    on, verb::stats, {}, [self = shared_from_this(), on](const node_stats& stats) {
      {
        const std::lock_guard lock(self->mutex_);
        self->profile_begin_ = stats.steps;
      }
      on->send_json(to_text(json::object{{"status", "ok"}, {"steps", stats.steps}}));
    });
}

void http_api::stop_profile(const exchange_ptr& on) {
  std::optional<std::uint64_t> begin;
  {
    const std::lock_guard lock(mutex_);
    begin = std::exchange(profile_begin_, std::nullopt);
  }
  if (!begin)
    return on->fail({errc::invalid_argument, "no profile runs: /start_profile begins one", {}});
  ask_for<node_stats>(
    on, verb::stats, {}, [self = shared_from_this(), on, begin = *begin](const node_stats& stats) {
      const auto steps = stats.steps > begin ? stats.steps - begin : 0;
      self->show_trace(on,
                       static_cast<std::int64_t>(std::min<std::uint64_t>(steps, most_trace_steps)));
    });
}

void http_api::show_trace(const exchange_ptr& on, std::int64_t steps) {
  ask_for<text_reply>(
    on, verb::trace, to_wire(number_call{steps}),
    [on](const text_reply& reply) { on->send_json(reply.text); }, trace_timeout);
}

void http_api::show_snapshot(const exchange_ptr& on) {
  const auto known =
    query_number(on->request().query, "step", -1, -1, std::numeric_limits<std::int64_t>::max());
  if (!known) return on->fail(known.error());
  ask_for<text_reply>(on, verb::snapshot, to_wire(number_call{*known}),
                      [on](const text_reply& reply) { on->send_json(reply.text); });
}

void http_api::show_page(const exchange_ptr& on) {
  on->send({200,
            {{"Content-Type", "text/html; charset=utf-8"},
             {"Cache-Control", "no-cache"},
             {"X-Frame-Options", "DENY"},
             {"X-Content-Type-Options", "nosniff"}},
            std::string(dashboard_page())});
}

void http_api::begin_events(const exchange_ptr& on) {
  const auto link = engine_of(on);
  if (!link) return;
  if (on->request().method == "HEAD") return on->send({200, event_headers(), {}});
  std::make_shared<event_feed>(on, link, after_, options_.event_interval)->start();
}

}  // namespace deepinfer
