#!/usr/bin/env bash
# Builds the programs of a cluster that nobody of Kith wrote into build/foreign: Kubernetes' own, etcd, CoreDNS and flannel, unchanged but
# for backends of flannel's and CoreDNS' plugin for etcd, which do not build here. They are for the soak tests; the first time takes ten minutes.
set -euo pipefail
cd "$(dirname "$0")/../test/foreign"
export GOFLAGS="-trimpath -buildvcs=false" CGO_ENABLED=0 GOGC=${GOGC:-400}
to=../../build/foreign
mkdir -p "$to"
to=$(cd "$to" && pwd)
is=$(cat go.mod go.sum "../../scripts/foreign.sh" | sha256sum)
[ "$(cat "$to/.stamp" 2>/dev/null)" != "$is" ] || exit 0
k8s=$(sed -n 's/^\s*k8s.io\/kubernetes \(v[0-9.]*\).*/\1/p' go.mod)
version=k8s.io/component-base/version
ldflags="-s -w -X $version.gitVersion=$k8s -X $version.gitMajor=1 -X $version.gitMinor=$(cut -d. -f2 <<<"$k8s")"

# copy MODULE FILE PATTERN: the module with a list of imports that lacks what does not build
copy() {
  local at="$to/src/${1##*/}"
  mkdir -p "$to/src"
  go mod download "$1" # a module that nothing fetched yet has no folder
  cp -r --no-preserve=mode "$(go list -m -f '{{.Dir}}' "$1")" "$at"
  sed -i -E "\\#\"$1/$3\"#d" "$at/$2"
  go mod edit -replace "$1=$at" "$to/src/go.mod"
}
rm -rf "$to/src"
mkdir "$to/src"
cp go.mod go.sum "$to/src/"
copy github.com/flannel-io/flannel main.go 'pkg/backend/(udp|ipsec|tencentvpc)'
copy github.com/coredns/coredns core/plugin/zplugin.go plugin/etcd

go build -ldflags "$ldflags" -o "$to/" k8s.io/kubernetes/cmd/{kubeadm,kube-apiserver,kube-controller-manager,kube-scheduler,kubelet,kube-proxy}
go build -ldflags "-s -w" -o "$to/etcd" go.etcd.io/etcd/server/v3
go build -modfile "$to/src/go.mod" -ldflags "-s -w" -o "$to/coredns" github.com/coredns/coredns
go build -modfile "$to/src/go.mod" -ldflags "-s -w" -o "$to/flanneld" github.com/flannel-io/flannel

# image PROGRAM NAME: an archive as `docker save` makes them, of one program under the name that kubeadm knows it by
image() {
  local dir layer
  dir=$(mktemp -d)
  mkdir -p "$dir/usr/local/bin" "$to/images"
  cp "$to/$1" "$dir/usr/local/bin/"
  tar --owner=0 --group=0 -C "$dir" -cf "$dir/layer.tar" usr
  layer=$(sha256sum < "$dir/layer.tar" | cut -d' ' -f1)
  printf '{"os": "linux", "architecture": "%s", "config": {"Env": ["PATH=/usr/local/bin"], "Entrypoint": ["/usr/local/bin/%s"]}, "rootfs": {"type": "layers", "diff_ids": ["sha256:%s"]}}' "$(go env GOARCH)" "$1" "$layer" > "$dir/config.json"
  printf '[{"Config": "config.json", "RepoTags": ["%s"], "Layers": ["layer.tar"]}]' "$2" > "$dir/manifest.json"
  tar -C "$dir" -cf "$to/images/$1.tar" manifest.json config.json layer.tar
  rm -r "$dir"
}
rm -rf "$to/images"
for name in $("$to/kubeadm" config images list --kubernetes-version "$k8s"); do
  case $name in
    */kube-proxy:* | */pause:*) ;; # a process of the node's; the lab's own
    */*) program=${name##*/} && image "${program%%:*}" "$name" ;;
  esac
done
echo "$is" > "$to/.stamp"
