/// Models and recorders that the model's tests share. A fixture that cannot be loaded aborts the
/// test with the reason.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "runtime/base/json.hpp"
#include "runtime/base/stream.hpp"
#include "runtime/model/model_observer.hpp"
#include "runtime/model/model_session.hpp"
#include "runtime/model/weights.hpp"

namespace deepinfer::test {

using weights_ptr = std::shared_ptr<const model_weights>;
using ids = std::vector<token_id>;

/// The kernels under test: $DEEPINFER_TEST_KERNELS (reference, avx2), else the machine's fastest.
/// Sessions and runners of the fixtures run on them.
kernels::isa kernels_under_test();

inline constexpr numeric_mode all_modes[] = {numeric_mode::exact, numeric_mode::released,
                                             numeric_mode::fast};

/// Loaded once per process, directory and packing; `classes` is Engram's map.
weights_ptr checkpoint_model(const std::string& directory, const std::vector<std::int32_t>& classes,
                             kernels::packing how = kernels::packing::exact);

/// tests/golden/model/NAME and examples/models/tiny-v41, with the maps recorded beside them.
weights_ptr golden_model(const std::string& name, kernels::packing how = kernels::packing::exact);
weights_ptr tiny_model(kernels::packing how = kernels::packing::exact);

/// The deterministic models of model-v41.md 24; `edit` may change the config's text before it is
/// parsed.
weights_ptr generated_t1(const std::function<void(json::object&)>& edit = {},
                         kernels::packing how = kernels::packing::exact);
weights_ptr generated_t2(kernels::packing how = kernels::packing::exact);

/// The spec's ids: id_0 = 0, id_i = ((7 i^2 + 3 i + 5) mod 125) + 3.
ids spec_ids(std::int32_t count);

/// `count` seeded ids below `vocab`.
ids random_ids(std::uint64_t seed, std::int32_t count, std::int32_t vocab);

json::value golden_json(const std::string& path);
ids ids_of(const json::value& list);

/// Keeps everything a forward shows, step after step, by point and layer.
class recorder final : public model_observer {
public:
  using key = std::pair<model_point, std::int32_t>;
  std::map<key, std::vector<float>> floats;
  std::map<key, std::vector<std::int32_t>> ints;
  std::map<key, std::vector<std::int64_t>> wide_ints;

  void see(model_point point, std::int32_t layer, std::span<const float> values) override;
  void see(model_point point, std::int32_t layer, std::span<const std::int32_t> values) override;
  void see(model_point point, std::int32_t layer, std::span<const std::int64_t> values) override;
  void clear();
};

/// A team of several parts on one thread, run last part first.
class reversed_team final : public thread_team {
public:
  explicit reversed_team(std::int32_t threads) : threads_(threads) {}
  std::int32_t threads() const override { return threads_; }
  void run(std::int32_t parts, task work, void* context) override {
    for (std::int32_t part = parts; part-- > 0;) work(context, part, parts);
  }

private:
  std::int32_t threads_;
};

/// The calling thread's stream.
const stream_ref& inline_stream();

std::unique_ptr<model_session> make_session(const weights_ptr& weights, session_config config);

/// Largest |a - b|; infinite where sizes differ or one is NaN.
double max_difference(std::span<const float> a, std::span<const float> b);
token_id arg_max(std::span<const float> logits);
/// Row `row` of a matrix with `columns` columns.
template <class T>
std::span<const T> row_of(const std::vector<T>& matrix, std::int64_t row, std::int64_t columns) {
  return std::span(matrix).subspan(static_cast<std::size_t>(row * columns),
                                   static_cast<std::size_t>(columns));
}

/// Rows [first, first + count) of a slot's ring or paged array, in position order.
std::vector<float> window_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                               std::int64_t first, std::int64_t count);
std::vector<float> pooling_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                                std::int64_t first, std::int64_t count);
std::vector<float> compressed_rows(const kv_state& state, std::int32_t layer, std::int32_t slot,
                                   std::int64_t count);
std::vector<float> index_keys(const kv_state& state, std::int32_t layer, std::int32_t slot,
                              std::int64_t count);

}  // namespace deepinfer::test
