#include "actors/model_loading.hpp"

#include <algorithm>
#include <thread>

#include <fmt/core.h>

#include "runtime/base/file.hpp"
#include "runtime/base/log.hpp"
#include "runtime/model/checkpoint.hpp"
#include "runtime/model/checkpoint_identity.hpp"
#include "runtime/model/drawn_weights.hpp"
#include "runtime/text/token_classes.hpp"

namespace deepinfer {

numeric_mode numeric_of(const step_settings& settings) {
  switch (settings.numeric) {
  case numeric_setting::exact: return numeric_mode::exact;
  case numeric_setting::released: return numeric_mode::released;
  case numeric_setting::fast: return numeric_mode::fast;
  }
  return numeric_mode::exact;
}

result<kernels::isa> kernels_of(const step_settings& settings) {
  if (settings.kernels == kernel_setting::automatic) return kernels::best_isa();
  const auto wanted =
    settings.kernels == kernel_setting::avx2 ? kernels::isa::avx2 : kernels::isa::reference;
  if (kernels::runs(wanted)) return wanted;
  return fail(errc::bad_config,
              fmt::format("kernels: found {}, this machine runs at most {}",
                          kernels::name_of(wanted), kernels::name_of(kernels::best_isa())));
}

std::int32_t threads_of(const step_settings& settings) {
  const auto cores = std::max(1u, std::thread::hardware_concurrency());
  return settings.num_threads.value_or(static_cast<std::int32_t>(cores));
}

result<loaded_model> load_model(const std::string& directory, numeric_mode numeric,
                                const load_progress& on_progress, load_format format) {
  DI_TRY(const auto config, load_model_config(directory));
  auto opened_words = tokenizer::open(directory);
  if (!opened_words) return fail(errc::bad_checkpoint, std::move(opened_words).error().message);
  const auto& file_words = *opened_words;
  const auto words = file_words.as_v41();
  DI_TRY(const auto config_text, read_file(directory + "/config.json"));
  DI_TRY(const auto tokenizer_text, read_file(directory + "/tokenizer.json"));
  const model_texts texts{config_text, tokenizer_text};
  for (const auto& warning : words.warnings()) log(severity::debug, "{}", warning);
  check_options options;
  std::vector<std::int32_t> classes;
  if (config.has_engram()) {
    auto map = token_classes(words, config.vocab_size);
    options.engram_classes = map.class_count;
    classes = std::move(map.class_of);
  }
  if (format == load_format::drawn_weights) {
    constexpr std::uint64_t seed = 1;
    drawn_weights source(config, seed);
    DI_TRY(auto weights,
           load_weights(config, std::move(classes), packing_of(numeric), source, on_progress),
           directory);
    return loaded_model{std::move(weights), words, drawn_identity(texts, seed)};
  }
  DI_TRY(auto opened, open_checkpoint(directory, options));
  auto identity = checkpoint_identity(texts, opened.tensors);
  checkpoint_weights source(std::make_shared<const tensor_set>(std::move(opened.tensors)));
  DI_TRY(auto weights,
         load_weights(config, std::move(classes), packing_of(numeric), source, on_progress),
         directory);
  return loaded_model{std::move(weights), words, std::move(identity)};
}

}  // namespace deepinfer
