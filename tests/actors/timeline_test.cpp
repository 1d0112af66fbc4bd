// The step trace of a whole node as a timeline.
#include <doctest/doctest.h>

#include <map>

#include "actors/node.hpp"
#include "runtime/base/json.hpp"
#include "tests/actors/read_answer.hpp"

using namespace deepinfer;

namespace {

struct slice {
  int step = 0;
  double begin = 0.0, end = 0.0;
};

/// Slices by the first word of their name, in the order of the file.
std::map<std::string, std::vector<slice>> slices_of(const json::value& trace) {
  std::map<std::string, std::vector<slice>> out;
  for (const auto& event : trace.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X") continue;
    const std::string name = event.at("name").as_string().c_str();
    const auto begin = event.at("ts").to_number<double>();
    out[name.substr(0, name.find(' '))].push_back({event.at("args").at("step").to_number<int>(),
                                                   begin,
                                                   begin + event.at("dur").to_number<double>()});
  }
  return out;
}

}  // namespace

TEST_CASE("in the timeline of a node at depth 2 the next plan lies under a running forward") {
  engine_settings settings;
  settings.engine.depth = 2;
  settings.engine.num_threads = 1;
  const std::string path = std::string(DI_SOURCE_DIR) + "/examples/models/tiny-v41";
  auto loaded = node::load(settings, path);
  REQUIRE_MESSAGE(loaded.has_value(), loaded.error().message);
  const auto& engine = **loaded;
  const auto client = engine.connect();
  REQUIRE(engine.pause().value());
  std::vector<stream> open;
  for (int i = 0; i < 16; ++i) {
    generate_request request;
    request.text = "Once there was";
    request.sampling.max_tokens = 60;
    request.sampling.ignore_eos = true;
    open.push_back(client.generate(request).value());
  }
  REQUIRE(engine.resume().value());
  for (auto& chunks : open) test::read_answer(chunks, std::chrono::minutes{5});
  REQUIRE(engine.pause().value());

  const auto trace = parse_json(engine.trace(4096).value());
  REQUIRE(trace.has_value());
  const auto slices = slices_of(*trace);
  const auto& forwards = slices.at("forward");
  CHECK(forwards.size() >= 60);
  for (const auto& [name, list] : slices) {
    CAPTURE(name);
    for (std::size_t i = 1; i < list.size(); ++i) {
      CHECK(list[i - 1].end <= list[i].begin);
      CHECK(list[i - 1].step < list[i].step);
    }
  }
  // Of plans that began while the forward of another step ran.
  int begun = 0, inside = 0;
  for (const auto& plan : slices.at("plan")) {
    for (const auto& forward : forwards) {
      if (forward.step == plan.step || plan.begin < forward.begin || plan.begin >= forward.end)
        continue;
      ++begun;
      inside += plan.end <= forward.end;
    }
  }
  CHECK(begun > 0);
  CHECK(10 * inside >= 9 * begun);
}
