#include <chrono>
#include <filesystem>
#include <limits>
#include <system_error>

#include <fmt/format.h>

#include "actors/node/commands.hpp"
#include "runtime/base/file.hpp"
#include "runtime/model/make_model.hpp"
#include "runtime/model/make_model_shape.hpp"
#include "runtime/model/memory_plan.hpp"
#include "runtime/text/token_classes.hpp"
#include "runtime/text/tokenizer.hpp"

namespace deepinfer {

namespace {

namespace fs = std::filesystem;
using clock_type = std::chrono::steady_clock;

constexpr std::int64_t most_vocab = 1 << 20;
constexpr const char* tokenizer_files[] = {"tokenizer.json", "tokenizer_config.json",
                                           "generation_config.json"};

double seconds_since(clock_type::time_point begin) {
  return std::chrono::duration<double>(clock_type::now() - begin).count();
}

/// A line on a terminal: rewritten in place, erased at the end.
class write_line {
public:
  explicit write_line(bool is_shown) : is_shown_(is_shown) {}
  ~write_line() {
    if (was_drawn_) print_err("\r\033[K");
  }
  write_line(const write_line&) = delete;
  write_line& operator=(const write_line&) = delete;

  void draw(std::uint64_t done, std::uint64_t total) {
    constexpr double shortest_seconds = 0.05;
    if (!is_shown_ || total == 0 || seconds_since(last_) < shortest_seconds) return;
    last_ = clock_type::now();
    print_err("\rwriting {} of {}, {} %\033[K", bytes_text(static_cast<std::int64_t>(done)),
              bytes_text(static_cast<std::int64_t>(total)), done * 100 / total);
    std::fflush(stderr);
    was_drawn_ = true;
  }

private:
  bool is_shown_;
  bool was_drawn_ = false;
  clock_type::time_point last_ = clock_type::now();
};

/// The shape by name, with what flags replace in it.
result<random_model_shape> read_shape(const parsed_flags& flags, std::int64_t least_vocab) {
  const auto name = flags.text("shape");
  if (!name) return fail(errc::bad_config, "--shape: found nothing, expected S or M");
  const auto known = random_model_shape_of(*name);
  if (!known)
    return fail(errc::bad_config, fmt::format("--shape: found '{}', expected S or M", *name));
  auto shape = *known;
  const auto replace = [&flags](const char* flag, std::int32_t& value, std::int64_t least,
                                std::int64_t most) -> result<void> {
    DI_TRY(const auto given, flags.integer(flag, least, most));
    if (given) value = static_cast<std::int32_t>(*given);
    return {};
  };
  DI_TRY_VOID(replace("layers", shape.layer_count, 4, 256));
  DI_TRY_VOID(replace("experts", shape.expert_count, shape.experts_per_token, 1024));
  DI_TRY_VOID(replace("vocab", shape.vocab_size, least_vocab, most_vocab));
  return shape;
}

/// The directory to write to, without slashes at its end. It must be empty, or --force given.
result<std::string> read_directory(const parsed_flags& flags) {
  const auto given = flags.text("out");
  if (!given || given->empty())
    return fail(errc::bad_config, "--out: found nothing, expected a directory to write");
  auto directory = *given;
  while (directory.size() > 1 && directory.back() == '/') directory.pop_back();
  std::error_code problem;
  const auto status = fs::status(directory, problem);
  if (status.type() == fs::file_type::not_found) return directory;
  if (!problem && !fs::is_directory(status))
    return fail(errc::bad_config,
                fmt::format("--out: found a file at {}, expected a directory", directory));
  const bool is_empty = !problem && fs::is_empty(directory, problem);
  if (problem)
    return fail(errc::bad_config, fmt::format("--out: {}: {}", directory, problem.message()));
  if (!is_empty && !flags.is_on("force"))
    return fail(errc::bad_config,
                fmt::format("--out: found files in {}, expected an empty or a new directory, or "
                            "--force to replace the checkpoint there",
                            directory));
  return directory;
}

/// Makes the directory ready: there, without an earlier checkpoint, and on a disk with room.
result<void> prepare_directory(const std::string& directory, std::uint64_t bytes) {
  std::error_code problem;
  fs::create_directories(directory, problem);
  if (problem)
    return fail(errc::bad_config, fmt::format("--out: {}: {}", directory, problem.message()));
  DI_TRY_VOID(remove_checkpoint_files(directory));
  const auto room = fs::space(directory, problem);
  if (!problem && room.available < bytes)
    return fail(errc::io_failed, fmt::format("--out: {}: found {} free, expected {}", directory,
                                             bytes_text(static_cast<std::int64_t>(room.available)),
                                             bytes_text(static_cast<std::int64_t>(bytes))));
  return {};
}

/// The embedded model's tokenizer serves: ids above its own are in no text.
struct source_text {
  std::string directory;
  tokenizer words;
  random_model_text facts;
};

result<source_text> open_source(const cli_context& context) {
  DI_TRY(auto directory, embedded_model(context));
  DI_TRY(const auto config, load_model_config(directory));
  DI_TRY(const auto opened, tokenizer::open(directory));
  random_model_text facts;
  facts.bos_token = config.bos_token;
  if (!config.eos_tokens.empty()) facts.eos_token = config.eos_tokens.front();
  facts.pad_token = config.pad_token;
  facts.noise_token = config.draft.noise_token;
  return source_text{std::move(directory), opened.as_v41(), facts};
}

result<void> copy_tokenizer(const std::string& from, const std::string& to) {
  for (const auto* name : tokenizer_files) {
    DI_TRY(const auto content, read_file(from + "/" + name));
    DI_TRY_VOID(write_file(to + "/" + name, content));
  }
  return {};
}

std::string count_text(std::int64_t parameters) {
  const auto value = static_cast<double>(parameters);
  return value >= 1e9 ? fmt::format("{:.2f} G", value / 1e9) : fmt::format("{:.1f} M", value / 1e6);
}

result<int> make_model(const cli_context& context, const parsed_flags& flags) {
  DI_TRY(const auto seed, flags.integer("seed", 0, std::numeric_limits<std::int64_t>::max()));
  DI_TRY(auto source, open_source(context));
  DI_TRY(const auto shape, read_shape(flags, source.words.vocab_size()));
  DI_TRY(const auto directory, read_directory(flags));
  // Exactly what the loader will count: the same file, the same number of ids.
  source.facts.class_count = token_classes(source.words, shape.vocab_size).class_count;
  random_checkpoint wanted;
  wanted.directory = directory;
  wanted.seed = static_cast<std::uint64_t>(seed.value_or(0));
  DI_TRY(wanted.config_text, random_model_config(shape, source.facts));
  DI_TRY(const auto config, parse_model_config(wanted.config_text));

  const auto begin = clock_type::now();
  DI_TRY_VOID(prepare_directory(directory, random_checkpoint_bytes(config)));
  DI_TRY_VOID(copy_tokenizer(source.directory, directory));
  result<written_checkpoint> written;
  {
    write_line line(context.err_is_terminal && context.verbosity >= 0);
    written = write_random_checkpoint(
      wanted, [&line](std::uint64_t done, std::uint64_t total) { line.draw(done, total); });
  }
  DI_TRY(const auto made, std::move(written), "--out");
  const auto count = count_parameters(config);
  fmt::print(context.out,
             "{}: a random model of shape {}, seed {}\n"
             "  parameters  {}, of them {} in Engram tables and {} in the drafter\n"
             "  active      {} per token, without the drafter\n"
             "  files       {} shard{}, {} tensors, {} in {:.1f} s\n",
             directory, *flags.text("shape"), wanted.seed, count_text(count.total),
             count_text(count.engram_tables), count_text(count.drafter), count_text(count.active),
             made.shards, made.shards == 1 ? "" : "s", made.tensors,
             bytes_text(static_cast<std::int64_t>(made.bytes)), seconds_since(begin));
  return 0;
}

}  // namespace

command make_model_command() {
  return {.name = "make-model",
          .summary = "write a random model in the release's form, to measure speed with",
          .flags = {{.name = "shape",
                     .help = "S: about 250 M parameters, 41 M active; M: 1.4 G, 223 M",
                     .value_name = "S|M"},
                    {.name = "out", .help = "directory to write", .value_name = "DIR"},
                    {.name = "seed",
                     .help = "of all values: the same seed, the same bytes",
                     .value_name = "N",
                     .default_text = "0"},
                    {.name = "layers",
                     .help = "decoder layers, at least 4",
                     .value_name = "N",
                     .default_text = "the shape's"},
                    {.name = "experts",
                     .help = "routed experts a layer, at least 6",
                     .value_name = "N",
                     .default_text = "the shape's"},
                    {.name = "vocab",
                     .help = "vocabulary, at least the embedded tokenizer's",
                     .value_name = "N",
                     .default_text = "the shape's"},
                    {.name = "force", .help = "replace the checkpoint in DIR"}},
          .run = make_model};
}

}  // namespace deepinfer
