#!/usr/bin/env bash
# Builds kith, kithd and kith-tray for macOS on both processors into bin/darwin-*/, without cgo, and checks what came out. kithd works
# there with a cluster that somebody else runs (engine kubeconfig); what needs Linux says so. EXPERIMENTAL: none of it ever ran on a Mac.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=${KITH_BIN:-$PWD/bin}
export GOFLAGS="-trimpath -buildvcs=false"
version=$(git describe --tags --always --dirty 2>/dev/null || echo unknown)
commit=$(git rev-parse HEAD 2>/dev/null || echo unknown)
ldflags="-s -w -X kith.dev/core/base/version.Version=$version -X kith.dev/core/base/version.Commit=$commit"
for arch in amd64 arm64; do
  out=$bin/darwin-$arch
  mkdir -p "$out"
  CGO_ENABLED=0 GOOS=darwin GOARCH=$arch go build -ldflags "$ldflags" -o "$out/" ./cmd/kith ./cmd/kithd ./cmd/kith-tray
  go run ./scripts/macho $arch "$out/kith" "$out/kithd" "$out/kith-tray"
done
