// Several chats at once: pieces are printed as they come, one request is cancelled on the way.
//   02_stream_and_cancel MODEL_DIR
#include <cstdio>
#include <string>
#include <vector>

#include "actors/node.hpp"

namespace {

constexpr std::chrono::seconds patience{60};

deepinfer::generate_request ask(const std::string& id, const std::string& question) {
  deepinfer::generate_request request;
  request.request_id = id;
  request.chat = R"({"messages": [{"role": "user", "content": ")" + question + R"("}]})";
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 64;
  return request;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: %s MODEL_DIR\n", argv[0]);
    return 2;
  }
  const auto engine = deepinfer::node::load({}, argv[1]);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }
  const auto client = (*engine)->connect();

  auto story = ask("story", "Write a short story about a boy called Tom.");
  story.sampling.max_tokens = 1500;
  story.sampling.ignore_eos = true;  // it would go on for long

  std::vector<deepinfer::stream> answers;
  for (const auto& request :
       {ask("count", "Count from 3 to 12."), ask("sum", "What is 7 + 5?"), story}) {
    auto opened = client.generate(request);
    if (!opened) {
      std::fprintf(stderr, "%s\n", opened.error().message.c_str());
      return 1;
    }
    answers.push_back(std::move(*opened));
  }

  for (auto& answer : answers) {
    std::printf("%s: ", answer.id().c_str());
    while (true) {
      const auto chunk = answer.next(patience);
      if (!chunk || !*chunk) break;
      std::printf("%s", (*chunk)->text.c_str());
      if ((*chunk)->finish) std::printf("  [%s]\n", name_of((*chunk)->finish->reason).data());
      if (answer.id() == "count" && (*chunk)->finish) client.cancel("story");
    }
  }
  return 0;
}
