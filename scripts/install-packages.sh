#!/bin/bash
# Installs the named Debian packages that are missing. Does nothing, and needs no network, when all
# are there.
set -euo pipefail

missing=()
for package in "$@"; do
    status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
    [ "$status" = installed ] || missing+=("$package")
done
[ ${#missing[@]} -gt 0 ] || exit 0

echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
# Package lists may be old or absent; refresh them only if the first attempt fails.
apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null 2>&1 || {
    apt-get update -qq
    apt-get install -qq -y --no-install-recommends "${missing[@]}" >/dev/null
}
