#include "runtime/model/checkpoint_check.hpp"

#include <algorithm>
#include <cstring>
#include <set>

#include <fmt/format.h>

namespace deepinfer {
namespace {

/// Keeps the first findings of each kind and counts the rest.
class finding_list {
public:
  explicit finding_list(std::size_t shown) : shown_(shown) {}

  void add(finding found) {
    auto& kept = kept_[found.kind];
    ++counts_[found.kind];
    if (kept.size() < shown_) kept.push_back(std::move(found));
  }
  void finish(checkpoint_report& report) && {
    for (auto& [kind, kept] : kept_)  // in the order of the kinds
      std::move(kept.begin(), kept.end(), std::back_inserter(report.findings));
    report.counts = std::move(counts_);
  }

private:
  std::size_t shown_;
  std::map<finding_kind, std::vector<finding>> kept_;
  std::map<finding_kind, std::int64_t> counts_;
};

std::string form(std::string_view type, const std::vector<std::int64_t>& shape) {
  return fmt::format("{} {}", type, shape_text(shape));
}

std::optional<std::size_t> first_nan_scale(const tensor_view& scales) {
  constexpr int nan_byte = 0xFF;  // an exponent beyond the largest power of two
  const auto bytes = scales.bytes();
  if (bytes == 0) return std::nullopt;
  const auto* at = static_cast<const std::byte*>(std::memchr(scales.data, nan_byte, bytes));
  if (!at) return std::nullopt;
  return static_cast<std::size_t>(at - scales.data);
}

/// "layers.3.ffn.experts.12.w1.weight" -> "layers.3.ffn.experts" and 12.
std::optional<std::pair<std::string, std::int64_t>> expert_of(std::string_view name) {
  constexpr std::string_view mark = ".ffn.experts.";
  const auto at = name.find(mark);
  if (at == std::string_view::npos) return std::nullopt;
  auto rest = name.substr(at + mark.size());
  rest = rest.substr(0, rest.find('.'));
  if (rest.empty() || rest.size() > 9) return std::nullopt;
  std::int64_t id = 0;
  for (const char c : rest) {
    if (c < '0' || c > '9') return std::nullopt;
    id = id * 10 + (c - '0');
  }
  return std::pair(std::string(name.substr(0, at + mark.size() - 1)), id);
}

/// One comparison of a set with a config.
class tensor_check {
public:
  tensor_check(const model_config& config, const tensor_set& set, const check_options& options)
    : config_(config),
      set_(set),
      options_(options),
      findings_(options.shown) {}

  checkpoint_report run() && {
    const auto expected = expected_tensors(config_);
    report_.expected_count = std::ssize(expected);
    for (const auto& tensor : expected) compare(tensor);
    name_incomplete_experts();
    name_unexpected();
    check_classes();
    report_.directory = set_.directory();
    report_.shard_count = std::ssize(set_.shards());
    report_.tensor_count = std::ssize(set_.tensors());
    report_.tensor_bytes = static_cast<std::int64_t>(set_.tensor_bytes());
    report_.warnings = config_.warnings;
    for (const auto& [kind, total] : totals_) report_.totals.push_back(total);
    std::move(findings_).finish(report_);
    return std::move(report_);
  }

private:
  void add(finding_kind kind, const std::string& tensor, std::string found, std::string expected) {
    findings_.add({kind, set_.file_of(tensor), tensor, std::move(found), std::move(expected)});
  }

  void compare(const expected_tensor& want) {
    const auto* view = set_.find(want.name);
    if (view) known_.insert(set_.tensors().find(want.name)->first);
    if (!view && want.is_optional) return;
    const auto expected = form(text_of(want.rule), want.shape);
    if (!view) {
      add(finding_kind::missing_tensor, want.name, "nothing", expected);
      if (const auto expert = expert_of(want.name))
        incomplete_[expert->first].insert(expert->second);
      return;
    }
    auto& total = totals_[want.kind];
    total.kind = want.kind;
    ++total.tensors;
    total.bytes += static_cast<std::int64_t>(view->bytes());
    const auto found = form(name_of(view->type), view->shape);
    if (!allows(want.rule, view->type)) {
      add(finding_kind::wrong_dtype, want.name, found, expected);
    } else if (view->shape != want.shape) {
      add(finding_kind::wrong_shape, want.name, found, expected);
    } else if (want.rule == storage_rule::scale && options_.reads_scales) {
      check_scales(want.name, *view);
    }
  }

  void check_scales(const std::string& name, const tensor_view& view) {
    const auto at = first_nan_scale(view);
    if (!at) return;
    const auto columns = static_cast<std::size_t>(view.shape.back());
    add(finding_kind::nan_scale, name,
        fmt::format("NaN (byte 255) at [{}, {}]", *at / columns, *at % columns),
        "a power of two (bytes 0 to 254)");
  }

