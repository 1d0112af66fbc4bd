#!/usr/bin/env bash
# Installs the Debian packages of debian-build-deps.txt (and those named as arguments) that are
# missing, as root or with sudo. Where it may not, it says which are missing and exits with 2.
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mapfile -t wanted < <(grep -vE '^(#|$)' "$here/debian-build-deps.txt"; printf '%s\n' "$@" | grep . || true)

if ! command -v dpkg-query >/dev/null; then
  echo "This is not a Debian system: please install the equivalents of: ${wanted[*]}" >&2
  exit 0  # the build itself will say what it cannot find
fi
present=$(dpkg-query -W -f='${db:Status-Abbrev} ${Package}\n' "${wanted[@]}" 2>/dev/null | sed -n 's/^ii  *//p' || true)
missing=()
for package in "${wanted[@]}"; do
  grep -qx -- "$package" <<<"$present" || missing+=("$package")
done
[ ${#missing[@]} -eq 0 ] && exit 0

run=()
if [ "$(id -u)" -ne 0 ]; then
  if command -v sudo >/dev/null && { [ -t 0 ] || sudo -n true 2>/dev/null; }; then
    run=(sudo)
  else
    echo "These packages are missing and this user may not install them. Ask an administrator for:" >&2
    echo "  apt-get install -y --no-install-recommends ${missing[*]}" >&2
    exit 2
  fi
fi
echo "Installing Debian packages: ${missing[*]}" >&2
"${run[@]}" apt-get update -qq >&2
"${run[@]}" env DEBIAN_FRONTEND=noninteractive \
  apt-get install -y -qq --no-install-recommends "${missing[@]}" >&2
