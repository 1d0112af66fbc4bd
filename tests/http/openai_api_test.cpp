// Paths, keys, errors and operators' calls, over a scripted engine.
#include <doctest/doctest.h>

#include <algorithm>
#include <set>
#include <string>

#include "runtime/http/api_rules.hpp"
#include "runtime/http/dashboard.hpp"
#include "runtime/http/metrics_text.hpp"
#include "runtime/http/openapi.hpp"
#include "tests/http/api_fixture.hpp"

using namespace deepinfer;
using namespace deepinfer::test;

namespace {

std::string instance_of(std::string_view path) {
  std::string out(path);
  if (out.ends_with("{id}")) out.replace(out.size() - 4, 4, "tiny");
  return out;
}

}  // namespace

TEST_CASE("every path needs a key, but those that say nothing") {
  http_api_options options;
  api_bench bench(options, {"one", "bob=two"});
  for (const auto& route : api_routes()) {
    CAPTURE(route.path);
    const auto reply = bench.ask(std::string(route.method), instance_of(route.path), "{}");
    CHECK((reply->status == 401) == !route.is_open);
    if (reply->status == 401) CHECK(reply->code() == "unauthenticated");
  }
  CHECK(bench.ask("GET", "/nothing")->status == 401);
  CHECK(bench.ask("GET", "/health/live")->status == 200);
  options.open_metrics = true;
  api_bench open(options, {"one"});
  CHECK(open.ask("GET", "/metrics")->status == 200);
}

TEST_CASE("keys are read leniently and compared strictly") {
  api_bench bench({}, {"one", "bob=two", "cGFk=="});
  const auto status = [&](std::vector<http_header> headers) {
    return bench.ask("GET", "/v1/models", {}, std::move(headers))->status;
  };
  CHECK(status({{"Authorization", "Bearer one"}}) == 200);
  CHECK(status({{"Authorization", "bearer   two  "}}) == 200);
  CHECK(status({{"x-api-key", " one "}}) == 200);
  CHECK(status({{"Authorization", "Bearer cGFk=="}}) == 200);
  CHECK(status({}) == 401);
  CHECK(status({{"Authorization", "Bearer on"}}) == 401);
  CHECK(status({{"Authorization", "Bearer onee"}}) == 401);
  CHECK(status({{"Authorization", "Bearer bob=two"}}) == 401);
  CHECK(status({{"Authorization", "Basic one"}}) == 401);
  CHECK(status({{"Authorization", "Bearer"}}) == 401);
  CHECK(status({{"Authorization", "Bearer "}}) == 401);
  CHECK(status({{"Authorization", "Bearer one"}, {"authorization", "Bearer one"}}) == 401);
  CHECK(status({{"Authorization", "Bearer no"}, {"x-api-key", "one"}}) == 401);
}

TEST_CASE("keys of a file have comments, names and numbers") {
  const auto keys = api_keys::read({"a"}, "# people\n\nbob=b\n  c \r\n");
  REQUIRE(keys.has_value());
  const auto tenant = [&](const std::string& key) {
    http_request request;
    request.headers = {{"x-api-key", key}};
    return keys->tenant_of(request).value_or("nobody");
  };
  CHECK(tenant("a") == "key-1");
  CHECK(tenant("b") == "bob");
  CHECK(tenant("c") == "key-3");
  CHECK(tenant("# people") == "nobody");
  CHECK_FALSE(api_keys::read({""}).has_value());
  CHECK_FALSE(api_keys::read({" "}).has_value());
}

