#!/usr/bin/env bash
# golangci-lint over the main module; the engine, where it would read all of Kubernetes for ten minutes, is left to
# go vet; and whether generated files are in step with their sources.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
mkdir -p build
lint=$root/build/golangci-lint
[ -x "$lint" ] && [ "$lint" -nt tools/lint/go.sum ] || (cd tools/lint && CGO_ENABLED=0 go build -trimpath -ldflags '-s -w' -o "$lint" github.com/golangci/golangci-lint/v2/cmd/golangci-lint)
CGO_ENABLED=0 "$lint" run --allow-parallel-runners --build-tags lab,soak ./...
scripts/generate.sh --check
