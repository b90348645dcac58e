#!/usr/bin/env bash
# Writes the custom resources' YAML and deep copies from the Go types; with --check only tells whether they are in step.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
gen() { (cd tools/gen && go build -trimpath -o "$root/build/controller-gen" sigs.k8s.io/controller-tools/cmd/controller-gen) && build/controller-gen object crd paths=./core/api/v1alpha1 "$@"; }
# sum DIR: of the definitions in it, in the order of their names
sum() { (cd "$1" && LC_ALL=C cat ./*.yaml | sha256sum | cut -d' ' -f1); }
mkdir -p build
if [ "${1:-}" = --check ]; then
  tmp=$(mktemp -d)
  trap 'rm -rf "$tmp"' EXIT
  gen output:crd:dir="$tmp" output:object:dir="$tmp"
  mv "$tmp/zz_generated.deepcopy.go" "$tmp/deepcopy"
  if ! diff -rq -x crds.go -x REVISION -x deepcopy core/api/v1alpha1/crds "$tmp" || ! cmp -s core/api/v1alpha1/zz_generated.deepcopy.go "$tmp/deepcopy"; then
    echo "the custom resources are not in step with their Go types: run make generate" >&2
    exit 1
  fi
else
  gen output:crd:dir=core/api/v1alpha1/crds output:object:dir=core/api/v1alpha1
  # A definition that changed is a new revision, so that an older Kith does not replace it by its own.
  crds=core/api/v1alpha1/crds
  read -r revision before < $crds/REVISION
  [ "$(sum $crds)" = "$before" ] || echo "$((revision + 1)) $(sum $crds)" > $crds/REVISION
fi
