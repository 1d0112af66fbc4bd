#include "runtime/model/make_model.hpp"

#include <algorithm>
#include <filesystem>
#include <span>
#include <system_error>
#include <vector>

#include <fmt/format.h>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/make_model_values.hpp"
#include "runtime/model/safetensors_writer.hpp"

namespace deepinfer {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t piece_bytes = 1 << 20;

using tensor_list = std::vector<random_tensor>;

tensor_entry entry_of(const random_tensor& tensor) {
  return {tensor.name, tensor.type, tensor.shape};
}

/// In the given order, none beyond `limit` unless it holds a single tensor; inside a shard the
/// wider types come first, so that every tensor is aligned.
std::vector<tensor_list> cut_into_shards(tensor_list tensors, std::uint64_t limit) {
  std::vector<tensor_list> shards;
  std::uint64_t bytes = 0;
  for (auto& tensor : tensors) {
    const auto more = entry_of(tensor).bytes();
    if (shards.empty() || bytes + more > limit) {
      shards.emplace_back();
      bytes = 0;
    }
    bytes += more;
    shards.back().push_back(std::move(tensor));
  }
  for (auto& shard : shards)
    std::stable_sort(shard.begin(), shard.end(), [](const auto& a, const auto& b) {
      return size_of(a.type) > size_of(b.type);
    });
  return shards;
}

/// Writes shards and counts what has been written.
class shard_writer {
public:
  shard_writer(const random_checkpoint& wanted, const write_progress& progress, std::uint64_t total)
    : wanted_(wanted),
      progress_(progress),
      total_(total),
      piece_(piece_bytes) {}

  result<void> write(const std::string& file, const tensor_list& tensors) {
    std::vector<tensor_entry> entries;
    for (const auto& tensor : tensors) entries.push_back(entry_of(tensor));
    DI_TRY(auto writer, tensor_file_writer::create(wanted_.directory + "/" + file, entries));
    for (std::size_t i = 0; i < tensors.size(); ++i) {
      random_values values(tensors[i], wanted_.seed);
      for (auto left = entries[i].bytes(); left > 0;) {
        const auto part = std::span(piece_).first(std::min<std::uint64_t>(left, piece_.size()));
        values.fill(part);
        DI_TRY_VOID(writer.append(part));
        left -= part.size();
        done_ += part.size();
        if (progress_) progress_(done_, total_);
      }
    }
    return writer.finish();
  }

private:
  const random_checkpoint& wanted_;
  const write_progress& progress_;
  std::uint64_t total_;
  std::uint64_t done_ = 0;
  std::vector<std::byte> piece_;
};

std::string index_text(const std::vector<tensor_list>& shards,
                       const std::vector<std::string>& files, std::uint64_t bytes) {
  json::object map;
  for (std::size_t i = 0; i < shards.size(); ++i)
    for (const auto& tensor : shards[i]) map[tensor.name] = files[i];
  json::object index;
  index["metadata"] = json::object{{"total_size", bytes}};
  index["weight_map"] = std::move(map);
  return to_text(index);
}

std::uint64_t bytes_of(const tensor_list& tensors) {
  std::uint64_t bytes = 0;
  for (const auto& tensor : tensors) bytes += entry_of(tensor).bytes();
  return bytes;
}

}  // namespace

std::uint64_t random_checkpoint_bytes(const model_config& config) {
  return bytes_of(random_tensors(config));
}

result<written_checkpoint> write_random_checkpoint(const random_checkpoint& wanted,
                                                   const write_progress& progress) {
  DI_TRY(const auto config, parse_model_config(wanted.config_text));
  auto tensors = random_tensors(config);
  written_checkpoint out;
  out.tensors = std::ssize(tensors);
  out.bytes = bytes_of(tensors);
  const auto shards = cut_into_shards(std::move(tensors), wanted.shard_bytes);
  out.shards = std::ssize(shards);
  std::vector<std::string> files{"model.safetensors"};
  if (shards.size() > 1) files.clear();
  for (std::size_t i = 0; files.size() < shards.size(); ++i)
    files.push_back(fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
  shard_writer writer(wanted, progress, out.bytes);
  for (std::size_t i = 0; i < shards.size(); ++i) DI_TRY_VOID(writer.write(files[i], shards[i]));
  if (shards.size() > 1)
    DI_TRY_VOID(write_file(wanted.directory + "/model.safetensors.index.json",
                           index_text(shards, files, out.bytes)));
  DI_TRY_VOID(write_file(wanted.directory + "/config.json", wanted.config_text));
  return out;
}

result<void> remove_checkpoint_files(const std::string& directory) {
  std::error_code problem;
  std::vector<fs::path> files{fs::path(directory) / "config.json",
                              fs::path(directory) / "model.safetensors.index.json"};
  for (fs::directory_iterator at(directory, problem), end; !problem && at != end;
       at.increment(problem)) {
    const auto name = at->path().filename().string();
    if (name.starts_with("model") && name.ends_with(".safetensors")) files.push_back(at->path());
  }
  for (const auto& file : files) {
    if (!problem) fs::remove(file, problem);
    if (problem) return fail(errc::io_failed, file.string() + ": " + problem.message());
  }
  return {};
}

}  // namespace deepinfer
