#!/usr/bin/env bash
# Fetches axe-core, which looks at the page of `kith web` for what keeps people from using it (MPL-2.0; for tests alone), to build/axe.min.js.
set -euo pipefail
cd "$(dirname "$0")/.."
version=4.14.1
sum=FHfa+lmNjQZfJz1q8wKqIDwC6DExcHt/pkjNQb09a3NPjCKg2rhu5qb2S4r76ASyFNNtuFooJpZe37OgudVGtQ==
mkdir -p build
[ "$(cat build/axe.version 2>/dev/null)" != "$version $sum" ] || exit 0
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
if command -v npm >/dev/null; then
  (cd "$dir" && npm pack --silent "axe-core@$version" >/dev/null)
else
  curl -sSfL -o "$dir/axe-core-$version.tgz" "https://registry.npmjs.org/axe-core/-/axe-core-$version.tgz"
fi
got=$(openssl dgst -sha512 -binary "$dir/axe-core-$version.tgz" | base64 -w0)
if [ "$got" != "$sum" ]; then
  echo "axe.sh: axe-core $version has another sum than is known: $got" >&2
  exit 1
fi
tar -xzf "$dir/axe-core-$version.tgz" -C "$dir" package/axe.min.js
mv "$dir/package/axe.min.js" build/axe.min.js
echo "$version $sum" >build/axe.version
