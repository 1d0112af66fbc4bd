#!/bin/sh
# Makes build/venv, the Python of the black-box tests of the service, from requirements.txt. Does
# nothing where it is up to date. Exit 1 with a line on stderr where it cannot be had (offline, no
# venv module): those tests then say that they are skipped.
set -eu
cd "$(dirname "$0")/../.."
wanted=tests/service/requirements.txt
venv=build/venv

cmp -s "$wanted" "$venv/requirements.txt" && exit 0
mkdir -p build
if ! python3 -m venv "$venv" >"build/venv.log" 2>&1; then
  echo "setup_venv: python3 -m venv fails: $(tail -n 1 build/venv.log)" >&2
  exit 1
fi
if ! "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary :all: \
    --timeout 15 --retries 1 -r "$wanted" >"build/venv.log" 2>&1; then
  echo "setup_venv: pip cannot install $wanted: $(tail -n 1 build/venv.log)" >&2
  exit 1
fi
cp "$wanted" "$venv/requirements.txt"
