#include "runtime/http/template_kwargs.hpp"

namespace deepinfer {

result<std::vector<std::string>> apply_template_kwargs(json_fields& body, json::object& chat) {
  DI_TRY(auto given, body.object("chat_template_kwargs"));
  if (!given) return std::vector<std::string>{};
  const auto* effort = given->find("reasoning_effort");
  if (effort && !chat.contains("reasoning_effort")) chat["reasoning_effort"] = *effort;
  for (const auto* name : {"thinking", "enable_thinking"}) {
    if (!given->find(name)) continue;
    DI_TRY(const auto thinks, given->flag(name, false));
    if (!chat.contains("thinking"))
      chat["thinking"] = json::object{{"type", thinks ? "enabled" : "disabled"}};
  }
  return given->unknown();
}

}  // namespace deepinfer
