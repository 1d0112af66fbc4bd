#include "runtime/model/checkpoint.hpp"

#include <utility>

namespace deepinfer {

result<checkpoint> open_checkpoint(const std::string& directory, const check_options& options) {
  auto checked = check_directory(directory, options);
  DI_TRY_VOID(verdict(checked.report));
  return checkpoint{*std::move(checked.config), *std::move(checked.tensors),
                    std::move(checked.report)};
}

}  // namespace deepinfer
