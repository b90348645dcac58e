#!/usr/bin/env bash
# Builds everything into bin/: the programs of cmd/, the engine (kith-k8s) and its runtime parts.
# A part whose inputs (sources, go.mod, flags, Go version) hash as they did last time is left alone:
# linking 150 MB to find out that nothing changed takes longer than reading the sources.
# usage: build.sh [PART...]   parts: engine runtime pause cmd images (default: all)
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
bin=${KITH_BIN:-$root/bin}
stamps=$bin/.stamps
mkdir -p "$bin/cni" "$bin/images" "$stamps"

# The tests use the same flags, so that the build cache is shared and filled once.
export GOFLAGS="-trimpath -buildvcs=false"
export CGO_ENABLED=0
ldflags="-s -w"
go_version=$(go env GOVERSION)
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
k8s=$(sed -n 's/^\s*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' engine/go.mod)

# inputs PATH... : the files that decide what a part becomes; tests do not. Nested modules are not part of
# the module around them, so each caller names the folders that are.
inputs() {
  local there=() path
  for path in "$@"; do [ ! -e "$path" ] || there+=("$path"); done
  find "${there[@]}" -type f ! -name '*_test.go' ! -path '*/testdata/*' -print0 | sort -z | xargs -0 sha256sum
}

# fresh NAME OUTPUT HASH : true if OUTPUT was built from inputs with that hash
fresh() { [ -e "$2" ] && [ "$(cat "$stamps/$1" 2>/dev/null)" = "$3" ]; }

# part NAME OUTPUT INPUTS-TEXT COMMAND... : runs COMMAND unless OUTPUT is fresh
part() {
  local name=$1 out=$2 hash
  hash=$({ echo "$go_version $GOFLAGS $ldflags"; printf '%s\n' "$3" "${*:4}"; } | sha256sum | cut -d' ' -f1)
  if fresh "$name" "$out" "$hash"; then return; fi
  echo "build $name"
  local t=$SECONDS
  "${@:4}"
  echo "$hash" > "$stamps/$name"
  echo "      $name: $((SECONDS - t)) s, $(du -h "$out" | cut -f1)"
}

gobuild() { (cd "$1" && go build -ldflags "$2" -o "$3" "$4"); }

build_runtime() {
  local in m=engine/runtime t
  part kith-pull "$bin/kith-pull" "$(inputs $m/containerd)" gobuild $m/containerd "$ldflags" "$bin/kith-pull" ./pull
  in=$(inputs $m/containerd/go.mod $m/containerd/go.sum)
  for t in containerd containerd-shim-runc-v2 ctr; do
    part $t "$bin/$t" "$in" gobuild $m/containerd "$ldflags" "$bin/$t" github.com/containerd/containerd/v2/cmd/$t
  done
  in=$(inputs $m/runc)
  # runc enters namespaces in C before Go's runtime starts, so it alone needs cgo; static, so that the host's libc does not matter.
  CGO_ENABLED=1 part runc "$bin/runc" "$in" \
    env GOFLAGS="$GOFLAGS -tags=seccomp,netgo,osusergo" bash -c "cd $m/runc && go build -ldflags '$ldflags -extldflags -static -X main.version=1.5.2' -o '$bin/runc' github.com/opencontainers/runc"
  in=$(inputs $m/cni)
  for t in main/bridge main/loopback main/ptp ipam/host-local meta/portmap; do
    part cni-"${t##*/}" "$bin/cni/${t##*/}" "$in" gobuild $m/cni "$ldflags" "$bin/cni/${t##*/}" github.com/containernetworking/plugins/plugins/$t
  done
}

build_pause() {
  local in
  in=$(inputs engine/pause)
  part pause "$bin/images/pause.tar" "$in" bash -c "
    set -e
    tmp=\$(mktemp -d); trap 'rm -rf \$tmp' EXIT
    cd engine && go build -ldflags '$ldflags' -o \$tmp/pause ./pause
    go run ./pause/archive -image kith.dev/pause:1 -binary \$tmp/pause -out '$bin/images/pause.tar'"
}

build_engine() {
  local in x
  in=$(find engine -mindepth 1 -maxdepth 1 ! -name runtime ! -name pause -print0 | sort -z | xargs -0 -n1 find | sort -u | grep -E '\.(go|mod|sum)$' | grep -v _test.go | xargs sha256sum)
  # What kubectl and nodes report as the version of Kubernetes; without it they say v0.0.0-master.
  x="-X k8s.io/component-base/version.gitVersion=$k8s -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$k8s" | cut -d. -f2) -X k8s.io/component-base/version.gitTreeState=clean"
  part kith-mark "$bin/cni/kith-mark" "$(inputs engine/network/mark)" gobuild engine "$ldflags" "$bin/cni/kith-mark" ./network/mark
  part kith-k8s "$bin/kith-k8s" "$in" build_engine_now "$x"
}
build_engine_now() { gobuild engine "$ldflags $1 -X main.version=$version" "$bin/kith-k8s" .; }

build_cmd() {
  local in d name
  in=$(inputs go.mod go.sum core daemon cli tray assets cmd test/lab)
  for d in cmd/*/; do
    name=$(basename "$d")
    part "$name" "$bin/$name" "$in" build_cmd_now "$name"
  done
}
build_cmd_now() { gobuild . "$ldflags -X kith.dev/core/version.Version=$version -X kith.dev/core/version.Commit=$commit" "$bin/$1" "./cmd/$1"; }

# Images of small programs for the demo, the lab and the tests, made without a registry.
build_images() {
  local in
  in=$(inputs go.mod go.sum test/images)
  part test-images build/images/echo.tar "$in" go run ./test/images/build build/images
}

parts=("$@")
[ ${#parts[@]} -gt 0 ] || parts=(cmd engine runtime pause images)
for p in "${parts[@]}"; do
  case $p in
    engine | runtime | pause | cmd | images) "build_$p" ;;
    *) echo "build.sh: no part called $p (engine runtime pause cmd images)" >&2; exit 2 ;;
  esac
done
