#!/usr/bin/env bash
# Writes packaging/deb/copyright: what the programs of a package are made of, and under which licences. It reads what was built into bin/
# and the module cache. With --check it only tells whether the file is in step; a licence of an unknown kind is an error in either case.
#   KITH_BIN=bin     where the programs were built
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
bin=${KITH_BIN:-bin}
programs=()
while read -r mode from _; do
  [[ $mode != 0755 || $from != bin/* ]] || programs+=($bin/${from#bin/})
done <packaging/files
written=$(mktemp)
trap 'rm -f "$written"' EXIT
go run ./packaging/licences "${programs[@]}" >"$written"
if [ "${1:-}" = --check ]; then
  diff -u packaging/deb/copyright "$written" || { echo "packaging/deb/copyright is not in step with the programs: run scripts/licences.sh" >&2; exit 1; }
else
  cp "$written" packaging/deb/copyright
fi
