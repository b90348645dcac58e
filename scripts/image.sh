#!/usr/bin/env bash
# Makes the container image of kithd as one OCI archive for all processors, build/kith-image.tar, and the Helm chart that runs it,
# build/kith-VERSION.tgz. The same commit gives the same bytes; no registry is asked for anything.
# usage: image.sh [ARCH...]    ARCH: amd64, arm64 (default: both)
#   VERSION=    instead of what git says: that of the image's tag and of the chart
#   NO_BUILD=1  take the programs as they are in bin, and bin/linux-ARCH for another processor than this machine's
#   NO_CHART=1  the image alone
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# A tag v1.2.3 is that version, N commits later 1.2.3-N.gCOMMIT; before the first tag it is 0.0.0-gCOMMIT. Charts want it so (semver.org).
version() {
  local tag
  if tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
    sed -E 's/^v//; s/-([0-9]+)-(g[0-9a-f]+)$/-\1.\2/' <<<"$tag"
  else
    echo "0.0.0-g$(git rev-parse --short=7 HEAD)"
  fi
}
version=${VERSION:-$(version)}
host=$(go env GOHOSTARCH)
[ $# -gt 0 ] || set -- amd64 arm64
from=()
for arch in "$@"; do
  case $arch in amd64 | arm64) ;; *) echo "image.sh: no such processor: $arch (amd64 arm64)" >&2; exit 2 ;; esac
  bin=$root/bin
  [ "$arch" = "$host" ] || bin=$root/bin/linux-$arch
  [ -n "${NO_BUILD:-}" ] || KITH_BIN=$bin KITH_STAMP=1 GOARCH=$arch scripts/build.sh cmd
  from+=("$arch=$bin")
done
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0
mkdir -p build
go run ./packaging/image -o build/kith-image.tar -tag "kith.dev/kith:$version" -version "$version" -revision "$(git rev-parse HEAD)" "${from[@]}"
echo "build/kith-image.tar: kith.dev/kith:$version for $*, $(du -h build/kith-image.tar | cut -f1)"
[ -z "${NO_CHART:-}" ] || exit 0
helm=$(scripts/helm.sh)
"$helm" package packaging/chart/kith --version "$version" --app-version "$version" --destination build >/dev/null
echo "build/kith-$version.tgz: the chart"
