#!/usr/bin/env bash
# Whether each test that docs/*.md and README.md name in backticks is there. Of a sub test only the function is looked for.
set -euo pipefail
cd "$(dirname "$0")/.."
tests=$(git ls-files -co --exclude-standard '*_test.go' | xargs -d '\n' grep -hoE '^func (Test|Fuzz)[A-Za-z0-9_]+' | sed 's/^func //' | sort -u)
missing=$(grep -ohE '`[^`]*\b(Test|Fuzz)[A-Z][A-Za-z0-9_]*[^`]*`' docs/*.md README.md | grep -oE '\b(Test|Fuzz)[A-Z][A-Za-z0-9_]*' | sort -u | comm -23 - <(echo "$tests"))
# What follows `-run` is the beginning of names.
for name in $missing; do
  grep -qE -- "-run $name\b" docs/*.md README.md && grep -q "^$name" <<<"$tests" || gone+=("$name")
done
[ -z "${gone:-}" ] || { echo "claims.sh: named in docs, and no test: ${gone[*]}" >&2; exit 1; }
