#!/usr/bin/env bash
# Whether the Go modules that are built together name one version of what they share. Go compiles a package once for all of them
# if it, and whatever it imports, is the same; with golang.org/x/sys in three versions all above it is compiled three times.
# With --raise, lifts each to the highest named.
set -euo pipefail
cd "$(dirname "$0")/.."
export GOFLAGS="-trimpath -buildvcs=false"
modules=(. engine engine/runtime/containerd engine/runtime/runc engine/runtime/cni)
# The kubelet and runc want cgroups in different versions. On the others nothing stands that more than one module has.
apart='github.com/opencontainers/cgroups|github.com/godbus/dbus/v5|github.com/cyphar/filepath-securejoin|cyphar.com/go-pathrs|k8s.io/pod-security-admission|github.com/moby/sys/userns|github.com/cilium/ebpf'

# named MODULE: what its go.mod requires: path, version, with what it has in its place: a path in a build is that of what was required
named() {
  awk '
    $1 == "require" && NF >= 3 { $0 = $2 " " $3 }
    $1 == "replace" && $3 == "=>" { $1 = ""; $0 = $0 }
    $2 == "=>" { if (NF == 4) put[$1] = $4; next }
    $1 ~ /^[a-z0-9.-]+\.[a-z]+\// && $2 ~ /^v[0-9]/ { has[$1] = $2 }
    END { for (path in has) print path, has[path] (path in put && put[path] != has[path] ? "=>" put[path] : "") }
  ' "$1/go.mod"
}

# Lines of path, highest version, and the modules that have another.
differ() {
  for m in "${modules[@]}"; do named "$m" | sed "s|\$| $m|"; done | grep -vE "^($apart) " |
    awk '{ key = $2; sub("-", "~", key); print $1, key, $2, $3 }' | # what is before a release sorts before it
    sort -k1,1 -k2,2V | awk '
      function out() { if (older != "") print path, version older }
      $1 != path { out(); path = $1; version = $3; older = same = "" }
      $3 != version { older = older same; same = ""; version = $3 }
      { same = same " " $4 }
      END { out() }'
}

case ${1:-} in
  '')
    different=$(differ)
    [ -z "$different" ] || { printf 'modules.sh: in different versions (run scripts/modules.sh --raise):\n%s\n' "$different" >&2; exit 1; }
    ;;
  --raise)
    for round in 1 2 3; do # what is raised may raise others
      [ -n "$(differ)" ] || break
      for m in "${modules[@]}"; do
        differ | awk -v m="$m" '{ for (i = 3; i <= NF; i++) if ($i == m) print $1 "@" $2 }' | (cd "$m" && xargs -r go get)
        (cd "$m" && go mod tidy)
      done
    done
    differ >&2
    ;;
  *) echo "modules.sh: no option $1 (--raise)" >&2; exit 2 ;;
esac