  void name_incomplete_experts() {
    for (const auto& [layer, ids] : incomplete_) {
      const auto count =
        layer.starts_with("mtp.") ? config_.draft.expert_count : config_.expert_count;
      findings_.add({finding_kind::incomplete_experts, set_.file_of(""), layer,
                     fmt::format("{} of {} complete, the first incomplete is {}",
                                 count - std::ssize(ids), count, *ids.begin()),
                     fmt::format("w1, w2, w3 and their scales of experts 0 to {}", count - 1)});
    }
  }

  void name_unexpected() {
    for (const auto& [name, place] : set_.tensors()) {
      if (known_.contains(name)) continue;
      if (is_skipped(name, config_)) {
        ++report_.skipped_count;
        report_.skipped_bytes += static_cast<std::int64_t>(place.view->bytes());
        continue;
      }
      const auto is_hyper_norm = name.find("hc_attn_norm") != std::string::npos ||
                                 name.find("hc_ffn_norm") != std::string::npos;
      findings_.add({finding_kind::unexpected_tensor, set_.file_of(name), printable(name),
                     form(name_of(place.view->type), place.view->shape),
                     is_hyper_norm ? "no such tensor: hc_*_fn already contain these weights"
                                   : "no tensor of this name"});
    }
  }

  void check_classes() {
    if (!options_.engram_classes || !config_.has_engram()) return;
    if (*options_.engram_classes == config_.engram.class_count) return;
    findings_.add({finding_kind::wrong_class_count, "tokenizer.json",
                   fmt::format("layers.{}.engram.embed.weight", config_.engram_layers[0].layer),
                   fmt::format("{} token classes", *options_.engram_classes),
                   fmt::format("{} (engram_compressed_vocab_size)", config_.engram.class_count)});
  }

  const model_config& config_;
  const tensor_set& set_;
  const check_options& options_;
  finding_list findings_;
  checkpoint_report report_;
  std::set<std::string_view> known_;  ///< names of the set that the config asks for
  std::map<std::string, std::set<std::int64_t>> incomplete_;  ///< experts of each layer
  std::map<tensor_kind, kind_total> totals_;
};

}  // namespace

std::string_view name_of(finding_kind kind) {
  switch (kind) {
  case finding_kind::bad_config: return "bad config";
  case finding_kind::bad_file: return "bad file";
  case finding_kind::missing_tensor: return "missing tensor";
  case finding_kind::incomplete_experts: return "incomplete experts";
  case finding_kind::unexpected_tensor: return "unexpected tensor";
  case finding_kind::wrong_dtype: return "wrong dtype";
  case finding_kind::wrong_shape: return "wrong shape";
  case finding_kind::nan_scale: return "NaN scale";
  case finding_kind::wrong_class_count: return "wrong class count";
  }
  return "?";
}

std::string finding::text() const {
  auto line = file.empty() ? std::string() : file + ": ";
  if (!tensor.empty()) line += "tensor " + tensor + ": ";
  line += expected.empty() ? found : fmt::format("found {}, expected {}", found, expected);
  return line;
}

checkpoint_report check_tensors(const model_config& config, const tensor_set& set,
                                const check_options& options) {
  return tensor_check(config, set, options).run();
}

checked_directory check_directory(const std::string& directory, const check_options& options) {
  checked_directory checked;
  finding_list findings(options.shown);
  auto config = load_model_config(directory);
  std::vector<error> problems;
  auto tensors = tensor_set::open(directory, &problems);
  if (!config) findings.add({finding_kind::bad_config, "", "", config.error().message, ""});
  for (const auto& problem : problems)
    findings.add({finding_kind::bad_file, "", "", problem.message, ""});
  if (config) checked.config = *std::move(config);
  if (tensors) checked.tensors = *std::move(tensors);
  if (checked.config && checked.tensors)
    checked.report = check_tensors(*checked.config, *checked.tensors, options);
  else
    std::move(findings).finish(checked.report);
  checked.report.directory = directory;
  if (checked.config) checked.report.warnings = checked.config->warnings;
  return checked;
}

result<void> verdict(const checkpoint_report& report) {
  if (report.is_clean()) return {};
  const auto kind = report.findings.front().kind;
  std::string message;
  std::int64_t shown = 0, total = 0;
  for (const auto& found : report.findings) {
    if (found.kind != kind) break;
    message += (message.empty() ? "" : "; ") + found.text();
    ++shown;
  }
  for (const auto& [any, count] : report.counts) total += count;
  const auto same = report.counts.at(kind);
  if (same > shown)
    message += fmt::format("; and {} more of {} ({})", same - shown, same, name_of(kind));
  if (total > same) message += fmt::format("; and {} problems of other kinds", total - same);
  return fail(errc::bad_checkpoint, message);
}

}  // namespace deepinfer
