#!/usr/bin/env bash
# The tests. unit: everything that needs no laptops, with the race detector. lab: stories with real clusters, as root.
# soak: the same, those that vary one of these (K3s, pods of both families, clusters of several nodes), and the long ones: faults at random, cuts
# of a minute, floods, and Redis, PostgreSQL, nginx and Prometheus (scripts/apps.sh);
# KITH_MINUTES=10 is how long those last under trouble (1 or 2).
# KITH_LABS is how many labs are up at a time (as many as there are processors, two at least: three on two were at a load of thirty).
# panels: the tray by a mouse in five desktops: Xfce, which is in the lab's tests, too, LXQt and MATE, which are in the long ones, GNOME and Plasma (scripts/deps.sh panels).
# KITH_TREE names a tree that a package was unpacked into (dpkg-deb -x); without, one is made of bin/.
# packages: the .deb in a Debian of its own, booted with systemd (SUITE=trixie for another than bookworm), as root. packages-soak: also an
# upgrade from the package of an earlier commit, which is built first.
# KITH_OFFERS=10000000 is how many offers TestNeverMoreThanIsShared (core/agree/sharing) weighs, instead of some thousands: ten million take 10 to 25 minutes.
# Arguments after the kind go to `go test`, for example: scripts/test.sh lab -run TestAnswers -v
# KITH_AGAIN=1 runs a test that failed once more, if no more than two did, and notes in build/again which passed then: for CI, whose machine has
# moments that no test waits for. What is noted there wants to be looked into.
# KITH_NO_SKIPS=1 makes a test that is skipped a failure (test/skips): for CI, which is root and has everything.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false"
kind=${1:-unit}; shift || true
CGO_ENABLED=0 go build -o build/skips ./test/skips
skips=("$PWD/build/skips")
[ -z "${KITH_NO_SKIPS:-}" ] || skips+=(-none)
for a in "$@"; do [[ $a != -v && $a != -test.v ]] || skips+=(-v); done
root=$PWD
# gotest ARGUMENTS: `go test`, with an eye on what is skipped
gotest() {
  if [ -z "${KITH_AGAIN:-}" ]; then
    go test -json "$@" | "${skips[@]}"
    return
  fi
  local failed flags=() a
  : > "$root/build/failed"
  if go test -json "$@" | "${skips[@]}" -failed "$root/build/failed"; then return; fi
  mapfile -t failed < "$root/build/failed"
  [ ${#failed[@]} -ge 1 ] && [ ${#failed[@]} -le 2 ] || return 1
  for a in "$@"; do [[ $a == ./* ]] || flags+=("$a"); done
  echo "once more: ${failed[*]}"
  for a in "${failed[@]}"; do # a package and a test
    go test -json "${flags[@]}" -run "^${a#* }\$" "${a% *}" | "${skips[@]}" || return 1
  done
  printf '%s\n' "${failed[@]}" >> "$root/build/again"
}
case $kind in
  unit)
    # What messages cost, and what tidying gives back, is measured in memory, of which the race detector takes some itself.
    cost='^(TestCost|TestAnApplyCostsWhatItCountsAs|TestTidyingGivesMemoryBack)$'
    # The race detector needs cgo. What tests build themselves (kithd, the tray) must not use it: with cgo each package would be compiled
    # once more, without it they take what `make build` has. Tests wait more than they compute: two packages for each processor.
    CGO_ENABLED=1 gotest -race -exec 'env CGO_ENABLED=0' -p "$((2 * $(nproc)))" -timeout 60m -skip "$cost" "$@" ./...
    CGO_ENABLED=0 gotest -timeout 60m -run "$cost" "$@" ./core/trust/contract ./core/provide/hosting/... ./core/consume/kubelet ./core/consume/netpolicy ./core/agree/peering ./core/trust/wire/... ./core/base/memory
    (cd test/bench/page && gotest ./...)
    # The engine is a module of its own, and all of Kubernetes takes minutes to compile for the race detector: only
    # the packages with goroutines of their own are; the rest shares the build's cache.
    modfile=$(scripts/patched.sh)
    cd engine
    GOFLAGS="$GOFLAGS $modfile"
    CGO_ENABLED=1 gotest -race -exec 'env CGO_ENABLED=0' -timeout 30m ./deciding/... ./egress/... ./listener/... ./containerd/... ./logs/... ./processors/...
    # Those that send packets wait more than they compute.
    CGO_ENABLED=0 gotest -timeout 30m -parallel 8 ./config/... ./datastore/... ./dns/... ./guests/... ./images/... ./join/... ./k3s/... ./metrics/... ./network/... ./pki/... ./policy/... ./routes/... ./storage/... ./userns/...
    (cd runtime/containerd && GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0 gotest -timeout 30m ./image/...)
    ;;
  lab | soak)
    if [ "$(id -u)" != 0 ]; then
      echo "the lab needs root, for its namespaces: sudo make e2e" >&2
      exit 1
    fi
    export PATH=$PWD/bin:$PATH
    # Stories call kubectl thousands of times.
    modfile=$(scripts/patched.sh)
    (cd engine && GOFLAGS="$GOFLAGS $modfile" CGO_ENABLED=0 go build -ldflags '-s -w' -o ../bin/lab/kubectl ./test/kubectl)
    scripts/axe.sh || echo "test.sh: without axe-core its tests are skipped" >&2
    tags=lab
    if [ "$kind" = soak ]; then
      tags=lab,soak
      scripts/apps.sh
      scripts/foreign.sh
      # The metrics-server that takes the place of the engine's; a module of its own, as it brings another Kubernetes.
      [ -x build/metrics-server ] && [ build/metrics-server -nt tools/metrics/go.sum ] ||
        (cd tools/metrics && CGO_ENABLED=0 go build -ldflags '-s -w' -o ../../build/metrics-server sigs.k8s.io/metrics-server/cmd/metrics-server)
    fi
    CGO_ENABLED=0 gotest -tags "$tags" -count=1 -p 1 -parallel "${KITH_LABS:-$(($(nproc) > 2 ? $(nproc) : 2))}" -timeout 5h "$@" ./test/e2e/...
    ;;
  packages | packages-soak)
    if [ "$(id -u)" != 0 ]; then
      echo "a machine with a systemd of its own needs root: sudo make packages" >&2
      exit 1
    fi
    # Real firewalls, from their packages; half a minute.
    [ $# -gt 0 ] || CGO_ENABLED=0 gotest -tags packages -count=1 -timeout 30m -run '^TestRealFirewalls' ./daemon/doctor
    tags=packages
    [ "$kind" = packages ] || tags=packages,soak
    CGO_ENABLED=0 gotest -tags "$tags" -count=1 -timeout 2h "$@" ./test/packages
    ;;
  panels)
    CGO_ENABLED=0 gotest -tags lab,panels -count=1 -timeout 2h -run "^(TestPanels|TestServersWithoutButtons)$" "$@" ./test/e2e/panel
    ;;
  *)
    echo "test.sh: no kind of test called $kind (unit lab soak packages packages-soak panels)" >&2
    exit 2
    ;;
esac
