#include "actors/node/standard_input.hpp"

#include "runtime/base/file.hpp"

namespace deepinfer {

result<std::string> read_standard_input() {
  DI_TRY(std::string text, read_file("/dev/stdin"), "standard input");
  return text;
}

}  // namespace deepinfer