TEST_CASE("unknown paths and methods have the envelope, and 405 says what is allowed") {
  api_bench bench;
  const auto lost = bench.ask("GET", "/v2/nothing");
  CHECK(lost->status == 404);
  CHECK(lost->code() == "not_found");
  const auto wrong = bench.ask("GET", "/v1/chat/completions");
  CHECK(wrong->status == 405);
  CHECK(wrong->code() == "method_not_allowed");
  CHECK(wrong->header("Allow") == "POST, OPTIONS");
  CHECK(bench.ask("PUT", "/v1/internal/config")->header("Allow") == "GET, HEAD, POST, OPTIONS");
  CHECK(bench.ask("OPTIONS", "/v1/models")->status == 204);
  CHECK(bench.ask("OPTIONS", "/v1/models")->header("Allow") == "GET, HEAD, OPTIONS");
  CHECK(bench.ask("HEAD", "/v1/models")->status == 200);
  for (const auto& reply : {lost, wrong})
    CHECK(reply->header("Content-Type") == "application/json");
}

TEST_CASE("the page is shown to everyone, since it says nothing") {
  api_bench bench({}, {"key"});
  const auto page = bench.ask("GET", "/");
  CHECK(page->status == 200);
  CHECK(page->header("Content-Type") == "text/html; charset=utf-8");
  CHECK(page->body.find("<html") != std::string::npos);
}

TEST_CASE("every answer has an id of ours") {
  api_bench bench;
  std::set<std::string> ids;
  for (const auto* path : {"/v1/models", "/nothing", "/health", "/v1/chat/completions"})
    ids.insert(bench.ask("GET", path)->header("X-Request-Id"));
  CHECK(ids.size() == 4);
  CHECK_FALSE(ids.contains(""));
}

TEST_CASE("only JSON is read, and nothing said is JSON") {
  api_bench bench;
  const auto status = [&](std::vector<http_header> headers) {
    return bench.ask("POST", "/tokenize", R"({"prompt":1})", std::move(headers))->status;
  };
  CHECK(status({}) == 400);
  CHECK(status({{"Content-Type", "application/json; charset=utf-8"}}) == 400);
  CHECK(status({{"content-type", "Application/Vnd.x+JSON"}}) == 400);
  CHECK(status({{"Content-Type", "text/plain"}}) == 415);
  bench.engine->answers["drain"] = to_wire(text_reply{"0 left"});
  CHECK(bench.ask("POST", "/v1/internal/drain", "", {{"Content-Type", "text/plain"}})->status ==
        200);
  CHECK(status({{"Content-Type", "multipart/form-data; boundary=x"}}) == 415);
  CHECK(status({{"Content-Encoding", "gzip"}}) == 415);
  CHECK(status({{"Content-Encoding", "Identity"}, {"content-encoding", "br"}}) == 415);
  CHECK(status({{"Content-Encoding", "identity, gzip"}}) == 415);
  CHECK(status({{"Content-Encoding", "Identity"}}) == 400);
  CHECK(status({{"Content-Encoding", ""}}) == 400);
}

TEST_CASE("a body is refused before it comes, by its header") {
  api_bench bench({}, {"key"});
  http_request request;
  request.method = "POST";
  request.path = "/v1/completions";
  request.headers = {{"Content-Length", "30000000"}};
  CHECK(bench.api->admit(request).error().code == errc::unauthenticated);
  request.headers.push_back({"Authorization", "Bearer key"});
  CHECK(bench.api->admit(request).has_value());
  request.headers.push_back({"Content-Type", "text/plain"});
  CHECK(bench.api->admit(request).error().code == errc::unsupported_media_type);
}

