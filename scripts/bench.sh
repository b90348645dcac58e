#!/usr/bin/env bash
# Measures on labs of its own, as root: table on the terminal, every value in build/bench.json.
# Arguments go to the program, for example: scripts/bench.sh -only pods,many -rounds 4; -list shows the groups.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
if [ "$(id -u)" != 0 ]; then
  echo "the lab needs root, for its namespaces: sudo make bench" >&2
  exit 1
fi
mkdir -p build
# kwok, and what its fake nodes and pods go through, as its authors have it.
(
  cd test/bench/kwok
  go build -ldflags "-s -w" -o ../../../build/kwok sigs.k8s.io/kwok/cmd/kwok
  stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for stage in "$stages"/node/fast/node-*.yaml "$stages"/node/heartbeat-with-lease/node-*.yaml "$stages"/pod/fast/pod-*.yaml; do
    echo ---
    cat "$stage"
  done > ../../../build/kwok.yaml
)
[ -n "${1:-}" ] || scripts/helm.sh >/dev/null # for the group nodes; three minutes, once
go build -o build/bench ./test/bench
exec build/bench "$@"
