/// Runs the binary as a user would: arguments, standard input and environment in; exit code and
/// both outputs back. Only the DEEPINFER_ variables given are set. Ends the run after 60 s.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace deepinfer {

struct run_result {
  int code = -1;  ///< -1: it did not exit by itself
  std::string out;
  std::string err;
};

struct run_options {
  std::string input = {};
  std::map<std::string, std::string> environment = {};
  std::string out_path = {};     ///< write standard output there instead
  std::string err_path = {};     ///< and stderr
  std::vector<int> closed = {};  ///< standard streams that are not open at all
};

run_result run_binary(const std::vector<std::string>& args, const run_options& options = {});

/// `text` holds `part`; prints both otherwise.
bool holds(std::string_view text, std::string_view part);

}  // namespace deepinfer
