/// What an operator asks of a node, and what it answers: plain structs. They travel as Protobuf
/// bytes under the name of their verb, so that versions of client and node may differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "messages/describe.hpp"
#include "runtime/base/ids.hpp"

namespace deepinfer {

/// verb                argument          answer
namespace verb {
inline constexpr std::string_view health = "health";          ///< -             node_health
inline constexpr std::string_view stats = "stats";            ///< -             node_stats
inline constexpr std::string_view model = "model";            ///< -             model_info
inline constexpr std::string_view tokenize = "tokenize";      ///< tokenize_call token_list
inline constexpr std::string_view detokenize = "detokenize";  ///< token_list    text_reply
inline constexpr std::string_view render = "render";          ///< tokenize_call token_list
inline constexpr std::string_view requests = "requests";      ///< -             request_list
inline constexpr std::string_view drain = "drain";            ///< milliseconds  text_reply
inline constexpr std::string_view resume = "resume";          ///< -             text_reply
inline constexpr std::string_view reset_prefix_cache = "reset_prefix_cache";  ///< - text_reply
inline constexpr std::string_view trace = "trace";        ///< steps           Chrome JSON
inline constexpr std::string_view snapshot = "snapshot";  ///< newest step known  JSON: dashboard
inline constexpr std::string_view metrics = "metrics";    ///< -               Prometheus text
inline constexpr std::string_view config_get = "config";  ///< -               JSON
inline constexpr std::string_view config_set = "config_set";  ///< config_change text_reply
}  // namespace verb

/// A node is loading while requests may be taken later, without anybody's doing: its model loads,
/// its rank starts again, its nodes have not answered. It has failed where none will be.
enum class health_state : std::uint8_t { unspecified, loading, ready, draining, failed };

std::string_view name_of(health_state state);

struct node_health {
  health_state state = health_state::unspecified;
  double progress = 0.0;  ///< of loading, 0..1
  std::string stage;      ///< what it is doing, or why it has failed
  std::string node;
  std::int32_t replicas = 0;  ///< that can take requests
  std::int32_t open_requests = 0;

  static constexpr auto describe() {
    using s = node_health;
    return fields(field{"state", &s::state}, field{"progress", &s::progress},
                  field{"stage", &s::stage}, field{"node", &s::node},
                  field{"replicas", &s::replicas}, field{"open_requests", &s::open_requests});
  }
};

struct model_info {
  std::vector<std::string> names;  ///< that requests may use; the first is the node's own
  std::int32_t max_model_len = 0;
  std::int32_t vocab_size = 0;
  std::int32_t num_kv_blocks = 0;  ///< of all replicas
  std::int32_t block_size = 0;
  std::int32_t replicas = 0;
  std::string device;
  std::string kernels;
  std::string fingerprint;     ///< of the build, the model and the settings that can change tokens
  std::int64_t loaded_at = 0;  ///< seconds since 1970
  std::string identity;        ///< of weights, config and tokenizer alone; empty: not known
  std::int32_t capacity = 0;   ///< sequences that all replicas run at a time; 0: not known

  static constexpr auto describe() {
    using s = model_info;
    return fields(field{"names", &s::names}, field{"max_model_len", &s::max_model_len},
                  field{"vocab_size", &s::vocab_size}, field{"num_kv_blocks", &s::num_kv_blocks},
                  field{"block_size", &s::block_size}, field{"replicas", &s::replicas},
                  field{"device", &s::device}, field{"kernels", &s::kernels},
                  field{"fingerprint", &s::fingerprint}, field{"loaded_at", &s::loaded_at},
                  field{"identity", &s::identity}, field{"capacity", &s::capacity});
  }
};

/// Exactly one of `text` and `chat_json` is set.
struct tokenize_call {
  std::optional<std::string> text;
  std::optional<std::string> chat_json;
  bool add_special = false;  ///< begin with BOS

  static constexpr auto describe() {
    using s = tokenize_call;
    return fields(field{"text", &s::text}, field{"chat_json", &s::chat_json},
                  field{"add_special", &s::add_special});
  }
};

struct token_list {
  std::vector<token_id> ids;
  std::vector<std::string> pieces;  ///< what each spells
  std::string text;                 ///< of a chat: the prompt

  static constexpr auto describe() {
    using s = token_list;
    return fields(field{"ids", &s::ids}, field{"pieces", &s::pieces}, field{"text", &s::text});
  }
};

struct text_reply {
  std::string text;

  static constexpr auto describe() { return fields(field{"text", &text_reply::text}); }
};

struct number_call {
  std::int64_t value = 0;

  static constexpr auto describe() { return fields(field{"value", &number_call::value}); }
};

struct config_change {
  std::string key;
  std::string value;

  static constexpr auto describe() {
    return fields(field{"key", &config_change::key}, field{"value", &config_change::value});
  }
};

/// An open request, for people.
struct request_info {
  std::string id;
  std::string client_request_id;
  std::string tenant;
  std::string state;  ///< routing, queued, prefill, decode, paused
  std::int32_t replica = 0;
  std::int32_t prompt_tokens = 0;
  std::int32_t cached_tokens = 0;
  std::int32_t output_tokens = 0;
  std::int64_t age_us = 0;
  std::int32_t chunks_pending = 0;    ///< sent and not taken
  std::optional<std::uint64_t> seed;  ///< given or drawn; absent: not drawn yet

  static constexpr auto describe() {
    using s = request_info;
    return fields(field{"id", &s::id}, field{"client_request_id", &s::client_request_id},
                  field{"tenant", &s::tenant}, field{"state", &s::state},
                  field{"replica", &s::replica}, field{"prompt_tokens", &s::prompt_tokens},
                  field{"cached_tokens", &s::cached_tokens},
                  field{"output_tokens", &s::output_tokens}, field{"age_us", &s::age_us},
                  field{"chunks_pending", &s::chunks_pending}, field{"seed", &s::seed});
  }
};

struct request_list {
  std::vector<request_info> requests;

  static constexpr auto describe() { return fields(field{"requests", &request_list::requests}); }
};

}  // namespace deepinfer
