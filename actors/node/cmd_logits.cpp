#include <algorithm>
#include <map>

#include <fmt/format.h>

#include "actors/model_loading.hpp"
#include "actors/node/commands.hpp"
#include "actors/node/tensor_output.hpp"
#include "runtime/base/json.hpp"
#include "runtime/device/cpu_team.hpp"
#include "runtime/model/model_observer.hpp"
#include "runtime/model/model_session.hpp"

namespace deepinfer {

namespace {

/// Keeps the residual streams after every layer.
class stream_keeper : public model_observer {
public:
  using model_observer::see;
  void see(model_point point, std::int32_t layer, std::span<const float> values) override {
    if (point == model_point::stream) streams_[layer].assign(values.begin(), values.end());
  }

  std::map<std::int32_t, std::vector<float>>& streams() { return streams_; }

private:
  std::map<std::int32_t, std::vector<float>> streams_;
};

std::vector<token_id> best_of_rows(const std::vector<float>& logits, std::int32_t vocab) {
  std::vector<token_id> best;
  for (auto row = logits.begin(); row != logits.end(); row += vocab)
    best.push_back(static_cast<token_id>(std::max_element(row, row + vocab) - row));
  return best;
}

result<int> logits(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto config, settings_of(context, flags));
  if (flags.has("trace-file"))
    return fail(errc::bad_config, "--trace-file: logits runs no steps that could be traced");
  const auto list = flags.text("ids"), file = flags.text("out");
  if (!list) return fail(errc::bad_config, "--ids: found none, expected a list such as 0,17,4");
  if (!file) return fail(errc::bad_config, "--out: found none, expected FILE.safetensors");
  DI_TRY_VOID(check_output(*file, "--out"));
  DI_TRY(const auto directory, model_directory(context, config.settings));
  DI_TRY(const auto model, load_model(directory, numeric_of(config.settings.engine)));
  const auto& weights = model.weights;
  const auto vocab = weights->config.vocab_size;
  DI_TRY(const auto ids, parse_ids(*list, vocab), "--ids");
  const auto tokens = static_cast<std::int32_t>(ids.size());
  if (tokens > weights->config.max_positions)
    return fail(errc::bad_config, fmt::format("--ids: found {} ids, the model takes at most {}",
                                              tokens, weights->config.max_positions));

  const auto& engine = config.settings.engine;
  cpu_team team(threads_of(engine));
  const stream_ref stream{.team = &team, .native = nullptr};
  session_config sizes;
  sizes.max_positions = tokens;
  sizes.numeric = numeric_of(engine);
  DI_TRY(sizes.kernels, kernels_of(engine));
  DI_TRY(const auto session, model_session::make(weights, sizes));
  stream_keeper keeper;
  const bool wants_streams = flags.is_on("streams");
  DI_TRY(auto values, session->run_all(stream, ids, 0, wants_streams ? &keeper : nullptr));

  const auto best = best_of_rows(values, vocab);
  std::vector<output_tensor> tensors{{"logits", {tokens, vocab}, std::move(values)}};
  for (auto& [layer, stream_values] : keeper.streams())
    tensors.push_back({fmt::format("streams.{}", layer),
                       {tokens, weights->config.stream_count, weights->config.hidden_size},
                       std::move(stream_values)});
  DI_TRY_VOID(write_tensors(*file, tensors));
  if (flags.is_on("json")) {
    json::object out;
    out["file"] = *file;
    out["argmax"] = json::array(best.begin(), best.end());
    fmt::print(context.out, "{}\n", to_text(out));
  } else {
    fmt::print(context.out, "{}: logits [{}, {}], {} streams\n", *file, tokens, vocab,
               keeper.streams().size());
  }
  return 0;
}

}  // namespace

command logits_command() {
  return {
    .name = "logits",
    .summary = "write the logits of every position as safetensors",
    .flags = {{.name = "ids", .help = "the token ids, used as given", .value_name = "ID,ID,..."},
              {.name = "out", .help = "file to write", .value_name = "FILE"},
              {.name = "streams", .help = "also the residual streams after every layer"},
              {.name = "json", .help = "one JSON object: file, argmax of every position"}},
    .takes_settings = true,
    .run = logits};
}

}  // namespace deepinfer
