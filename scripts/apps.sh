#!/usr/bin/env bash
# Images of software that people run (Redis, PostgreSQL, nginx) as one archive, build/apps/images.tar, for the stories of `make soak`
# that run it: made of Debian's packages, without a registry, and nothing is installed here. Prometheus is compiled (Debian's knows no
# Kubernetes), and an archive of its own, build/apps/prometheus.tar. Made again when this script changed.
set -euo pipefail
cd "$(dirname "$0")/.."
here=$PWD
out=$here/build/apps
root=$out/root
[ ! "$out/images.tar" -nt "$0" ] || exit 0
for tool in apt-get dpkg-deb; do
  command -v $tool >/dev/null || { echo "apps.sh: $tool is missing: the images are made of Debian's packages" >&2; exit 1; }
done
wanted=(redis-server redis-tools postgresql nginx-light bash coreutils dash mawk sed grep procps libc-bin tzdata)
# What only installing and administering on Debian needs, and PostgreSQL's compiler for large queries.
without='^(perl|libperl|debconf|cdebconf|dpkg|tar|adduser|passwd|login|systemd|init-system|libllvm|libz3|postgresql-common|postgresql-client-common|ssl-cert|sysvinit|lsb-|iproute2|openssl$|python|libpython|ucf|sensible)'

echo "images of Redis, PostgreSQL and nginx from Debian's packages"
rm -rf "$root" "$out/debs" "$out/archive" "$out/prometheus"
mkdir -p "$root" "$out/debs" "$out/archive" "$out"/prometheus/{etc,usr/bin}
: >"$out/none"
apt-get update -q >/dev/null
# All that is needed where nothing is installed.
packages=$(apt-get install -s --no-install-recommends -o Dir::State::status="$out/none" "${wanted[@]}" | sed -n 's/^Inst \([^ ]*\) .*/\1/p' | grep -Ev "$without")
# shellcheck disable=SC2086 # names without blanks
(cd "$out/debs" && apt-get download -q $packages >/dev/null 2>"$out/apt.log") || { cat "$out/apt.log" >&2; exit 1; }
for deb in "$out"/debs/*.deb; do dpkg-deb -x "$deb" "$root"; done
rm -rf "$root"/usr/share/{doc,man,locale,info,lintian,bug} "$root"/usr/lib/postgresql/*/lib/bitcode

cat >"$root/etc/passwd" <<'END'
root:x:0:0:root:/root:/bin/bash
nginx:x:101:101::/:/bin/false
redis:x:998:998::/data:/bin/false
postgres:x:999:999::/data:/bin/bash
nobody:x:65534:65534::/:/bin/false
END
printf 'root:x:0:\nnginx:x:101:\nredis:x:998:\npostgres:x:999:\nnogroup:x:65534:\n' >"$root/etc/group"
echo 'hosts: files dns' >"$root/etc/nsswitch.conf"
mkdir -p "$root"/{root,proc,sys,dev} "$root/run/postgresql" "$root/data" "$root/tmp" "$root/usr/local/bin"
chmod 1777 "$root/run/postgresql" "$root/data" "$root/tmp"
rm -rf "$root/var/run" && ln -s /run "$root/var/run"
[ -e "$root/bin/sh" ] || ln -s bash "$root/bin/sh"
ln -sf mawk "$root/usr/bin/awk"
for program in "$root"/usr/lib/postgresql/*/bin/*; do ln -sf "${program#"$root"}" "$root/usr/local/bin/"; done

# One layer for all of an archive, in the layout of `docker save`.
arch=$(dpkg --print-architecture)
cd "$out/archive"
# layer ROOT: of it are the images that follow, until archive FILE
layer() {
  tar --sort=name --mtime=@0 --owner=0 --group=0 --numeric-owner -C "$1" -cf layer.tar .
  layer=$(sha256sum layer.tar)
  manifest=()
}
archive() {
  (IFS=,; echo "[${manifest[*]}]" >manifest.json)
  tar -cf "$out/$1.new" *.json layer.tar
  mv "$out/$1.new" "$out/$1"
  rm -f *.json layer.tar
}
# image NAME USER STOPSIGNAL COMMAND...
image() {
  local name=$1 user=$2 signal=$3 command; shift 3
  command=$(printf '"%s",' "$@")
  cat >"$name.json" <<END
{"os":"linux","architecture":"$arch","created":"1970-01-01T00:00:00Z","rootfs":{"type":"layers","diff_ids":["sha256:${layer%% *}"]},
 "config":{"User":"$user","WorkingDir":"/","StopSignal":"$signal","Cmd":[${command%,}],"Env":["PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin","LANG=C.UTF-8"]}}
END
  manifest+=("{\"Config\":\"$name.json\",\"RepoTags\":[\"kith.dev/$name:1\"],\"Layers\":[\"layer.tar\"]}")
}
echo "Prometheus, with Kubernetes' discovery alone"
(cd "$here/tools/prometheus" && CGO_ENABLED=0 go build -trimpath -buildvcs=false -ldflags '-s -w' -tags remove_all_sd,enable_kubernetes_sd,netgo \
  -o "$out/prometheus/usr/bin/" github.com/prometheus/prometheus/cmd/prometheus)
cp "$root"/etc/{passwd,group,nsswitch.conf} "$out/prometheus/etc/"
mkdir -p "$out/prometheus"/{proc,sys,dev,data,tmp}
chmod 1777 "$out/prometheus"/{data,tmp}
layer "$out/prometheus"
image prometheus 65534:65534 SIGTERM prometheus --config.file=/config/prometheus.yml --storage.tsdb.path=/data
archive prometheus.tar
layer "$root"
image redis 998:998 SIGTERM redis-server
image postgres 999:999 SIGINT postgres -D /data/pg
image nginx 101:101 SIGQUIT nginx -g 'daemon off;'
archive images.tar
rm -rf "$root" "$out/debs" "$out/archive" "$out/prometheus" "$out/none" "$out/apt.log"
