#!/usr/bin/env bash
# Measures what the costliest messages that are taken cost (TestCost beside each parser) and writes the table into
# docs/security.md, between the marks. It takes some minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
rows=$(mktemp)
trap 'rm -f "$rows" "$rows.new" "$rows.log"' EXIT
for package in core/agree/peering core/trust/contract core/provide/hosting/door core/provide/hosting/guests core/consume/netpolicy core/trust/wire/codec core/consume/kubelet; do
  go test "./$package" -run '^TestCost$' -count=1 -v > "$rows.log" || { cat "$rows.log" >&2; exit 1; }
  sed -n 's/^.*row: |/|/p' "$rows.log" >> "$rows"
done
awk -v rows="$rows" '
  /<!-- cost: begin -->/ {
    print; print "| message | from | at most | memory, allocated | × its bytes | CPU |"; print "|---|---|---|---|---|---|"
    while ((getline line < rows) > 0) print line
    skip = 1
  }
  /<!-- cost: end -->/ { skip = 0 }
  !skip' docs/security.md > "$rows.new"
cat "$rows.new" > docs/security.md
