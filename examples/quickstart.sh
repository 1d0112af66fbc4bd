#!/usr/bin/env bash
# Installs what is missing, builds, and lets the embedded tiny model answer a prompt.
#   ./examples/quickstart.sh ["a prompt of your own"]
set -euo pipefail
case "${1-}" in
  -h|--help) sed -n '2,3p' "$0"; exit 0 ;;
esac
cd "$(dirname "${BASH_SOURCE[0]}")/.."
binary=build/release/bin/deepinfer

# The second run builds nothing: it only looks whether a source is newer than the binary.
is_current() {
  [ -x "$binary" ] &&
    [ -z "$(find CMakeLists.txt CMakePresets.json actors config kernels messages runtime \
              -newer "$binary" -type f \( -name '*.?pp' -o -name '*.cmake' -o -name '*.proto' \
              -o -name 'CMake*' \) -print -quit)" ]
}
if ! is_current; then
  ./config/packaging/install-deps.sh
  log=build/quickstart.log
  mkdir -p build
  echo "Building (release); the log is $log. The first build takes some minutes." >&2
  if ! { cmake --preset release && cmake --build --preset release --target deepinfer; } >"$log" 2>&1; then
    tail -n 30 "$log" >&2
    echo "The build failed; see $log" >&2
    exit 1
  fi
  touch "$binary"
fi

if [ $# -gt 0 ]; then
  "$binary" chat --temperature 0 -- "$*"
else
  "$binary" chat --temperature 0 --demo
fi
cat >&2 <<'END'

How to go on:
  ./examples/quickstart.sh "What is 7 + 5?"                    another prompt
  build/release/bin/deepinfer chat                             a conversation
  build/release/bin/deepinfer generate "In the beginning"      continue a text
  build/release/bin/deepinfer generate "Once" --trace-file t.json    open t.json in ui.perfetto.dev
  cmake --build --preset release --target examples             C++ programs, build/release/bin/example_*
  build/release/bin/deepinfer --help                           everything else
END
