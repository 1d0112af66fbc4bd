#include "actors/engine_loading.hpp"

namespace deepinfer {

result<std::unique_ptr<node>> load_engine(const engine_settings& settings, const std::string& path,
                                          const load_progress& on_progress, node_parts parts) {
  if (!settings.model.script.empty())
    return fail(errc::bad_config, "model.script: found " + settings.model.script +
                                    ", expected none: this build has no scripted model");
  return node::load(settings, path, on_progress, nullptr, std::move(parts));
}

}  // namespace deepinfer
