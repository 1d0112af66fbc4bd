// The shards of a checkpoint directory as one set of tensors.
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "runtime/base/file.hpp"
#include "runtime/base/json.hpp"
#include "runtime/model/safetensors.hpp"

namespace deepinfer {
namespace {

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_file = "model.safetensors.index.json";
constexpr std::string_view optional_prefix = "model.";
constexpr std::size_t max_shards = 65'536;

/// Shard file name -> names of the tensors the index says it has.
using shard_lists = std::map<std::string, std::vector<std::string>, std::less<>>;

std::string_view without_prefix(std::string_view name) {
  if (name.starts_with(optional_prefix)) name.remove_prefix(optional_prefix.size());
  return name;
}

/// A file name of the same directory, nothing that could lead out of it.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.size() <= 255 &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

result<shard_lists> read_index(const std::string& path) {
  const auto refuse = [](const std::string& why) { return fail(errc::bad_checkpoint, why); };
  const auto text = read_file(path);
  if (!text) return refuse(text.error().message);
  if (is_lfs_pointer(*text))
    return refuse(
      "found a Git-LFS pointer, expected the file itself: fetch it with `git lfs pull`");
  const auto document = parse_json(*text);
  if (!document) return refuse("found no JSON: " + document.error().message);
  const auto* root = document->if_object();
  const auto* entry = root ? root->if_contains("weight_map") : nullptr;
  const auto* map = entry ? entry->if_object() : nullptr;
  if (!map || map->empty())
    return refuse("weight_map: found nothing, expected an object of tensor names and shard files");
  if (const auto key = repeated_key(*text); !key.empty())
    return refuse(printable(key) + ": found the key twice, expected it once");
  shard_lists lists;
  for (const auto& item : *map) {
    const std::string name(item.key());
    const auto* file = item.value().if_string();
    if (!file || !is_plain_file_name(*file))
      return refuse(fmt::format("tensor {}: found {}, expected the name of a shard file",
                                printable(name), printable(to_text(item.value()))));
    lists[std::string(*file)].push_back(name);
    if (lists.size() > max_shards)
      return refuse(fmt::format("found more than {} shards", max_shards));
  }
  return lists;
}

/// Names of the *.safetensors files of a directory, sorted.
std::vector<std::string> tensor_files_in(const std::string& directory, std::error_code& code) {
  std::vector<std::string> names;
  for (std::filesystem::directory_iterator at(directory, code), end; !code && at != end;
       at.increment(code))
    if (at->path().extension() == ".safetensors") names.push_back(at->path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace

result<tensor_set> tensor_set::open(const std::string& directory, std::vector<error>* problems) {
  std::vector<error> found;
  tensor_set set;
  set.directory_ = directory;
  std::error_code code;
  if (std::filesystem::exists(directory + "/" + index_file, code)) {
    set.read_sharded(found);
  } else {
    set.read_single(found);
  }
  set.collect(found);
  if (problems) *problems = found;
  if (!found.empty()) return tl::unexpected<error>(found.front());
  return set;
}

void tensor_set::read_single(std::vector<error>& problems) {
  const auto refuse = [&](const std::string& why) {
    problems.push_back({errc::bad_checkpoint, directory_ + ": " + why, {}});
  };
  std::error_code code;
  const auto names = tensor_files_in(directory_, code);
  if (code) return refuse(code.message() + ", expected a checkpoint directory");
  std::vector<std::string> shards;
  for (const auto& name : names)
    if (name.find("-of-") != std::string::npos) shards.push_back(name);
  if (!shards.empty())
    return refuse(fmt::format("found {} shards ({}, ...), but no {}, expected it beside them",
                              shards.size(), printable(shards.front()), index_file));
  const auto is_there = std::find(names.begin(), names.end(), single_name) != names.end();
  if (!is_there && names.size() != 1)
    return refuse(fmt::format("found {} *.safetensors files, expected {} or {}", names.size(),
                              single_name, index_file));
  index_name_ = is_there ? single_name : names.front();
  auto file = tensor_file::open(directory_ + "/" + index_name_);
  if (file) {
    shards_.push_back(*std::move(file));
  } else {
    problems.push_back(std::move(file).error());
  }
}

void tensor_set::read_sharded(std::vector<error>& problems) {
  index_name_ = index_file;
  const auto lists = read_index(directory_ + "/" + index_file);
  if (!lists) {
    problems.push_back(error(lists.error()).within(index_file));
    return;
  }
  for (const auto& [name, tensors] : *lists) {
    std::error_code code;
    if (!std::filesystem::exists(directory_ + "/" + name, code)) {
      problems.push_back(
        {errc::bad_checkpoint,
         fmt::format("{}: found no such file, expected a shard with {} tensors "
                     "({}, ...), named by {}",
                     printable(name), tensors.size(), printable(tensors.front()), index_file),
         {}});
      continue;
    }
    auto file = tensor_file::open(directory_ + "/" + name);
    if (!file) {
      problems.push_back(std::move(file).error());
      continue;
    }
    compare_with_index(*file, tensors, problems);
    shards_.push_back(*std::move(file));
  }
}

void tensor_set::compare_with_index(const tensor_file& shard,
                                    const std::vector<std::string>& listed,
                                    std::vector<error>& problems) const {
  const auto refuse = [&](const std::string& name, const char* why) {
    problems.push_back({errc::bad_checkpoint,
                        fmt::format("{}: tensor {}: {}", shard.label(), printable(name), why),
                        {}});
  };
  for (const auto& name : listed)
    if (!shard.find(name))
      refuse(name, "found nothing, expected it here: the index names this shard");
  auto sorted = listed;
  std::sort(sorted.begin(), sorted.end());
  for (const auto& tensor : shard.tensors())
    if (!std::binary_search(sorted.begin(), sorted.end(), tensor.name))
      refuse(tensor.name,
             "found here, expected it in the index, which does not have it for this shard");
}

void tensor_set::collect(std::vector<error>& problems) {
  for (std::size_t shard = 0; shard < shards_.size(); ++shard) {
    for (const auto& tensor : shards_[shard].tensors()) {
      const std::string name(without_prefix(tensor.name));
      const place here{&tensor.view, static_cast<std::int32_t>(shard)};
      tensor_bytes_ += tensor.view.bytes();
      const auto [at, is_new] = tensors_.emplace(name, here);
      if (is_new) continue;
      const auto& other = shards_[static_cast<std::size_t>(at->second.shard)].label();
      problems.push_back(
        {errc::bad_checkpoint,
         fmt::format("{}: tensor {}: found it also in {}, expected it once, with or without \"{}\"",
                     shards_[shard].label(), printable(tensor.name), other, optional_prefix),
         {}});
    }
  }
}

const tensor_view* tensor_set::find(std::string_view name) const {
  const auto found = tensors_.find(without_prefix(name));
  return found == tensors_.end() ? nullptr : found->second.view;
}

result<tensor_view> tensor_set::need(std::string_view name) const {
  if (const auto* view = find(name)) return *view;
  return fail(errc::bad_checkpoint, fmt::format("{}: tensor {}: found nothing, expected it in {}",
                                                index_name_, printable(name), directory_));
}

const std::string& tensor_set::file_of(std::string_view name) const {
  const auto found = tensors_.find(without_prefix(name));
  if (found == tensors_.end()) return index_name_;
  return shards_[static_cast<std::size_t>(found->second.shard)].label();
}

}  // namespace deepinfer