TEST_CASE("pages of allowed origins may read answers") {
  http_api_options options;
  options.cors_origins = {"https://a.example"};
  api_bench bench(options, {"key"});
  const auto allowed =
    bench.ask("OPTIONS", "/v1/chat/completions", {},
              {{"Origin", "https://a.example"}, {"Access-Control-Request-Method", "POST"}});
  CHECK(allowed->status == 204);
  CHECK(allowed->header("Access-Control-Allow-Origin") == "https://a.example");
  CHECK(allowed->header("Access-Control-Allow-Methods") == "POST, OPTIONS");
  CHECK(allowed->header("Access-Control-Allow-Headers").starts_with("Authorization, Content-Type"));
  // Client libraries send headers of their own.
  const auto may_send = [&](const std::string& asked) {
    const auto reply = bench.ask("OPTIONS", "/v1/chat/completions", "",
                                 {{"Origin", "https://a.example"},
                                  {"Access-Control-Request-Method", "POST"},
                                  {"Access-Control-Request-Headers", asked}});
    return reply->header("Access-Control-Allow-Headers");
  };
  CHECK(may_send("authorization, x-stainless-os,x-stainless-lang") ==
        "authorization, x-stainless-os,x-stainless-lang");
  for (const auto& odd : {std::string("a;b"), std::string("a\tb"), std::string(3000, 'a')})
    CHECK(may_send(odd).starts_with("Authorization, Content-Type"));
  const auto other = bench.ask("GET", "/health/live", {}, {{"Origin", "https://b.example"}});
  CHECK(other->header("Access-Control-Allow-Origin").empty());
  CHECK(other->status == 200);
}

TEST_CASE("while there is no model, health tells how far it is and requests wait outside") {
  api_bench bench({}, {}, false);
  bench.api->note_loading(0.42, "shard 3/8");
  for (const auto* path : {"/health", "/health/ready"}) {
    const auto reply = bench.ask("GET", path);
    CHECK(reply->status == 503);
    CHECK(reply->json().at("status") == "loading");
    CHECK(reply->json().at("progress") == 0.42);
    CHECK(reply->json().at("stage") == "shard 3/8");
  }
  CHECK(bench.ask("GET", "/health/live")->status == 200);
  const auto refused = bench.chat();
  CHECK(refused->status == 503);
  CHECK(refused->code() == "not_ready");
  CHECK_FALSE(refused->header("Retry-After").empty());
  bench.api->attach(bench.engine);
  CHECK(bench.ask("GET", "/health")->status == 200);
  bench.api->begin_drain();
  CHECK(bench.ask("GET", "/health")->json().at("status") == "draining");
  CHECK(bench.ask("GET", "/health")->status == 503);
}

TEST_CASE("models are listed under all their names") {
  api_bench bench;
  const auto list = bench.ask("GET", "/v1/models")->json();
  CHECK(list.at("object") == "list");
  CHECK(list.at("data").as_array().size() == 2);
  CHECK(list.at("data").at(1).at("id") == "tiny-alias");
  CHECK(list.at("data").at(1).at("root") == "tiny");
  CHECK(bench.ask("GET", "/v1/models/tiny")->json().at("id") == "tiny");
  const auto lost = bench.ask("GET", "/v1/models/nope");
  CHECK(lost->status == 404);
  CHECK(lost->code() == "model_not_found");
  CHECK(lost->body.find("tiny, tiny-alias") != std::string::npos);
  CHECK(bench.chat(R"(,"model":"nope")")->code() == "model_not_found");
  CHECK(bench.ask("POST", "/tokenize", R"({"model":"nope","prompt":"a"})")->status == 404);
}

TEST_CASE("a model that has come since is found") {
  api_bench bench;
  CHECK(bench.chat(R"(,"model":"new")")->status == 404);
  bench.engine->model.names.emplace_back("new");
  bench.engine->answers["model"] = to_wire(bench.engine->model);
  bench.chat(R"(,"model":"new")");
  CHECK(bench.engine->requests.size() == 1);
}

TEST_CASE("the dashboard is given to everybody, before there is a model and without a key") {
  api_bench bench({}, {"secret"});
  const auto reply = bench.ask("GET", "/");
  CHECK(reply->status == 200);
  CHECK(reply->body == dashboard_page());
  const auto kind = std::find_if(reply->headers.begin(), reply->headers.end(),
                                 [](const auto& it) { return it.name == "Content-Type"; });
  REQUIRE(kind != reply->headers.end());
  CHECK(kind->value == "text/html; charset=utf-8");
}

