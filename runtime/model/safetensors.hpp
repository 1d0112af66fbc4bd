/// Safetensors files, single or sharded, mapped read-only: names to views of the mapped bytes.
///
/// Everything a header claims is checked before a view is made: length of the header, JSON,
/// dtype, shape times element size = length, offsets in range, in order without overlap or hole
/// up to the end of the file, no name twice. Opening touches the headers, not the data. A tensor
/// whose bytes are not aligned for its type (files of careless writers) is copied once, so that
/// every view may be read through `tensor_view::as<T>()`.
/// Errors (bad_checkpoint) name the file, the tensor, what was found and what was expected:
///   model.safetensors: tensor norm.weight: found data_offsets [0,4], expected 5 bytes, for U8 [5]
/// Limits: header <= 100 MB, <= 16 dimensions. Source: public safetensors format; model-v41.md 3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.hpp"
#include "runtime/base/file.hpp"
#include "runtime/base/tensor_view.hpp"

namespace deepinfer {

/// A tensor as found in a file. The view lives as long as its tensor_file (or tensor_set).
struct stored_tensor {
  std::string name;  ///< as in the file
  tensor_view view;
  std::uint64_t begin = 0;  ///< first byte, from the start of the data section
};

/// One file. Movable; views stay valid when it moves.
class tensor_file {
public:
  /// Maps and checks `path`. Messages start with the last part of the path.
  static result<tensor_file> open(const std::string& path);

  /// Checks `bytes`, which must outlive the object; `label` stands for the file name in messages.
  static result<tensor_file> parse(std::span<const std::byte> bytes, std::string label);

  /// In the order of their bytes.
  std::span<const stored_tensor> tensors() const { return tensors_; }
  /// Null if there is none of that name.
  const tensor_view* find(std::string_view name) const;
  /// The header's `__metadata__`.
  const std::map<std::string, std::string, std::less<>>& metadata() const { return metadata_; }
  /// Name in messages: the last part of the path.
  const std::string& label() const { return label_; }
  /// Size of the whole file.
  std::uint64_t file_bytes() const { return file_bytes_; }

private:
  result<void> read_header(std::span<const std::byte> bytes);
  result<void> read_entries(std::string_view header);
  result<void> check_layout(std::uint64_t data_bytes) const;
  void make_views(std::span<const std::byte> data);
  tl::unexpected<error> refuse(std::string_view tensor, const std::string& found,
                               const std::string& expected) const;

  mapped_file mapping_;
  std::string label_;
  std::uint64_t file_bytes_ = 0;
  std::vector<stored_tensor> tensors_;
  std::map<std::string, std::size_t, std::less<>> by_name_;  ///< position in tensors_
  std::map<std::string, std::string, std::less<>> metadata_;
  std::deque<std::vector<std::max_align_t>> copies_;  ///< of tensors that were not aligned
};

/// All tensors of a checkpoint directory. Names are looked up without the optional `model.` prefix;
/// the same tensor under both names is an error.
class tensor_set {
public:
  /// Where a tensor was found.
  struct place {
    const tensor_view* view = nullptr;
    std::int32_t shard = 0;  ///< index into shards()
  };

  /// Opens `model.safetensors.index.json` and its shards, or the one *.safetensors file there is.
  /// Errors: bad_checkpoint; `problems`, if given, receives every error found, the returned one
  /// first.
  static result<tensor_set> open(const std::string& directory,
                                 std::vector<error>* problems = nullptr);

  /// Null if there is none of that name.
  const tensor_view* find(std::string_view name) const;
  /// As `find`; error bad_checkpoint "tensor NAME: found nothing, expected it in DIRECTORY".
  result<tensor_view> need(std::string_view name) const;
  /// File that holds `name`, or the index (or only file) if none does: for messages.
  const std::string& file_of(std::string_view name) const;

  /// Sorted by name, prefix removed.
  const std::map<std::string, place, std::less<>>& tensors() const { return tensors_; }
  std::span<const tensor_file> shards() const { return shards_; }
  const std::string& directory() const { return directory_; }
  bool is_sharded() const { return shards_.size() > 1; }
  /// Bytes of all tensors.
  std::uint64_t tensor_bytes() const { return tensor_bytes_; }

private:
  void read_single(std::vector<error>& problems);
  void read_sharded(std::vector<error>& problems);
  void compare_with_index(const tensor_file& shard, const std::vector<std::string>& listed,
                          std::vector<error>& problems) const;
  void collect(std::vector<error>& problems);

  std::string directory_;
  std::string index_name_;  ///< the index or the only file: what a message about no shard names
  std::vector<tensor_file> shards_;
  std::map<std::string, place, std::less<>> tensors_;
  std::uint64_t tensor_bytes_ = 0;
};

/// True for the text that stands in for a file which Git LFS has not fetched.
bool is_lfs_pointer(std::string_view content);

/// A name from a file as it may stand in a message: no control characters, at most 200 bytes.
std::string printable(std::string_view name);

}  // namespace deepinfer
