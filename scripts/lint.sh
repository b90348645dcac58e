#!/usr/bin/env bash
# golangci-lint over the main module, whether the custom resources are in step with their Go types, whether docs/claims.md is up to date and the
# tests that docs name are there, whether the list and the picture of the rooms are true, whether decisions read sentences, and whether the Go
# modules agree in what they share. The engine, where golangci-lint would read all of Kubernetes for ten minutes, has what `go test` vets.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build
lint=$root/build/golangci-lint
[ -x "$lint" ] && [ "$lint" -nt tools/lint/go.sum ] || (cd tools/lint && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
CGO_ENABLED=0 "$lint" run --allow-parallel-runners --build-tags lab,soak ./...
go run ./test/outcomes core daemon cli tray cmd
scripts/generate.sh --check
scripts/claims.sh --check
scripts/rooms.sh --check
scripts/modules.sh
# The chart, where Helm was built (scripts/helm.sh): that takes minutes, once.
[ ! -x build/helm ] || build/helm lint --quiet packaging/chart/kith --set podRange=10.42.0.0/16,serviceRange=10.43.0.0/16
