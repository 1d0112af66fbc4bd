/// Runs of the output parser over a text that comes in chunks.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/utf8.hpp"
#include "runtime/text/output_parser.hpp"

namespace deepinfer::test {

inline bool begins_with(const parsed_output& whole, const parsed_output& part) {
  if (!whole.reasoning.starts_with(part.reasoning)) return false;
  if (!whole.content.starts_with(part.content)) return false;
  if (part.calls.size() > whole.calls.size()) return false;
  for (std::size_t i = 0; i < part.calls.size(); ++i) {
    if (part.calls[i].name != whole.calls[i].name) return false;
    if (!whole.calls[i].arguments.starts_with(part.calls[i].arguments)) return false;
  }
  return true;
}

struct run {
  parsed_output output;
  std::vector<parsed_output> steps;  ///< what had been told after each chunk, and after the end
  bool whole_characters = true;      ///< every delta was valid UTF-8
};

inline run run_text(const output_mode& mode, std::string_view text,
                    const std::vector<std::size_t>& ends) {
  run done;
  output_parser parser(mode);
  std::size_t begin = 0;
  const auto take = [&](output_deltas& deltas) {
    for (const auto& delta : deltas) {
      done.output.add(delta);
      done.whole_characters = done.whole_characters && is_utf8(delta.text);
    }
    done.steps.push_back(done.output);
    deltas.clear();
  };
  output_deltas deltas;
  for (const auto end : ends) {
    parser.feed(text.substr(begin, end - begin), deltas);
    take(deltas);
    begin = end;
  }
  parser.finish(deltas);
  take(deltas);
  return done;
}

inline std::vector<std::size_t> every_byte(std::size_t size) {
  std::vector<std::size_t> ends;
  for (std::size_t i = 1; i <= size; ++i) ends.push_back(i);
  return ends;
}

inline std::string dsml_block(const std::string& inside) {
  return "<｜DSML｜ calls>\n" + inside + "</｜DSML｜ calls>";
}

inline parsed_output parse_whole(const std::string& text,
                                 parse_start start = parse_start::content) {
  return run_text({start, true, false, {}}, text, {text.size()}).output;
}

}  // namespace deepinfer::test
