#!/usr/bin/env bash
# Writes into docs/architecture.md which room uses which, as `go list` tells it. An arrow that others stand for is left out: where
# a uses b and b uses c, nothing is drawn from a to c. Fails when a room uses one above it. --check only says whether the page is up to date,
# its lists of rooms too: each directory with Go code of core/, daemon/, cli/, tray/, cmd/ and engine/ begins one line there, and no other does.
set -euo pipefail
cd "$(dirname "$0")/.."
page=docs/architecture.md
begin='<!-- rooms -->'
end='<!-- end of rooms -->'
fresh=$(mktemp)
trap 'rm -f "$fresh" "$fresh.page"' EXIT

if [ "${1:-}" = --check ]; then
  named=$(awk '/^## /{on = /^## The rooms$/} /^<!-- rooms -->$/{exit} /^```/{code = !code; next}
    on && code && $1 ~ /^(core|daemon|cli|tray|cmd|engine)(\/|$)/ && /^[a-z]/ {print $1}' "$page" | LC_ALL=C sort)
  there=$(find core daemon cli tray cmd engine -name '*.go' ! -name '*_test.go' ! -path '*/testdata/*' -printf '%h\n' | LC_ALL=C sort -u)
  wrong=$(LC_ALL=C comm -3 <(echo "$named") <(echo "$there") | sed -e $'s|^\t|not named: |' -e t -e 's|^|named twice, or gone: |')
  [ -z "$wrong" ] || { printf '%s, the rooms:\n%s\n' "$page" "$wrong" >&2; exit 1; }
fi

CGO_ENABLED=0 go list -f '{{.ImportPath}} {{join .Imports " "}}' ./core/... ./daemon/... ./cli/... ./tray/... | awk -v module=kith.dev/ '
  # A room is a directory; what generates code and what tests share is none.
  function room(path) {
    if (index(path, module) != 1) return ""
    path = substr(path, length(module) + 1)
    return path ~ /(^assets|^packaging|^test|test$|\/crds$|\/man$)/ ? "" : path
  }
  function level(r) { return r ~ /^core/ ? 0 : r ~ /^daemon/ ? 1 : 2 }
  function name(r) { gsub(/[^a-z0-9]/, "_", r); return r }
  {
    from = room($1)
    if (from == "") next
    rooms[from]
    for (i = 2; i <= NF; i++) if ((to = room($i)) != "") {
      uses[from, to]
      if (level(to) > level(from)) { print from " uses " to ", which is above it" > "/dev/stderr"; bad = 1 }
    }
  }
  END {
    if (bad) exit 1
    for (a in rooms) for (b in rooms) if ((a, b) in uses) reach[a, b]
    for (k in rooms) for (a in rooms) if ((a, k) in reach) for (b in rooms) if ((k, b) in reach) reach[a, b]
    for (a in rooms) for (b in rooms) if ((a, b) in uses) {
      plain = 1
      for (k in rooms) if (k != a && k != b && ((a, k) in reach) && ((k, b) in reach)) { plain = 0; break }
      if (plain) print "  " name(a) "[" a "] --> " name(b) "[" b "]"
    }
  }' | LC_ALL=C sort >"$fresh"
{
  sed "/^$begin\$/q" "$page"
  printf '```mermaid\nflowchart TD\n'
  cat "$fresh"
  printf '```\n'
  sed -n "/^$end\$/,\$p" "$page"
} >"$fresh.page"
if [ "${1:-}" = --check ]; then
  diff -u "$page" "$fresh.page" || { echo "$page is old: run scripts/rooms.sh" >&2; exit 1; }
else
  cat "$fresh.page" >"$page"
fi
