#!/usr/bin/env bash
# Upstream's own tests of Kubernetes in the lab, as root: with every pod of theirs at a peer (abroad), and on a laptop alone
# (home). What they leave is in build/conformance/results; docs/conformance.md is written from it.
# usage: conformance.sh [all | build | RUN | again RUN | sample [LIST] | mcs | report]
# RUN: abroad, home, or one of the further sets, all with every pod at a peer: networkpolicy, node, apps, scheduling; kubelet, which is
# virtual-kubelet's own tests; and foreign, those of the network with their pods in a cluster that is not Kith's (scripts/foreign.sh).
# mcs: the conformance suite of Multi-Cluster Services between two laptops, with the report. It is a Go module of upstream's; where go cannot get
# that, MCS_SUITE names the directory conformance of a checkout of kubernetes-sigs/mcs-api; of one that is no checkout MCS_VERSION says what it is.
# sample: the tests that LIST names (test/conformance/sample.txt), with every pod at a peer; none of them may fail.
# again: of a run that is over those that FOCUS names, once more; what comes of them replaces what was. A run may be made in pieces so.
# PASSES=123: the first is of most tests, the second of those that want to be alone, the third runs again what failed for no
# known reason; PASSES=2 beside PASSES=13, with another KITH_LAB, takes less time.
# PROCESSES=12 tests at a time; FOCUS=REGEXP only those that match; KEEP=1 leaves the lab up.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out=$root/build/conformance
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0 PATH=$root/bin:$PATH
kubernetes=$(sed -n 's/^\s*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' engine/go.mod)
# Of features that are Alpha or Beta nothing is asked.
beyond='!NodeConformance && Feature: isEmpty && !Disruptive && !Flaky && !Alpha && !Beta'
# wanted RUN: the labels of its tests
wanted() {
  case $1 in
    abroad | home | sample) echo '(NodeConformance || (Conformance && (sig-apps || sig-network || sig-storage || sig-cli))) && Feature: isEmpty && !Disruptive' ;;
    networkpolicy) echo 'Feature: isSubsetOf {NetworkPolicy} && Feature: containsAny {NetworkPolicy}' ;;
    node) echo "sig-node && !Conformance && $beyond" ;;
    apps) echo "sig-apps && !Conformance && $beyond" ;;
    scheduling) echo "sig-scheduling && $beyond" ;;
    *) return 1 ;;
  esac
}
LAB=${KITH_LAB:-conformance}
lab() { kith-lab --lab "$LAB" "$@"; }
on() { local laptop=$1; shift; lab exec "$laptop" -- "$@"; }

# program NAME MODULE COMMAND... : runs COMMAND in MODULE, which makes $out/NAME, unless that is newer than what decides it
program() {
  [ ! "$out/$1" -nt "$2/go.sum" ] || [ ! "$out/$1" -nt engine/go.mod ] || return 0
  echo "build $1"
  (cd "$2" && "${@:3}")
}
built() { program "$1" tools/conformance go build -ldflags "-s -w ${3:-}" -o "$out/$1" "$2"; }

build() {
  local modules
  scripts/deps.sh conformance
  mkdir -p "$out"
  program e2e.test tools/conformance go test -c -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$kubernetes" -o "$out/e2e.test" k8s.io/kubernetes/test/e2e
  built ginkgo github.com/onsi/ginkgo/v2/ginkgo
  built agnhost k8s.io/kubernetes/test/images/agnhost
  built nnp k8s.io/kubernetes/test/images/nonewprivs
  built regression-issue-74839 k8s.io/kubernetes/test/images/regression-issue-74839
  (cd engine && go build -ldflags '-s -w' -o "$out/pause" ./pause)
  go build -o "$out/report" ./test/conformance/report
  modules=$(cd tools/conformance && go list -m -f '{{.Dir}}' k8s.io/kubernetes)
  go run ./test/conformance/images -programs "$out" -kubernetes "$modules" -out "$out/images.tar"
}

# until_ok SECONDS COMMAND...: tries again until it succeeds; the last try's output is shown when it never does.
until_ok() {
  local deadline=$((SECONDS + $1)) out; shift
  until out=$("$@" 2>&1); do
    if ((SECONDS >= deadline)); then printf 'gave up on: %s\n%s\n' "$*" "$out" >&2; return 1; fi
    sleep 0.2
  done
}

