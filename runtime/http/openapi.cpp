#include "runtime/http/openapi.hpp"

#include <algorithm>
#include <array>
#include <vector>

#include "runtime/base/check.hpp"
#include "runtime/base/json.hpp"
#include "runtime/http/api_routes.hpp"
#include "runtime/http/refused_fields.hpp"

namespace deepinfer {
namespace {

/// What is said of a call: names of schemas, "" = none. `mistakes`: may answer 400.
struct call_row {
  api_call call;
  std::string_view summary;
  std::string_view body;
  std::string_view answer;
  bool body_required = true;
  bool mistakes = true;
  bool streams = false;
  std::string_view kind = "application/json";
};

constexpr std::array rows{
  call_row{api_call::chat, "Answer a conversation", "ChatRequest", "ChatAnswer", true, true, true},
  call_row{api_call::completion, "Continue texts", "CompletionRequest", "CompletionAnswer", true,
           true, true},
  call_row{api_call::models, "What is served", "", "ModelList", false, false},
  call_row{api_call::model, "One served model", "", "Model", false, false},
  call_row{api_call::tokenize, "Token ids of a text or a conversation", "TokenizeRequest",
           "TokenizeAnswer"},
  call_row{api_call::detokenize, "The text of token ids", "DetokenizeRequest", "DetokenizeAnswer"},
  call_row{api_call::render, "The prompt of a conversation", "RenderRequest", "RenderAnswer"},
  call_row{api_call::health, "Whether requests are taken", "", "Health", false, false},
  call_row{api_call::live, "Whether the process lives", "", "Live", false, false},
  call_row{api_call::ready, "Whether requests are taken", "", "Health", false, false},
  call_row{api_call::metrics, "Prometheus metrics", "", "Text", false, false, false,
           "text/plain; version=0.0.4; charset=utf-8"},
  call_row{api_call::version, "Version and libraries", "", "Object", false, false},
  call_row{api_call::openapi, "This document", "", "Object", false, false},
  call_row{api_call::page, "The dashboard; it asks for a key itself", "", "Text", false, false,
           false, "text/html; charset=utf-8"},
  call_row{api_call::requests, "Open requests", "", "RequestList", false, false},
  call_row{api_call::cancel_request, "Cancel a request", "", "Cancelled", false, false},
  call_row{api_call::stats, "What the node is doing", "", "Object", false, false},
  call_row{api_call::reset_prefix_cache, "Forget cached prefixes", "", "Done", false, true},
  call_row{api_call::drain, "Take no new requests, wait for open ones", "DrainRequest", "Done",
           false},
  call_row{api_call::resume, "Take requests again", "", "Done", false, true},
  call_row{api_call::config_get, "Effective settings", "", "Object", false, false},
  call_row{api_call::config_set, "Change a setting", "ConfigRequest", "Done"},
  call_row{api_call::start_profile, "Begin a profile", "", "ProfileBegun", false, false},
  call_row{api_call::stop_profile, "End a profile: its steps as a Chrome trace", "", "Object",
           false, true},
  call_row{api_call::trace, "The newest steps as a Chrome trace", "", "Object", false, true},
  call_row{api_call::snapshot, "What the node, or a gateway with its nodes, looks like now", "",
           "Object", false, true},
  call_row{api_call::events, "What the snapshot shows, twice a second", "", "Text", false, false,
           false, "text/event-stream; charset=utf-8"}};

const call_row& row_of(api_call call) {
  const auto* row =
    std::find_if(rows.begin(), rows.end(), [call](const auto& it) { return it.call == call; });
  DI_CHECK(row != rows.end(), "call {} is not described", static_cast<int>(call));
  return *row;
}

json::value schema_ref(std::string_view name) {
  return json::object{{"$ref", "#/components/schemas/" + std::string(name)}};
}

json::object content_of(std::string_view kind, std::string_view schema) {
  return {{kind, json::object{{"schema", schema_ref(schema)}}}};
}

json::object error_answer(std::string_view description) {
  return {{"description", description}, {"content", content_of("application/json", "Error")}};
}

bool is_generation(api_call call) {
  return call == api_call::chat || call == api_call::completion;
}

bool needs_no_engine(api_call call) {
  return call == api_call::live || call == api_call::version || call == api_call::openapi ||
         call == api_call::metrics || call == api_call::page;
}

json::object answers_of(const api_route& route, const call_row& row) {
  json::object good{{"description", "done"}, {"content", content_of(row.kind, row.answer)}};
  if (row.streams)
    good["content"].get_object()["text/event-stream; charset=utf-8"] =
      json::object{{"schema", schema_ref("Text")}};
  json::object out{{"200", std::move(good)}};
  const bool has_body = !row.body.empty();
  if (has_body || row.mistakes) out["400"] = error_answer("what was asked cannot be done");
  if (!route.is_open) out["401"] = error_answer("no API key, or not one of this server's");
  const bool names = route.path.find('{') != route.path.npos;
  if (names || has_body) out["404"] = error_answer("no such model or request");
  if (has_body) {
    out["408"] = error_answer("the body came too slowly");
    out["413"] = error_answer("the body is too large");
    out["415"] = error_answer("the body is not JSON, or it is compressed");
  }
  if (is_generation(row.call)) {
    out["429"] = error_answer("too many requests wait");
    out["499"] = error_answer("an operator cancelled it");
  }
  if (needs_no_engine(row.call)) return out;
  out["500"] = error_answer("the engine failed");
  out["503"] = row.answer == "Health" ? json::object{{"description", "not ready"},
                                                     {"content", content_of(row.kind, "Health")}}
                                      : error_answer("not ready, draining or overloaded");
  out["504"] = error_answer("no answer in time");
  return out;
}

json::array parameters_of(const api_route& route) {
  json::array out;
  if (route.path.ends_with("{id}"))
    out.push_back({{"name", "id"},
                   {"in", "path"},
                   {"required", true},
                   {"schema", {{"type", "string"}, {"minLength", 1}}}});
  if (route.call == api_call::snapshot)
    out.push_back({{"name", "step"},
                   {"in", "query"},
                   {"schema", {{"type", "integer"}, {"minimum", -1}, {"default", -1}}}});
  if (route.call == api_call::trace)
    out.push_back(
      {{"name", "steps"},
       {"in", "query"},
       {"schema", {{"type", "integer"}, {"minimum", 1}, {"maximum", 1'000'000}, {"default", 64}}}});
  return out;
}

json::object operation_of(const api_route& route) {
  const auto& row = row_of(route.call);
  json::object out{{"summary", row.summary}};
  auto parameters = parameters_of(route);
  if (!parameters.empty()) out["parameters"] = std::move(parameters);
  if (!row.body.empty())
    out["requestBody"] = json::object{{"required", row.body_required},
                                      {"content", content_of("application/json", row.body)}};
  out["responses"] = answers_of(route, row);
  if (route.is_open) out["security"] = json::array{};
  return out;
}

std::string lower(std::string_view method) {
  std::string out(method);
  for (auto& c : out) c = static_cast<char>(c | 0x20);
  return out;
}

/// Bounds that are settings or the model's.
void set_bounds(json::object& schemas, std::int32_t max_n, std::int32_t vocab_size) {
  for (const auto* name : {"ChatRequest", "CompletionRequest"})
    schemas.at(name).at("properties").at("n").as_object()["maximum"] = max_n;
  if (vocab_size > 0) schemas.at("TokenId").as_object()["maximum"] = vocab_size - 1;
}

/// What is refused is there with the values that ask for nothing.
void add_refused_fields(json::object& schemas) {
  for (const auto* name : {"ChatRequest", "CompletionRequest"}) {
    auto& properties = schemas.at(name).at("properties").as_object();
    for (const auto& field : refused_fields())
      properties[field.name] = json::object{{"enum", field.accepted}};
  }
}

}  // namespace

std::string openapi_text(std::int32_t max_n, std::int32_t vocab_size) {
  json::object paths;
  for (const auto& route : api_routes()) {
    auto& path = paths[route.path];
    if (path.is_null()) path = json::object{};
    path.get_object()[lower(route.method)] = operation_of(route);
  }
  auto schemas = parse_json(openapi_schemas());
  DI_CHECK(schemas.has_value(), "{}", schemas.error().message);
  set_bounds(schemas->as_object(), max_n, vocab_size);
  add_refused_fields(schemas->as_object());
  json::object schemes{{"bearer", {{"type", "http"}, {"scheme", "bearer"}}},
                       {"key", {{"type", "apiKey"}, {"in", "header"}, {"name", "x-api-key"}}}};
  const json::array security{json::object{{"bearer", json::array{}}},
                             json::object{{"key", json::array{}}}, json::object{}};
  return to_text(json::object{
    {"openapi", "3.1.0"},
    {"info",
     {{"title", "DeepInfer"},
      {"version", "1"},
      {"description", "An OpenAI-style API, with the additions of DeepSeek and vLLM that it "
                      "names. Keys are needed where the server has been given some."}}},
    {"paths", std::move(paths)},
    {"security", security},
    {"components",
     json::object{{"schemas", std::move(*schemas)}, {"securitySchemes", std::move(schemes)}}}});
}

}  // namespace deepinfer
