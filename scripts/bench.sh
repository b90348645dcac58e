#!/usr/bin/env bash
# Measures on labs of its own, as root: table on the terminal, every value in build/bench.json, and a page with plots, build/bench.html. What a run
# before left there is compared with.
# Arguments go to the program, for example: scripts/bench.sh -only pods,many -rounds 4; -list shows the groups. QUICK=1 takes what people ask for first.
# scripts/bench.sh -against COMMIT [ARGUMENTS] builds that commit, too (minutes), and measures both by turns: which figures are worse beyond noise.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
if [ "$(id -u)" != 0 ]; then
  echo "the lab needs root, for its namespaces: sudo make bench" >&2
  exit 1
fi
mkdir -p build
args=()
[ -z "${QUICK:-}" ] || args+=(-quick)
trees=(.)
if [ "${1:-}" = -against ]; then
  commit=$(git rev-parse --verify --short=12 "${2:?-against needs a commit}^{commit}")
  tree=build/against/$commit
  if [ ! -d "$tree" ]; then
    git clone --quiet --shared --no-checkout . "$tree"
    git -C "$tree" checkout --quiet --detach "$commit"
  fi
  make -C "$tree" --no-print-directory build
  trees+=("$tree")
  args+=(-against "$tree")
  shift 2
fi
args+=("$@")
# kwok, and what its fake nodes and pods go through, as its authors have it.
(
  cd test/bench/kwok
  go build -ldflags "-s -w" -o ../../../build/kwok sigs.k8s.io/kwok/cmd/kwok
  stages=$(go list -m -f '{{.Dir}}' sigs.k8s.io/kwok)/kustomize/stage
  for stage in "$stages"/node/fast/node-*.yaml "$stages"/node/heartbeat-with-lease/node-*.yaml "$stages"/pod/fast/pod-*.yaml; do
    echo ---
    cat "$stage"
  done |
    # Pods without addresses: those of guests are of the range agreed on with their home, and any other has them made anew.
    sed '/{{ \$podIPs := PodIPsWith/,/phase: Running/{/phase: Running/!d}' > ../../../build/kwok.yaml
)
(cd test/bench/etcd && go build -ldflags "-s -w" -o ../../../build/etcd go.etcd.io/etcd/server/v3)
(cd test/bench/page && go build -ldflags "-s -w" -o ../../../build/benchpage .)
for tree in "${trees[@]}"; do
  [[ " ${args[*]} " = *" -only "* || " ${args[*]} " = *" -quick "* ]] || (cd "$tree" && scripts/helm.sh >/dev/null) # for the group nodes; three minutes, once
  (cd "$tree" && mkdir -p build && go build -o build/bench ./test/bench)
  [ ! -d "$tree/engine/test/storeload" ] || (cd "$tree/engine" && go build -ldflags "-s -w" -o ../build/storeload ./test/storeload)
  [ "$tree" = . ] || cp build/kwok build/kwok.yaml build/etcd "$tree/build/"
done
out=build/bench.json
for ((i = 0; i + 1 < ${#args[@]}; i++)); do [ "${args[i]}" != -out ] || out=${args[i + 1]}; done
rc=0
build/bench "${args[@]}" || rc=$?
if [[ $rc = 0 || -f $out ]] && [[ " ${args[*]} " != *" -list "* ]]; then
  build/benchpage "$out" "${out%.json}.html" && echo "plots: ${out%.json}.html"
fi
exit $rc
