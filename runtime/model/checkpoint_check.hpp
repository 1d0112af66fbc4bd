/// Checks a checkpoint against its config and says everything that is wrong with it.
///
/// A report is an ordered list of findings, each naming file, tensor, what was found and what was
/// expected; of each kind the first ten are kept and all are counted. Scales are read (a NaN among
/// them poisons a whole block of weights), other weights are not. Nothing here fails: `verdict`
/// turns a report into the error that ends a load.
/// Cost: one pass over names; with `reads_scales` one pass over the bytes of all scales.
/// Source: model-v41.md 3 (names, "load-time refusals"), 10.1 (class count).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/model/checkpoint_tensors.hpp"
#include "runtime/model/model_config.hpp"
#include "runtime/model/safetensors.hpp"

namespace deepinfer {

enum class finding_kind : std::uint8_t {
  bad_config,
  bad_file,  ///< missing, truncated, damaged, not fetched
  missing_tensor,
  incomplete_experts,
  unexpected_tensor,
  wrong_dtype,
  wrong_shape,
  nan_scale,
  wrong_class_count,
};

/// "missing tensor", ...
std::string_view name_of(finding_kind kind);

struct finding {
  finding_kind kind = finding_kind::bad_file;
  std::string file;    ///< the file at fault, "" if `found` says it all
  std::string tensor;  ///< "" if it concerns the file
  std::string found;
  std::string expected;

  /// "model.safetensors: tensor norm.weight: found F32, expected BF16".
  std::string text() const;
};

struct check_options {
  bool reads_scales = true;
  /// Token classes of the Engram map computed from the tokenizer; not checked if absent.
  std::optional<std::int32_t> engram_classes;
  std::size_t shown = 10;  ///< findings kept of each kind
};

/// Tensors and bytes of one kind, as found.
struct kind_total {
  tensor_kind kind = tensor_kind::embeddings;
  std::int64_t tensors = 0;
  std::int64_t bytes = 0;
};

struct checkpoint_report {
  std::string directory;
  std::vector<finding> findings;  ///< first the files, then by kind in the order of finding_kind
  std::map<finding_kind, std::int64_t> counts;  ///< of all, the ones not kept included
  std::vector<std::string> warnings;            ///< of the config
  std::vector<kind_total> totals;               ///< one per kind that occurs
  std::int64_t shard_count = 0;
  std::int64_t tensor_count = 0;  ///< in the files
  std::int64_t tensor_bytes = 0;
  std::int64_t skipped_count = 0;  ///< vision and repeated tensors
  std::int64_t skipped_bytes = 0;
  std::int64_t expected_count = 0;  ///< that the config asks for, optional ones included

  bool is_clean() const { return findings.empty(); }
};

/// Compares the tensors of `set` with what `config` asks for.
checkpoint_report check_tensors(const model_config& config, const tensor_set& set,
                                const check_options& options = {});

/// What is known after an attempt to open a directory; the parts that could not be read are absent.
struct checked_directory {
  std::optional<model_config> config;
  std::optional<tensor_set> tensors;
  checkpoint_report report;
};

/// Reads config.json and all headers of a directory and checks them; the report has every problem.
checked_directory check_directory(const std::string& directory, const check_options& options = {});

/// Nothing if the report is clean, else bad_checkpoint: the kept findings of the first kind, and
/// how many there are of it and of the others.
result<void> verdict(const checkpoint_report& report);

}  // namespace deepinfer
