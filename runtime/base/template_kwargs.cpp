#include "runtime/base/template_kwargs.hpp"

namespace deepinfer {

result<chat_switches> read_chat_switches(json_fields& body) {
  chat_switches out;
  for (const auto* name : {"thinking", "reasoning_effort"})
    if (const auto* value = body.find(name)) out.fields[name] = *value;
  DI_TRY(auto arguments, body.object("chat_template_kwargs"));
  if (!arguments) return out;
  const auto* effort = arguments->find("reasoning_effort");
  if (effort && !out.fields.contains("reasoning_effort")) out.fields["reasoning_effort"] = *effort;
  for (const auto* name : {"thinking", "enable_thinking"}) {
    if (!arguments->find(name)) continue;
    DI_TRY(const auto thinks, arguments->flag(name, false));
    if (!out.fields.contains("thinking"))
      out.fields["thinking"] = json::object{{"type", thinks ? "enabled" : "disabled"}};
  }
  out.meaningless = arguments->unknown();
  return out;
}

}  // namespace deepinfer