# laptops RUN: the lab that a run wants
laptops() {
  if [ "$1" = home ]; then tests_at 1; else tests_at 2; peered alice bob "${plenty[@]}"; pinned; fi
}
# tests_at N: N laptops with the tests' images, and the tests at alice
tests_at() {
  lab up "$1" --image "$out/images.tar" --set 'guestImages=["registry.k8s.io/*"]' --set share=100%
  # The laptop does not see this directory, perhaps: it gets copies.
  for f in e2e.test ginkgo; do on alice sh -c "cat > /var/lib/$f && chmod +x /var/lib/$f" <"$out/$f"; done
  on alice sh -c 'ln -sf "$(command -v kith-k8s)" /var/lib/kubectl && mkdir -p /var/lib/results'
}
down() { [ -n "${KEEP:-}" ] || lab down; }

# peered CONSUMER PROVIDER AMOUNTS: the provider hosts for the consumer
peered() {
  local consumer=$1 provider=$2 code; shift 2
  on "$consumer" kith peer "$provider" "$@" --wait=false
  until_ok 20 on "$provider" sh -c 'kith requests -o json | grep -q "\"id\""'
  code=$(on "$provider" kith requests -o json | sed -n 's/.*"code": *"\([0-9]*\)".*/\1/p') # the first time
  on "$provider" kith accept "$consumer" --yes
  [ -z "$code" ] || on "$consumer" kith peer "$provider" --code "$code"
  until_ok 30 on "$consumer" kubectl wait --for=condition=Ready "node/kith-$provider" --timeout=1s
}
plenty=(--cpu 2 --memory 8Gi --pods 110 --ephemeral-storage 20Gi)
# pinned: everything that the tests make goes to bob
pinned() {
  on alice kubectl apply -f - <test/conformance/pin.yaml
  on alice kubectl cordon alice
  until_ok 20 on alice sh -c 'kubectl taint node kith-bob kith.dev/peer- >/dev/null 2>&1; ! kubectl get node kith-bob -o jsonpath="{.spec.taints}" | grep -q kith.dev/peer'
}

# kubelet: virtual-kubelet's tests of the node kith-bob, of pods that name it themselves. Their images are nginx, foo, bar and baz,
# of which they want no more than that they run.
kubelet() {
  local dir=$out/results/kubelet image
  mkdir -p "$out"
  program kubelet.test test/conformance/kubelet go test -c -o "$out/kubelet.test"
  lab up 2 --set 'guestImages=["docker.io/library/*"]' --set share=100%
  peered alice bob "${plenty[@]}"
  for image in nginx foo bar baz; do
    on bob ctr --address /run/kith/k8s/containerd/containerd.sock -n k8s.io images tag kith.dev/pause:1 "docker.io/library/$image:latest"
  done
  on alice sh -c 'cat > /var/lib/kubelet.test && chmod +x /var/lib/kubelet.test' <"$out/kubelet.test"
  on alice kubectl apply -f - <test/conformance/kubelet/namespace.yaml
  rm -rf "$dir"
  mkdir -p "$dir/1"
  echo "logs: $dir"
  on alice /var/lib/kubelet.test -test.v=test2json -kubeconfig=/var/lib/kith/k8s/admin.kubeconfig -namespace=virtual-kubelet -node=kith-bob |
    go tool test2json >"$dir/1/tests.json" || true # that tests fail is no error of it
  echo "version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)" >"$dir/facts"
}

# suite: the conformance suite of Multi-Cluster Services, into $out/mcs.test. go holds it against its checksum database.
suite() {
  local own=$root/test/conformance/mcs
  mkdir -p "$out"
  cp "$own/go.mod" "$out/mcs.mod"
  cp "$own/go.sum" "$out/mcs.sum"
  [ -z "${MCS_SUITE:-}" ] || go mod edit -replace="sigs.k8s.io/mcs-api/conformance=$(realpath "$MCS_SUITE")" "$out/mcs.mod"
  (cd "$own" && go test -modfile="$out/mcs.mod" -mod=mod -c -o "$out/mcs.test" .) || {
    echo "conformance.sh: cannot build the suite $(suite_version) of sigs.k8s.io/mcs-api/conformance. Where go cannot get that module, give it a directory:" >&2
    echo "  git clone --branch $(MCS_SUITE='' suite_version) https://github.com/kubernetes-sigs/mcs-api && make conformance MCS=1 MCS_SUITE=\$PWD/mcs-api/conformance" >&2
    return 1
  }
}
suite_version() {
  if [ -n "${MCS_SUITE:-}" ] && [ -n "${MCS_VERSION:-}" ]; then
    echo "$MCS_VERSION"
  elif [ -z "${MCS_SUITE:-}" ]; then
    sed -n 's|.*sigs.k8s.io/mcs-api/conformance \(v[^ ]*\).*|\1|p' test/conformance/mcs/go.mod
  elif [ "$(git -C "$MCS_SUITE" rev-parse --show-toplevel 2>/dev/null || true)" != "$root" ]; then
    git -C "$MCS_SUITE" describe --tags --always --dirty 2>/dev/null || echo 'of unknown version'
  else
    echo 'of unknown version'
  fi
}

