#!/usr/bin/env bash
# Fuzzes every parser of bytes from the network, one target after the other: FUZZ_TIME each (10s), or exactly
# FUZZ_INPUTS inputs each. FUZZ_WORKERS processes at once (1). Arguments are names of targets, for example:
# FUZZ_INPUTS=10000000 scripts/fuzz.sh core/net/gateway/datapath:FuzzEgress core/find/discovery/mdns:FuzzParse
# What made a target fail is written below the package, in testdata/fuzz, and is a test from then on.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
limit=${FUZZ_TIME:-10s}
[ -z "${FUZZ_INPUTS:-}" ] || limit=${FUZZ_INPUTS}x

targets() {
  grep -rlE '^func Fuzz[A-Z]' --include='*_test.go' core cli daemon | sort | while read -r file; do
    grep -ohE '^func Fuzz[A-Za-z0-9]+' "$file" | sed "s|^func |$(dirname "$file"):|"
  done
}

failed=0
for target in ${@:-$(targets)}; do
  package=${target%%:*} name=${target#*:}
  # A finding is kept as it was found: making it smaller takes a minute each.
  out=$(go test "./$package" -run '^$' -fuzz "^$name\$" -fuzztime "$limit" -fuzzminimizetime 10x -parallel "${FUZZ_WORKERS:-1}" -timeout 0 2>&1) || {
    failed=1
    echo "$target: FOUND"
    printf '%s\n' "$out" | tail -n 40
    continue
  }
  if [[ $out == *"no fuzz tests to fuzz"* ]]; then
    failed=1
    echo "$target: there is no such target; there are" $(targets)
    continue
  fi
  printf '%s: %s\n' "$target" "$(printf '%s\n' "$out" | grep -E 'execs: [0-9]+' | tail -n 1 | sed -E 's/^fuzz: //')"
done
exit $failed
