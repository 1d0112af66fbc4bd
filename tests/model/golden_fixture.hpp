/// The golden sets of tests/golden/model (see the README there) as tests read them.
#pragma once

#include <numeric>

#include "model_fixture.hpp"
#include "tests/support/golden_file.hpp"

namespace deepinfer::test {

/// One prompt of a golden set beside the session that answers it.
struct prompt {
  std::string name;
  ids tokens, greedy;
  std::vector<std::int32_t> logits_rows;
  std::vector<std::int32_t> draft_logits_steps;
  json::object facts;

  std::int32_t length() const { return static_cast<std::int32_t>(tokens.size()); }
};

struct golden_set {
  numeric_mode numeric;
  weights_ptr weights;
  golden_file tensors;
  std::vector<prompt> prompts;

  golden_set(const std::string& model, const std::string& goldens,
             numeric_mode mode = numeric_mode::exact)
    : numeric(mode),
      weights(golden_model(model)),
      tensors(DI_SOURCE_DIR "/tests/golden/model/" + model + "/" + goldens + ".safetensors") {
    const auto text =
      golden_json(DI_SOURCE_DIR "/tests/golden/model/" + model + "/" + goldens + ".json");
    for (const auto& entry : text.as_object().at("prompts").as_array()) {
      prompt made;
      made.facts = entry.as_object();
      made.name = std::string(made.facts.at("name").as_string());
      made.tokens = ids_of(made.facts.at("ids"));
      made.greedy = ids_of(made.facts.at("greedy_ids"));
      if (made.facts.at("logits_rows").is_array()) {
        made.logits_rows = ids_of(made.facts.at("logits_rows"));
      } else {
        made.logits_rows.resize(made.tokens.size());
        std::iota(made.logits_rows.begin(), made.logits_rows.end(), 0);
      }
      if (made.facts.contains("draft_logits_steps"))
        made.draft_logits_steps = ids_of(made.facts.at("draft_logits_steps"));
      prompts.push_back(std::move(made));
    }
  }

  bool has(const prompt& it, const std::string& what) const {
    return tensors.has(it.name + "." + what);
  }
  std::vector<float> floats(const prompt& it, const std::string& what) const {
    return tensors.floats(it.name + "." + what);
  }
  std::vector<std::int32_t> ints(const prompt& it, const std::string& what) const {
    return tensors.ints(it.name + "." + what);
  }
  std::unique_ptr<model_session> session() const {
    return make_session(weights, {.numeric = numeric,
                                  .max_positions = 320,
                                  .num_drafts = weights->config.draft.block_size,
                                  .with_draft = true});
  }
};

/// NAME.layerN
inline std::string at_layer(const char* what, std::int32_t layer) {
  return what + std::string(".layer") + std::to_string(layer);
}

}  // namespace deepinfer::test
