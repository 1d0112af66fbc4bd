#!/usr/bin/env bash
# Runs core_test with one wrong decision after the other (runtime/core/mutant.hpp) and prints which
# test finds each, and whether the exhaustive check alone does. Fails if one is found by none.
#   tests/mutants/run.sh [--jobs N] [NUMBER...]      default: all of table.txt
# One build serves all: there DI_MUTANT is the variable DEEPINFER_MUTANT of the environment.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
jobs=$(nproc)
if [ "${1:-}" = --jobs ]; then
  jobs=${2:?--jobs needs a number}
  shift 2
fi
numbers=("$@")
[ $# -gt 0 ] || mapfile -t numbers < <(cut -d' ' -f1 tests/mutants/table.txt)
unset DEEPINFER_TEST_FULL  # the usual effort has to be enough
build=build/mutants
header=$PWD/$build/mutant_number.hpp
exhaustive="every interleaving*"
least_by_exhaustive=6

mkdir -p "$build"
cat > "$build/new.hpp" <<'HEADER'
#pragma once
#include <cstdlib>
#include <type_traits>
namespace deepinfer {
inline int mutant_number() {
  static const int number = [] {
    const char* given = std::getenv("DEEPINFER_MUTANT");
    return given ? std::atoi(given) : 0;
  }();
  return number;
}
}  // namespace deepinfer
#define DI_MUTANT (std::is_constant_evaluated() ? 0 : mutant_number())
HEADER
cmp -s "$build/new.hpp" "$header" || cp "$build/new.hpp" "$header"
cmake -S . -B "$build" -G Ninja -DCMAKE_BUILD_TYPE=None -DDI_WITH_ACTORS=OFF \
  "-DCMAKE_CXX_FLAGS=-O1 -g0 -DDI_MUTANT_HEADER='\"$header\"'" > /dev/null
cmake --build "$build" --target core_test --parallel "$jobs" > "$build/build.txt" 2>&1 ||
  { cat "$build/build.txt"; exit 1; }

# Title of the first test case that fails, crashes or does not end; empty: all pass.
first_failure() {
  local mutant=$1 log=$build/out.txt title
  shift
  if DEEPINFER_MUTANT=$mutant timeout 300 "$build/bin/core_test" --abort-after=1 "$@" \
    > "$log" 2>&1; then
    return
  fi
  # A message shows the title of a case that passes, too.
  title=$(awk '/^TEST CASE:/ { sub(/^TEST CASE: */, ""); title = $0 }
               /ERROR:/ { exit } END { print title }' "$log")
  echo "${title:-(no title: see $log)}"
}

found=$(first_failure 0)
[ -z "$found" ] || { echo "core_test fails without a mutant: $found" >&2; exit 1; }

survivors=0 by_exhaustive=0
printf '%-3s %-66s %-10s %s\n' "no" "mutant" "exhaustive" "killed by"
for number in "${numbers[@]}"; do
  name=$(awk -v n="$number" '$1 == n { sub(/^[0-9]+ /, ""); print }' tests/mutants/table.txt)
  killer=$(first_failure "$number")
  alone=no
  # shellcheck disable=SC2254  # a pattern
  case $killer in
    $exhaustive) alone=yes ;;
    *) [ -z "$(first_failure "$number" --test-case="$exhaustive")" ] || alone=yes ;;
  esac
  [ "$alone" = no ] || by_exhaustive=$((by_exhaustive + 1))
  [ -n "$killer" ] || survivors=$((survivors + 1))
  printf '%-3s %-66s %-10s %s\n' "$number" "$name" "$alone" "${killer:-NOBODY}"
done
echo "${#numbers[@]} mutants, $survivors survive, $by_exhaustive die by the exhaustive check alone"
[ "$survivors" = 0 ] || exit 1
[ $# -gt 0 ] || [ "$by_exhaustive" -ge "$least_by_exhaustive" ]
