#!/usr/bin/env bash
# Builds everything into bin/: the programs of cmd/, the engine (kith-k8s) and its runtime parts.
# A part whose inputs (sources, go.mod, flags, Go version) hash as they did last time is left alone:
# linking 150 MB to find out that nothing changed takes longer than reading the sources.
# usage: build.sh [PART...]   parts: engine runtime pause cmd images man (default: all)
#   KITH_BIN=bin     where to; with GOARCH=arm64 (not of images and man, which run what they build) another folder than this machine's own
#   KITH_STAMP=1     programs say the commit that is checked out, also those that would be the same but for that; for packages
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
bin=${KITH_BIN:-$root/bin}
stamps=$bin/.stamps
mkdir -p "$bin/cni" "$bin/images" "$stamps"

# The tests use the same flags, so that the build cache is shared and filled once.
export GOFLAGS="-trimpath -buildvcs=false"
export CGO_ENABLED=0
# The compiler's own garbage collector works a quarter as often: a quarter less to compute for some hundred megabytes more.
export GOGC=${GOGC:-400}
ldflags="-s -w"
go_version=$(go env GOVERSION)
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
stamp=${KITH_STAMP:+$version $commit}
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

# gobuild FOLDER LDFLAGS OUTPUT PACKAGE
gobuild() { (cd "$1" && go build -v -ldflags "$2" -o "$3" "$4" 2>&1) | follow; }

# follow shows how far a `go build -v` is, whose output it reads: one line that is written over on a terminal, one each quarter of a
# minute elsewhere. It counts in this shell (lastpipe), over all parts. Whatever else the build says is passed on.
shopt -s lastpipe
compiled=0 total=0 told=$SECONDS
[ -t 1 ] && terminal=1 || terminal=
follow() {
  local line status fetched=0
  while :; do
    line=''
    if IFS= read -r -t 1 line; then status=0; else status=$?; fi
    case $line in
      '') ;;
      'go: downloading '*) fetched=$((fetched + 1)) ;;
      *' '* | $'\t'*) [ -z "$terminal" ] || printf '\r\e[K'; printf '%s\n' "$line" >&2 ;;
      *) compiled=$((compiled + 1)) ;;
    esac
    if [ -n "$terminal" ]; then
      printf '\r\e[K      %s' "$(far "$fetched")"
    elif ((SECONDS - told >= 15)); then
      told=$SECONDS
      echo "      $(far "$fetched")"
    fi
    [ $status = 0 ] || [ $status -gt 128 ] || break # above 128 nothing came for a second; else it is the end
  done
  [ -z "$terminal" ] || printf '\r\e[K'
}

# far FETCHED: where the build is, in words
far() {
  local words="compiled $compiled packages"
  if ((total > 0 && compiled <= total)); then words="compiled $compiled of $total packages"; fi
  if (($1 > 0)); then words="modules fetched: $1$([ $compiled = 0 ] || echo ", $words")"; fi
  printf '%s, %d min %02d s' "$words" $((SECONDS / 60)) $((SECONDS % 60))
}

# count finds out how many packages are to be compiled in all, once: where the engine was built before it is not worth the seconds.
count() {
  [ ! -e "$stamps/kith-k8s" ] || return 0
  echo "The first build compiles all of Kubernetes. Later ones compile what changed."
  local m=engine/runtime stale='{{if .Stale}}{{.ImportPath}}@{{with .Module}}{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}{{end}}{{end}}'
  list() { (cd "$1" && go list -deps -f "$stale" "${@:2}" 2> >(follow >&2)); }
  total=$({
    list . ./cmd/... ./cli/man ./test/images/build
    GOFLAGS="$GOFLAGS $(scripts/patched.sh)" list engine .
    list engine ./network/mark ./pause
    list $m/containerd -tags="$without" ./pull "${containerd[@]}"
    list $m/runc github.com/opencontainers/runc
    list $m/cni "${plugins[@]/#/github.com/containernetworking/plugins/plugins/}"
  } | sort -u | wc -l)
}

# What containerd has and a laptop's does not use: other snapshotters, traces, Intel's cache allocation, readiness for a systemd that
# did not start it, plugins in WebAssembly.
without=no_tracing,no_devmapper,no_zfs,no_rdt,no_systemd,nri_no_wasm
containerd=(./containerd ./containerd-shim-runc-v2 github.com/containerd/containerd/v2/cmd/ctr)
plugins=(main/bridge main/loopback main/ptp ipam/host-local meta/portmap)

