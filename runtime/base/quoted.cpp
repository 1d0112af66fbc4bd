#include "runtime/base/quoted.hpp"

namespace deepinfer {

std::string_view cut_utf8(std::string_view text, std::size_t most) {
  if (text.size() <= most) return text;
  while (most > 0 && (static_cast<unsigned char>(text[most]) & 0xC0) == 0x80) --most;
  return text.substr(0, most);
}

std::string shortened(std::string_view text, std::size_t most) {
  std::string out(cut_utf8(text, most));
  if (out.size() < text.size()) out += "...";
  return out;
}

std::string one_line(std::string_view text, std::size_t most) {
  auto out = shortened(text, most);
  for (auto& c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return out;
}

std::string quoted(std::string_view text) {
  return '"' + one_line(text) + '"';
}

}  // namespace deepinfer