# contexts: a kubeconfig of both clusters for alice. No other machine reaches bob's API server: a port of bob's leads to it while the tests run.
contexts() {
  local laptop server
  echo '{apiVersion: v1, kind: Config, current-context: alice, contexts: ['
  for laptop in alice bob; do echo "{name: $laptop, context: {cluster: $laptop, user: $laptop}},"; done
  echo '], clusters: ['
  for laptop in alice bob; do
    server=127.0.0.1:6443
    [ "$laptop" = alice ] || server=$(lab ls | awk '$1 == "bob" { print $3 }'):7443
    echo "{name: $laptop, cluster: {server: 'https://$server', tls-server-name: kubernetes.default, certificate-authority-data: $(admin "$laptop" .clusters..certificate-authority-data)}},"
  done
  echo '], users: ['
  for laptop in alice bob; do
    echo "{name: $laptop, user: {client-certificate-data: $(admin "$laptop" .users..client-certificate-data), client-key-data: $(admin "$laptop" .users..client-key-data)}},"
  done
  echo ']}'
}
admin() { on "$1" kubectl config view --raw -o "jsonpath={$2}"; }

# mcs: the suite, at alice, against both laptops' clusters, each of which provides for the other and has the services of the suite's namespaces in common
# with it. The pods are at home, so of what is agreed little is used.
mcs() {
  local dir=$out/results/mcs laptop began=$SECONDS version few=(--cpu 100m --memory 64Mi --pods 5)
  version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
  lab up 2 --set share=50% --image "$out/mcs-images.tar"
  peered alice bob "${few[@]}"
  peered bob alice "${few[@]}"
  for laptop in alice bob; do
    on "$laptop" kith share --services 'mcs-*'
    until_ok 60 on "$laptop" kubectl get serviceexports,serviceimports -A
  done
  on bob socat TCP-LISTEN:7443,reuseaddr,fork TCP:127.0.0.1:6443 </dev/null & # ends with bob
  contexts | on alice sh -c 'umask 077 && cat >/var/lib/contexts.kubeconfig'
  until_ok 20 on alice kubectl --kubeconfig=/var/lib/contexts.kubeconfig --context=bob get node bob
  on alice sh -c 'cat >/var/lib/mcs.test && chmod +x /var/lib/mcs.test && mkdir -p /var/lib/results/1' <"$out/mcs.test"
  rm -rf "$dir"
  mkdir -p "$dir"
  echo "logs: $dir"
  on alice sh -c 'cd /var/lib/results/1 && exec /var/lib/mcs.test -kubeconfig=/var/lib/contexts.kubeconfig -contexts=alice,bob \
    -ginkgo.v -ginkgo.no-color -ginkgo.timeout=30m -ginkgo.junit-report=junit_01.xml' 2>&1 |
    tee "$dir/1.log" | grep --line-buffered -E '^(Will run|Ran |. \[|  \[(FAILED|TIMEDOUT))' || true # the report says what it means that tests fail
  fetch "$dir"
  {
    echo "version=$version"
    echo "suite=$(suite_version)"
    echo "asked=$(awk '/^Will run/ { n += $3 } END { print n }' "$dir/1.log")"
    echo "minutes=$(((SECONDS - began + 30) / 60))"
  } >"$dir/facts"
}

# pass NUMBER PROCESSES GINKGO-FLAGS... : one run of e2e.test; that tests fail is no error of it. The log has everything.
pass() {
  local n=$1 processes=$2; shift 2
  on alice /var/lib/ginkgo run --procs="$processes" --timeout=6h --no-color --silence-skips "$@" /var/lib/e2e.test -- \
    --kubeconfig=/var/lib/kith/k8s/admin.kubeconfig --kubectl-path=/var/lib/kubectl --provider=skeleton --disable-log-dump \
    --report-dir="/var/lib/results/$n" 2>&1 | tee "$dir/$n.log" | grep --line-buffered -E '^(Will run|Ran |. \[|\[sig-)' || true
}