TEST_CASE("operators see and cancel requests") {
  api_bench bench;
  request_list list;
  list.requests.resize(3);
  list.requests[0].id = "chatcmpl-1";
  list.requests[0].state = "decode";
  list.requests[1].id = "cmpl-2-0";
  list.requests[2].id = "cmpl-2-1";
  bench.engine->answers["requests"] = to_wire(list);
  const auto shown = bench.ask("GET", "/v1/internal/requests")->json();
  CHECK(shown.at("data").as_array().size() == 3);
  CHECK(shown.at("data").at(0).at("state") == "decode");
  CHECK(bench.ask("DELETE", "/v1/internal/requests/chatcmpl-1")->status == 200);
  CHECK(bench.engine->dropped == std::vector<std::string>{"chatcmpl-1"});
  CHECK(bench.ask("DELETE", "/v1/internal/requests/cmpl-2")->json().at("cancelled") == 2);
  const auto lost = bench.ask("DELETE", "/v1/internal/requests/cmpl");
  CHECK(lost->status == 404);
  CHECK(lost->code() == "not_found");
}

TEST_CASE("operators' verbs reach the engine with their arguments") {
  api_bench bench;
  node_stats stats;
  stats.steps = 5;
  bench.engine->answers["stats"] = to_wire(stats);
  bench.engine->answers["trace"] = to_wire(text_reply{R"({"traceEvents":[]})"});
  bench.engine->answers["drain"] = to_wire(text_reply{"0 left"});
  bench.engine->answers["resume"] = to_wire(text_reply{"taking requests"});
  bench.engine->answers["reset_prefix_cache"] = to_wire(text_reply{"reset"});
  bench.engine->answers["config"] = to_wire(text_reply{R"({"engine":{}})"});
  bench.engine->answers["config_set"] = to_wire(text_reply{"set"});
  const auto argument = [&] {
    return from_wire<number_call>(bench.engine->calls.back().second).value().value;
  };
  CHECK(bench.ask("GET", "/v1/internal/stats")->json().at("steps") == 5);
  CHECK(bench.ask("GET", "/debug/trace?steps=9")->body == R"({"traceEvents":[]})");
  CHECK(argument() == 9);
  CHECK(bench.ask("GET", "/debug/trace?steps=0")->status == 400);
  CHECK(bench.ask("GET", "/debug/trace?steps=x")->status == 400);
  CHECK(bench.ask("POST", "/v1/internal/drain", R"({"timeout_ms":250})")->status == 200);
  CHECK(argument() == 250);
  CHECK(bench.ask("POST", "/v1/internal/drain")->json().at("message") == "0 left");
  CHECK(bench.ask("POST", "/v1/internal/resume")->status == 200);
  CHECK(bench.ask("POST", "/v1/internal/reset_prefix_cache")->status == 200);
  CHECK(bench.ask("GET", "/v1/internal/config")->body == R"({"engine":{}})");
  CHECK(bench.ask("POST", "/v1/internal/config", R"({"key":"a.b","value":3})")->status == 200);
  const auto change = from_wire<config_change>(bench.engine->calls.back().second).value();
  CHECK(change.key == "a.b");
  CHECK(change.value == "3");
  CHECK(bench.ask("POST", "/v1/internal/config", R"({"key":"a"})")->status == 400);
  CHECK(bench.ask("POST", "/v1/internal/config", R"({"key":"a","value":[]})")->status == 400);
  CHECK(bench.ask("POST", "/stop_profile")->status == 400);
  CHECK(bench.ask("POST", "/start_profile")->status == 200);
  stats.steps = 12;
  bench.engine->answers["stats"] = to_wire(stats);
  CHECK(bench.ask("POST", "/stop_profile")->body == R"({"traceEvents":[]})");
  CHECK(argument() == 7);
}

