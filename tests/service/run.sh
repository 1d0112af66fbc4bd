#!/bin/sh
# run.sh BINARY ARGUMENTS...: pytest on the service tests with that deepinfer; 77 where it is skipped.
#   run.sh BINARY probe ARGUMENTS...: the probe
set -eu
here=$(cd "$(dirname "$0")" && pwd)
python=$here/../../build/venv/bin/python
DEEPINFER_BINARY=$(realpath "$1")
export DEEPINFER_BINARY PYTHONDONTWRITEBYTECODE=1
shift
if [ ! -x "$python" ] || [ ! -f "$here/../../build/venv/requirements.txt" ]; then
  echo "SKIPPED: build/venv is not there (tests/service/setup_venv.sh makes it, with PyPI in reach)"
  exit 77
fi
if [ "${1:-}" = probe ]; then
  shift
  exec "$python" "$here/probe.py" "$@"
fi
cd "$here"
exec "$python" -m pytest "$@"
