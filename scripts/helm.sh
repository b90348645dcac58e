#!/usr/bin/env bash
# Builds Helm into build/helm, if it is not there, and prints where it is.
set -euo pipefail
cd "$(dirname "$0")/.."
helm=$PWD/build/helm
mkdir -p build
[ -x "$helm" ] && [ "$helm" -nt tools/helm/go.sum ] ||
  (cd tools/helm && CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" go build -ldflags '-s -w' -o "$helm" helm.sh/helm/v4/cmd/helm >&2)
echo "$helm"
