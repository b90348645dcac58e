#!/usr/bin/env bash
# Copies the modules that engine/patches changes into build/patched, applies the patches, and writes build/engine.mod, a go.mod of the engine
# that has it built from the copies. A patch that does not apply ends it. Prints the flag for go in engine/.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$PWD/build/patched
mkdir -p build
hash=$({ cat "$0" engine/go.mod engine/go.sum; find engine/patches -name '*.patch' -print0 | sort -z | xargs -0 sha256sum; } | sha256sum | cut -d' ' -f1)
if [ "$(cat "$out/.stamp" 2>/dev/null)" != "$hash" ]; then
  rm -rf "$out"
  mkdir -p "$out"
  cp engine/go.mod build/engine.mod
  cp engine/go.sum build/engine.sum
  for dir in $(find engine/patches -name '*.patch' -printf '%h\n' | sort -u); do
    module=${dir#engine/patches/}
    version=$(cd engine && go list -m -f '{{with .Replace}}{{.Version}}{{else}}{{.Version}}{{end}}' "$module")
    copy=$out/$module@$version # the programs tell by it what they were made of (packaging/licences)
    from=$(cd engine && go mod download -json "$module@$version" | sed -n 's/^\t"Dir": "\(.*\)",$/\1/p')
    mkdir -p "$(dirname "$copy")"
    cp -r --no-preserve=mode,ownership "$from" "$copy"
    for patch in "$dir"/*.patch; do
      patch -d "$copy" -p1 --fuzz=0 --silent --no-backup-if-mismatch < "$patch" ||
        { echo "$patch does not apply to $module as engine/go.mod has it: write it anew" >&2; exit 1; }
    done
    go mod edit -replace "$module=$copy" build/engine.mod
  done
  echo "$hash" > "$out/.stamp"
fi
echo "-modfile=$PWD/build/engine.mod"
