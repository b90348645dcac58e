#!/usr/bin/env bash
# Writes into docs/architecture.md which floor of core uses which, as `go list` tells it. An arrow that others stand for is left out: where
# a uses b and b uses c, nothing is drawn from a to c. Fails when a package uses one of a floor above it, or core one of daemon/, cli/ or tray/.
# --check only says whether the page is up to date, its lists of rooms too: each directory with Go code of core/, daemon/, cli/, tray/, cmd/ and
# engine/ begins one line there, and no other does. (A floor is a directory with a doc.go and no other code.)
set -euo pipefail
cd "$(dirname "$0")/.."
# From the lowest to the highest.
floors='base trust net api local agree find consume provide mode'
page=docs/architecture.md
begin='<!-- rooms -->'
end='<!-- end of rooms -->'
fresh=$(mktemp)
trap 'rm -f "$fresh" "$fresh.page"' EXIT

if [ "${1:-}" = --check ]; then
  named=$(awk '/^## /{on = /^## The rooms$/} /^<!-- rooms -->$/{exit} /^```/{code = !code; next}
    on && code && $1 ~ /^(core|daemon|cli|tray|cmd|engine)(\/|$)/ && /^[a-z]/ {print $1}' "$page" | LC_ALL=C sort)
  there=$(find core daemon cli tray cmd engine -name '*.go' ! -name '*_test.go' ! -path '*/testdata/*' \
    ! -regex 'core/[a-z]*/doc.go' -printf '%h\n' | LC_ALL=C sort -u)
  wrong=$(LC_ALL=C comm -3 <(echo "$named") <(echo "$there") | sed -e $'s|^\t|not named: |' -e t -e 's|^|named twice, or gone: |')
  [ -z "$wrong" ] || { printf '%s, the rooms:\n%s\n' "$page" "$wrong" >&2; exit 1; }
fi

CGO_ENABLED=0 go list -f '{{.ImportPath}} {{join .Imports " "}}' ./core/... ./daemon/... ./cli/... ./tray/... | awk -v module=kith.dev/ -v floors="$floors" '
  BEGIN { n = split(floors, f, " "); for (i = 1; i <= n; i++) height["core/" f[i]] = i; height["daemon"] = n + 1; height["cli"] = height["tray"] = n + 2 }
  # The floor of a package; what generates code and what tests share is on none.
  function floor(path) {
    if (index(path, module) != 1) return ""
    path = substr(path, length(module) + 1)
    if (path ~ /(^assets|^docs|^packaging|^test|test$|\/crds$|\/man$)/) return ""
    split(path, part, "/")
    path = part[1] == "core" ? part[1] "/" part[2] : part[1]
    if (!(path in height)) { print path " is on no floor: scripts/rooms.sh names them" > "/dev/stderr"; bad = 1 }
    return path
  }
  function name(r) { gsub(/[^a-z0-9]/, "_", r); return r }
  {
    from = floor($1)
    if (from == "") next
    for (i = 2; i <= NF; i++) if ((to = floor($i)) != "" && to != from) {
      uses[from, to]
      if (height[to] > height[from]) { print $1 " uses " $i ", which is on a floor above it" > "/dev/stderr"; bad = 1 }
    }
  }
  END {
    if (bad) exit 1
    for (a in height) for (b in height) if ((a, b) in uses) reach[a, b]
    for (k in height) for (a in height) if ((a, k) in reach) for (b in height) if ((k, b) in reach) reach[a, b]
    for (a in height) for (b in height) if ((a, b) in uses) {
      plain = 1
      for (k in height) if (k != a && k != b && ((a, k) in reach) && ((k, b) in reach)) { plain = 0; break }
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
