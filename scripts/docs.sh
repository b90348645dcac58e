#!/bin/sh
# Write build/man/*.{1,5,8} and docs/cli.md out of the programs' own tables. With --check, only say whether docs/cli.md
# is up to date. SOURCE_DATE_EPOCH dates the manual pages; without it, the last commit does.
set -eu
cd "$(dirname "$0")/.."
: "${SOURCE_DATE_EPOCH:=$(git log -1 --format=%ct 2>/dev/null || date +%s)}"
export SOURCE_DATE_EPOCH
reference=docs/cli.md
if [ "${1:-}" = --check ]; then
	fresh=$(mktemp -d)
	trap 'rm -rf "$fresh"' EXIT
	go run ./cli/man -man "$fresh/man" -markdown "$fresh/cli.md"
	diff -u "$reference" "$fresh/cli.md" || { echo "docs/cli.md is old: run scripts/docs.sh" >&2; exit 1; }
	exit
fi
go run ./cli/man -man build/man -markdown "$reference"