TEST_CASE("the feed tells what has changed since the last event, until its reader leaves") {
  api_bench bench;
  bench.engine->answers["snapshot"] = to_wire(text_reply{"{\"newest_step\":41,\n\"a\":1}"});
  CHECK(bench.ask("GET", "/v1/internal/snapshot?step=7")->status == 200);
  CHECK(from_wire<number_call>(bench.engine->calls.back().second).value().value == 7);
  const auto reply = bench.ask("GET", "/v1/internal/events");
  CHECK(reply->events() == std::vector<std::string>{"{\"newest_step\":41, \"a\":1}"});
  bench.pass_time();
  CHECK(reply->events().size() == 2);
  CHECK(from_wire<number_call>(bench.engine->calls.back().second).value().value == 41);
  reply->pending = 4 << 20;
  bench.pass_time();
  CHECK(reply->events().size() == 2);
  reply->gone();
  bench.pass_time();
  const auto calls = bench.engine->calls.size();
  bench.pass_time();
  CHECK(bench.engine->calls.size() == calls);
  CHECK(bench.timers.empty());
}

TEST_CASE("metrics of node and process are one text without doubles") {
  const std::string node = "# HELP d:ready x\n# TYPE d:ready gauge\nd:ready{rank=\"0\"} 1\n"
                           "# HELP d:http_requests_total x\n# TYPE d:http_requests_total counter\n"
                           "d:http_requests_total{handler=\"/\"} 7\n";
  const std::string own = "# HELP d:ready x\n# TYPE d:ready gauge\nd:ready{rank=\"0\"} 0\n"
                          "# HELP d:http_requests_total x\n# TYPE d:http_requests_total counter\n"
                          "d:http_requests_total{handler=\"/\"} 3\n";
  CHECK(merged_metrics(node, own) ==
        "# HELP d:ready x\n# TYPE d:ready gauge\nd:ready{rank=\"0\"} 1\n"
        "# HELP d:http_requests_total x\n# TYPE d:http_requests_total counter\n"
        "d:http_requests_total{handler=\"/\"} 3\n");
  CHECK(merged_metrics(own, own) == own);
}

TEST_CASE("openapi.json has every path that is served, and no other") {
  const auto read = parse_json(openapi_text(16, 0)).value();
  std::set<std::string> described, served;
  for (const auto& [path, operations] : read.at("paths").as_object())
    for (const auto& [method, operation] : operations.as_object()) {
      described.insert(std::string(method) + " " + std::string(path));
      CHECK_FALSE(operation.at("summary").as_string().empty());
      CHECK(operation.at("responses").as_object().contains("200"));
    }
  for (const auto& route : api_routes()) {
    std::string method(route.method);
    for (auto& c : method) c = static_cast<char>(c | 0x20);
    served.insert(method + " " + std::string(route.path));
  }
  CHECK(described == served);
  // Every reference leads somewhere.
  const auto text = openapi_text(16, 0);
  const auto& schemas = read.at("components").at("schemas").as_object();
  const std::string mark = "#/components/schemas/";
  int references = 0;
  for (auto at = text.find(mark); at != std::string::npos; at = text.find(mark, at + 1)) {
    const auto begin = at + mark.size();
    CHECK(schemas.contains(text.substr(begin, text.find('"', begin) - begin)));
    ++references;
  }
  CHECK(references > 50);
}

TEST_CASE("openapi.json states the bounds of this server and its model") {
  http_api_options options;
  options.limits.max_n = 3;
  api_bench bench(options);
  const auto bound = [&](const char* schema) {
    return bench.ask("GET", "/openapi.json")->json().at("components").at("schemas").at(schema);
  };
  CHECK(bound("ChatRequest").at("properties").at("n").at("maximum") == 3);
  CHECK(bound("TokenId").at("maximum") == 2147483647);
  bench.ask("GET", "/v1/models");
  CHECK(bound("TokenId").at("maximum") == 999);
}

TEST_CASE("openapi.json names every field of a request that has an effect") {
  const auto read = parse_json(openapi_text(16, 0)).value();
  const auto& schemas = read.at("components").at("schemas").as_object();
  std::string completion = R"({"prompt":"a")";
  for (const auto& [name, schema] : schemas.at("CompletionRequest").at("properties").as_object())
    if (name != "prompt") completion += ",\"" + std::string(name) + "\":null";
  CHECK(read_openai_request(openai_endpoint::completion, completion + "}", {})->ignored.empty());
  std::string chat = R"({"messages":[])";
  for (const auto& [name, schema] : schemas.at("ChatRequest").at("properties").as_object())
    if (name != "messages") chat += ",\"" + std::string(name) + "\":null";
  CHECK(read_openai_request(openai_endpoint::chat, chat + "}", {})->ignored.empty());
}

