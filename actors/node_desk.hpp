/// The operator's verbs that a node answers from what it knows: its model, its text pipeline, its
/// settings. A plain class; what it reads is immutable or thread-safe, so that any thread may ask.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "actors/live_config.hpp"
#include "actors/request_intake.hpp"
#include "messages/control.hpp"
#include "runtime/base/error.hpp"

namespace deepinfer {

struct node_facts;

/// Says of a loaded node what clients may know. `loaded_at` is in seconds since 1970.
model_info model_info_of(const node_facts& facts, const engine_settings& settings,
                         std::int32_t vocab_size, std::int64_t loaded_at);

class node_desk {
public:
  node_desk(model_info model, std::shared_ptr<const request_intake> intake,
            std::shared_ptr<const live_config> config)
    : model_(std::move(model)),
      intake_(std::move(intake)),
      config_(std::move(config)) {}

  /// model, tokenize, detokenize, render and config; others are not_found. Argument and answer are
  /// Protobuf bytes (control.hpp). Errors: invalid_argument, and those of the chat request reader.
  result<std::string> answer(std::string_view verb, std::string_view bytes) const;

  /// Is it long work, with so many bytes? Then it belongs on a thread of its own.
  static bool is_long(std::string_view verb, std::size_t bytes);

  const model_info& model() const { return model_; }

private:
  result<std::string> tokenize(std::string_view bytes) const;
  result<std::string> detokenize(std::string_view bytes) const;
  result<std::string> render(std::string_view bytes) const;
  token_list list_of(std::vector<token_id> ids, std::string text) const;

  model_info model_;
  std::shared_ptr<const request_intake> intake_;
  std::shared_ptr<const live_config> config_;
};

}  // namespace deepinfer
