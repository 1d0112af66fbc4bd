#!/usr/bin/env bash
# Builds the .deb, installs it (as root; else unpacks it) and asks the installed binary a question.
#   check_deb.sh BUILD_DIR
set -euo pipefail
build=$(cd "${1:?check_deb.sh BUILD_DIR}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$work" >"$work/cpack.log" 2>&1 || { cat "$work/cpack.log" >&2; exit 1; }
deb=$(ls "$work"/deepinfer_*.deb)
dpkg-deb --info "$deb" | grep -E '^ (Package|Version|Depends):'
dpkg-deb --contents "$deb" >"$work/contents"
for file in usr/bin/deepinfer usr/lib/systemd/system/deepinfer.service etc/deepinfer/serve.yaml \
            usr/share/man/man1/deepinfer.1 usr/share/deepinfer/models/tiny-v41/config.json; do
  grep -qE " \./$file$" "$work/contents" || { echo "the package lacks $file" >&2; exit 1; }
done
if [ "$(id -u)" = 0 ]; then
  dpkg -i "$deb" >"$work/dpkg.log" 2>&1 || { cat "$work/dpkg.log" >&2; exit 1; }
  binary=/usr/bin/deepinfer
  trap 'dpkg -P deepinfer >/dev/null 2>&1; rm -rf "$work"' EXIT
else
  dpkg-deb --extract "$deb" "$work/root"
  binary=$work/root/usr/bin/deepinfer
fi
answer=$(cd / && "$binary" chat --temperature 0 "What is 7 + 5?")
[ "$answer" = "7 + 5 = 12" ] || { echo "the installed binary answered '$answer'" >&2; exit 1; }
echo "the installed binary answers"
