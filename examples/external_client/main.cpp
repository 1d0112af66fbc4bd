// Asks a node on this machine to continue a text.
//   external_client PORT "a text"
#include <cstdio>
#include <cstdlib>

#include "actors/client.hpp"

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: %s PORT TEXT\n", argv[0]);
    return 2;
  }
  deepinfer::client_options node;
  node.port = static_cast<std::uint16_t>(std::atoi(argv[1]));
  node.connect_timeout = std::chrono::milliseconds(500);
  const auto client = deepinfer::client::connect(node);
  if (!client) {
    std::fprintf(stderr, "%s\n", client.error().message.c_str());
    return 1;
  }
  deepinfer::generate_request request;
  request.text = argv[2];
  request.sampling.temperature = 0.0f;
  request.sampling.max_tokens = 16;
  const auto answer = client->generate_sync(request, std::chrono::seconds(60));
  if (!answer) {
    std::fprintf(stderr, "%s\n", answer.error().message.c_str());
    return 1;
  }
  std::printf("%s\n", answer->text.c_str());
  return 0;
}