# run KIND: the tests, in parallel, then those that want to be alone, then again and alone what failed for no known reason
run() {
  local kind=$1 again began=$SECONDS dir=$out/results/$1 only=() passes=${PASSES:-123} version wanted
  wanted=$(wanted "$1")
  version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
  [ -z "${FOCUS:-}" ] || only=(--focus="$FOCUS")
  [ -z "${KITH_AGAIN:-}" ] || only+=(--flake-attempts=2) # as scripts/test.sh does for CI; the log says which took two
  [[ $passes != *1* ]] || rm -rf "$dir"/[13-9]* "$dir"/facts
  [[ $passes != *2* ]] || rm -rf "$dir"/2*
  mkdir -p "$dir"
  echo "logs: $dir"
  [[ $passes != *1* ]] || pass 1 "${PROCESSES:-12}" --label-filter="($wanted) && !Serial" "${only[@]}"
  [[ $passes != *2* ]] || pass 2 1 --label-filter="($wanted) && Serial" "${only[@]}"
  fetch "$dir"
  [[ $passes == *3* ]] || return 0
  again=$("$out/report" -failed "$dir")
  [ -z "$again" ] || pass 3 1 --focus="$again"
  fetch "$dir"
  {
    echo "kubernetes=$kubernetes"
    echo "version=$version"
    echo "asked=$(awk '/^Will run/ { n += $3 } END { print n }' "$dir"/[12].log)"
    echo "processes=${PROCESSES:-12}"
    echo "minutes=$(((SECONDS - began + 30) / 60))"
    [[ $passes == *2* ]] || echo "note=the tests that want to be alone ran beside the others, in a lab of their own"
    [ "$kind" = home ] || remains
  } >"$dir/facts"
}
# again KIND: one more pass of a run that is over, on what there is now
again() {
  local dir=$out/results/$1 n=4
  : "${FOCUS:?which tests?}"
  while [ -e "$dir/$n.log" ]; do n=$((n + 1)); done
  pass "$n" "${PROCESSES:-1}" --label-filter="$(wanted "$1")" --focus="$FOCUS"
  fetch "$dir"
  echo "later$n=$(awk '/^Will run/ { n += $3 } END { print n }' "$dir/$n.log") at $(git describe --tags --always --dirty 2>/dev/null || echo unknown)" >>"$dir/facts"
}
fetch() { on alice tar c -C /var/lib/results . | tar x -C "$1"; }

# remains: what is left of the tests' namespaces a minute after the last one, and how often the peer was lost
remains() {
  until_ok 60 on alice sh -c '! kubectl get namespaces -l e2e-run -o name | grep -q .' 2>/dev/null || true
  sleep 60
  echo "linklost=$(lab logs alice kithd | grep -c 'peer unreachable' || true)"
  echo "twins=$(on bob kubectl get namespaces -l kith.dev/home-namespace -o name | grep -c . || true)"
  echo "twinnotes=$(on alice kubectl get node kith-bob -o yaml | grep -c 'twin.kith.dev/' || true)"
}

if [ "$(id -u)" != 0 ]; then
  echo "the lab needs root, for its namespaces: sudo make conformance" >&2
  exit 1
fi
case ${1:-all} in
  all) "$0" build; "$0" abroad; "$0" home; "$0" report ;;
  build) build ;;
  abroad | home | networkpolicy | node | apps | scheduling)
    trap down EXIT
    laptops "$1"
    run "$1"
    ;;
  again)
    wanted "${2:-}" >/dev/null || { echo "conformance.sh: again which run? abroad home networkpolicy node apps scheduling" >&2; exit 2; }
    trap down EXIT
    laptops "$2"
    again "$2"
    ;;
  foreign) # the lab is the test's own
    build
    failed=0
    go test -tags lab,soak -count=1 -timeout 90m -v -run '^TestUpstreamsNetworkTestsInAForeignCluster$' ./test/e2e || failed=$?
    echo "version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)" >"$out/results/foreign/facts"
    exit "$failed"
    ;;
  kubelet)
    trap down EXIT
    kubelet
    ;;
  mcs)
    scripts/deps.sh conformance
    suite
    go run ./test/conformance/images -mcs -out "$out/mcs-images.tar"
    trap down EXIT
    mcs
    "$0" report
    ;;
  sample)
    build
    trap down EXIT
    list=${2:-test/conformance/sample.txt}
    FOCUS=$(sed -e '/^#/d' -e 's/[][().*+?^${}|\\]/\\&/g' -e 's/$/$/' "$list" | paste -sd '|')
    export FOCUS
    laptops sample
    PASSES=1 run sample
    "$out/report" -expect "$(grep -vc '^#' "$list")" "$out/results/sample"
    ;;
  report)
    go build -o "$out/report" ./test/conformance/report
    "$out/report" -out docs/conformance.md "$out/results"
    ;;
  *) echo "conformance.sh: no part called $1 (all build abroad home networkpolicy node apps scheduling kubelet foreign mcs again sample report)" >&2; exit 2 ;;
esac
