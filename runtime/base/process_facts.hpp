/// What the system tells of this process, under the names that every Prometheus client uses.
#pragma once

#include <string_view>
#include <vector>

namespace deepinfer {

struct process_fact {
  std::string_view name;
  std::string_view help;
  bool is_counter = false;
  double value = 0.0;
};

/// In a fixed order. What the system does not tell is 0: these read /proc.
std::vector<process_fact> process_facts();

}  // namespace deepinfer
