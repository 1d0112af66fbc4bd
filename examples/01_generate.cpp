// The shortest program: load a model, continue a text, print it.
//   01_generate MODEL_DIR "a text"
#include <cstdio>

#include "actors/node.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s MODEL_DIR TEXT\n", argv[0]);
    return 2;
  }
  const auto engine = deepinfer::node::load({}, argv[1]);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().message.c_str());
    return 1;
  }

  deepinfer::generate_request request;
  request.text = argv[2];
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 48;
  const auto answer = (*engine)->connect().generate_sync(request, std::chrono::seconds(60));
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", answer->text.c_str());
  return 0;
}