TEST_CASE("openapi.json says which values are taken of a field that is otherwise refused") {
  const auto read = parse_json(openapi_text(16, 0)).value();
  for (const auto* schema : {"ChatRequest", "CompletionRequest"}) {
    const auto& fields =
      read.at("components").at("schemas").at(schema).at("properties").as_object();
    for (const auto* name : {"guided_json", "structured_outputs", "functions", "modalities"}) {
      CAPTURE(name);
      for (const auto& value : fields.at(name).at("enum").as_array()) {
        const auto rest = ",\"" + std::string(name) + "\":" + to_text(value) + "}";
        const auto chat = R"({"messages":[{"role":"user","content":"hi"}])" + rest;
        CHECK(read_openai_request(openai_endpoint::chat, chat, {}));
        CHECK(read_openai_request(openai_endpoint::completion, R"({"prompt":"a")" + rest, {}));
      }
    }
  }
}

TEST_CASE("what a header says is used only where it is well formed") {
  const auto trace = [](const std::string& value) {
    http_request request;
    request.headers = {{"traceparent", value}};
    return traceparent_of(request);
  };
  const std::string good = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  CHECK(trace(good) == good);
  CHECK(trace(good + "x").empty());
  CHECK(trace("00-00000000000000000000000000000000-b7ad6b7169203331-01").empty());
  CHECK(trace("zz-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01").empty());
  CHECK(query_number("a=1&steps=5", "steps", 3, 1, 9).value() == 5);
  CHECK(query_number("", "steps", 3, 1, 9).value() == 3);
  CHECK(query_number("st%65ps=%35", "steps", 3, 1, 9).value() == 5);
  for (const auto* query : {"steps=10", "steps=%1", "steps", "steps=", "steps=5+"})
    CHECK_FALSE(query_number(query, "steps", 3, 1, 9).has_value());
}

TEST_CASE("requests are counted by path, method and status, and none stays in flight") {
  metrics counts;
  api_bench bench({}, {}, true, &counts);
  const auto in_flight = [&] { return counts.value(metric::http_requests_in_flight); };
  std::vector<std::shared_ptr<remembered_reply>> replies;
  for (int i = 0; i < 20; ++i) replies.push_back(bench.chat(R"(,"stream":true)"));
  for (std::size_t i = 0; i < 10; ++i) bench.open(i).on_accepted();
  CHECK(in_flight() == 20);
  for (std::size_t i = 1; i < 20; ++i) replies[i]->gone();
  CHECK(in_flight() == 1);
  bench.open(0).on_chunk(final_chunk(finish_reason::stop));
  CHECK(in_flight() == 0);
  const auto total = [&](const char* handler, const char* method, const char* status) {
    return counts.value(metric::http_requests_total, {handler, method, status});
  };
  CHECK(total("/v1/chat/completions", "POST", "499") == 19);
  CHECK(total("/v1/chat/completions", "POST", "200") == 1);
  bench.ask("GET", "/v1/models/any");
  bench.ask("GET", "/a/path/of/somebody");
  bench.ask("BREW", "/a/pot");
  bench.api->refuse({errc::payload_too_large, "too large", {}});
  CHECK(total("/v1/models/{id}", "GET", "404") == 1);
  CHECK(total("other", "GET", "404") == 1);
  CHECK(total("other", "other", "404") == 1);
  CHECK(total("refused", "other", "413") == 1);
  CHECK(bench.ask("GET", "/metrics")
          ->body.find("http_requests_in_flight{model_name=\"\",engine="
                      "\"0\"} 0\n") != std::string::npos);
  CHECK(in_flight() == 0);
}