build_runtime() {
  local in m=engine/runtime t
  part kith-image "$bin/kith-image" "$(inputs $m/containerd)" gobuild $m/containerd "$ldflags" "$bin/kith-image" ./image
  in=$(inputs $m/containerd core/base/memory)
  for t in "${containerd[@]}"; do
    part "${t##*/}" "$bin/${t##*/}" "$in $without" build_containerd_now $m/containerd "$t"
  done
  part runc "$bin/runc" "$(inputs $m/runc)" build_runc_now $m/runc
  in=$(inputs $m/cni)
  for t in "${plugins[@]}"; do
    part cni-"${t##*/}" "$bin/cni/${t##*/}" "$in" gobuild $m/cni "$ldflags" "$bin/cni/${t##*/}" github.com/containernetworking/plugins/plugins/"$t"
  done
}
build_containerd_now() { GOFLAGS="$GOFLAGS -tags=$without" gobuild "$1" "$ldflags" "$bin/${2##*/}" "$2"; }
# runc enters namespaces in C before Go's runtime starts, so it alone needs cgo; static, so that the host's libc does not matter.
build_runc_now() {
  if [ "$(go env GOARCH)" != "$(go env GOHOSTARCH)" ]; then # Debian's cross compiler, and its libraries of the other architecture (scripts/deps.sh arm64)
    local triplet=aarch64-linux-gnu
    local -x CC=$triplet-gcc PKG_CONFIG_LIBDIR=/usr/lib/$triplet/pkgconfig
  fi
  CGO_ENABLED=1 GOFLAGS="$GOFLAGS -tags=seccomp,netgo,osusergo" \
    gobuild "$1" "$ldflags -extldflags -static -X main.version=1.5.2" "$bin/runc" github.com/opencontainers/runc
}

build_pause() { part pause "$bin/images/pause.tar" "$(inputs engine/pause)" build_pause_now; }
# One static program as an image archive (docker-archive format), without a registry or a base image, and without times, so that
# equal input gives an equal image.
build_pause_now() {
  local tmp config
  tmp=$(mktemp -d)
  gobuild engine "$ldflags" "$tmp/pause" ./pause
  pack() { tar -C "$tmp" --mtime=@0 --owner=0 --group=0 --numeric-owner --mode=go-w -cf "$@"; }
  pack "$tmp/layer.tar" pause
  printf '{"architecture":"%s","os":"linux","config":{"Entrypoint":["/pause"],"User":"65535:65535","WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:%s"]}}' \
    "$(go env GOARCH)" "$(sha256sum < "$tmp/layer.tar" | cut -d' ' -f1)" > "$tmp/config"
  config=$(sha256sum < "$tmp/config" | cut -d' ' -f1).json
  mv "$tmp/config" "$tmp/$config"
  printf '[{"Config":"%s","RepoTags":["kith.dev/pause:1"],"Layers":["layer.tar"]}]' "$config" > "$tmp/manifest.json"
  pack "$bin/images/pause.tar" "$config" layer.tar manifest.json
  rm -rf "$tmp"
}

build_engine() {
  local in x
  in=$({ find engine -mindepth 1 -maxdepth 1 ! -name runtime ! -name pause; printf '%s\n' core/{api,base,local/cluster/k3sconfig,net/hostnet,net/netplan,net/nodedevice}; } |
    sort | xargs -n1 find | sort -u | grep -E '\.(go|mod|sum|patch)$' | grep -v _test.go | xargs sha256sum)
  # What kubectl and nodes report as the version of Kubernetes; without it they say v0.0.0-master.
  x="-X k8s.io/component-base/version.gitVersion=$k8s -X k8s.io/component-base/version.gitMajor=1 -X k8s.io/component-base/version.gitMinor=$(echo "$k8s" | cut -d. -f2) -X k8s.io/component-base/version.gitTreeState=clean"
  part kith-mark "$bin/cni/kith-mark" "$(inputs engine/network/mark)" gobuild engine "$ldflags" "$bin/cni/kith-mark" ./network/mark
  part kith-k8s "$bin/kith-k8s" "$in" build_engine_now "$x" ${stamp:+"$stamp"}
}
build_engine_now() {
  local modfile
  modfile=$(scripts/patched.sh)
  GOFLAGS="$GOFLAGS $modfile" gobuild engine "$ldflags $1 -X main.version=$version" "$bin/kith-k8s" .
}

build_cmd() {
  local in d name
  in=$(inputs go.mod go.sum core daemon cli tray assets cmd test/lab)
  for d in cmd/*/; do
    name=$(basename "$d")
    part "$name" "$bin/$name" "$in" build_cmd_now "$name" ${stamp:+"$stamp"}
  done
}
build_cmd_now() { gobuild . "$ldflags -X kith.dev/core/base/version.Version=$version -X kith.dev/core/base/version.Commit=$commit -X kith.dev/core/base/version.Kubernetes=$k8s" "$bin/$1" "./cmd/$1"; }

# Images of small programs for the demo, the lab and the tests, made without a registry.
build_images() {
  local in
  in=$(inputs go.mod go.sum test/images)
  part test-images build/images/echo.tar "$in" build_images_now
}
build_images_now() {
  gobuild . "" "$root/build/write-images" ./test/images/build
  build/write-images build/images
}

# Manual pages, the shells' completions and an example of the configuration, for make install.
build_man() { part man build/man/kith.1 "$(inputs go.mod go.sum cli tray/command daemon/config core/api)" build_man_now; }
build_man_now() {
  gobuild . "" "$root/build/write-man" ./cli/man
  # The date on the pages is the last commit's.
  SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || date +%s)} \
    build/write-man -man build/man -completions build/completions -config build/config.yaml
}

parts=("$@")
if [ ${#parts[@]} = 0 ]; then
  parts=(cmd engine runtime pause images man)
  count
fi
for p in "${parts[@]}"; do
  case $p in
    engine | runtime | pause | cmd | images | man) "build_$p" ;;
    *) echo "build.sh: no part called $p (engine runtime pause cmd images man)" >&2; exit 2 ;;
  esac
done
