#include "runtime/core/victim.hpp"

namespace deepinfer {

namespace {

/// Less than zero: `a` goes first; zero: the rule does not tell them apart.
std::int64_t compare(victim_rule rule, const victim_candidate& a, const victim_candidate& b) {
  switch (rule) {
  case victim_rule::youngest: return 0;
  case victim_rule::longest_output: return b.outputs - a.outputs;
  case victim_rule::lowest_priority: return a.priority - b.priority;
  case victim_rule::lowest_cost:
    // Who frees nothing is no help at any price.
    if ((a.blocks > 0) != (b.blocks > 0)) return a.blocks > 0 ? -1 : 1;
    if (const auto cost = a.recompute * b.blocks - b.recompute * a.blocks; cost != 0) return cost;
    return a.references - b.references;
  }
  return 0;
}

}  // namespace

bool goes_first(victim_rule rule, const victim_candidate& a, const victim_candidate& b) {
  if (a.is_held != b.is_held) return a.is_held;
  const auto order = compare(rule, a, b);
  return order != 0 ? order < 0 : a.arrival > b.arrival;
}

}  // namespace deepinfer
