#!/usr/bin/env bash
# Packs what was built into build/packages: the tree of packaging/files, as a .deb or an .rpm.
# The same commit gives the same bytes: all times are the last commit's (SOURCE_DATE_EPOCH).
# usage: package.sh [--build] deb|rpm [ARCH]    ARCH: amd64 or arm64 (default: this machine's)
#   --build        builds it first, into bin/, or bin/linux-ARCH for another processor; each program says the commit
#   KITH_BIN=      where the programs were built for ARCH, instead
#   VERSION=  LAYOUT=  KUBERNETES=       instead of what git and the sources say
#   OUT=build/packages   where the package goes
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
build=
[ "${1:-}" != --build ] || { build=yes; shift; }
host=$(go env GOHOSTARCH)
format=${1:-deb} arch=${2:-$host}
fail() { echo "package.sh: $*" >&2; exit 1; }
case $format in deb | rpm) ;; *) fail "no such package: $format (deb rpm)" ;; esac
case $arch in
  amd64) machine='Advanced Micro Devices X86-64' rpmarch=x86_64 ;;
  arm64) machine=AArch64 rpmarch=aarch64 ;;
  *) fail "no such processor: $arch (amd64 arm64)" ;;
esac

if [ -z "${KITH_BIN:-}" ]; then
  export KITH_BIN=$root/bin
  [ "$arch" = "$host" ] || KITH_BIN=$root/bin/linux-$arch
fi
[ "$arch" = "$host" ] || [ -z "$build" ] || scripts/deps.sh "$arch"
if [ -n "$build" ]; then
  KITH_STAMP=1 GOARCH=$arch scripts/build.sh cmd engine runtime pause
  KITH_STAMP=1 scripts/build.sh man
fi

export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
# A tag v1.2.3 is that version, N commits later 1.2.3+N.gCOMMIT, which is higher. Before the first tag it is the time of the commit.
version() {
  local tag
  if tag=$(git describe --tags --match 'v[0-9]*' 2>/dev/null); then
    tag=${tag#v}
    [[ $tag != *-*-g* ]] || tag=${tag%-*-g*}+$(sed -E 's/.*-([0-9]+)-(g[0-9a-f]+)$/\1.\2/' <<<"$tag")
    echo "${tag//-/\~}"
  else
    echo "0.0~$(date -u -d "@$SOURCE_DATE_EPOCH" +%Y%m%d%H%M%S).$(git rev-parse --short=7 HEAD)"
  fi
}
version=${VERSION:-$(version)}
[[ $version =~ ^[0-9][A-Za-z0-9.+~]*$ ]] || fail "VERSION is $version: it must begin with a digit, and have letters, digits and .+~ only"

nfpm=build/nfpm
[ -x $nfpm ] && [ $nfpm -nt tools/nfpm/go.sum ] ||
  (cd tools/nfpm && CGO_ENABLED=0 GOFLAGS="-trimpath -buildvcs=false" go build -ldflags '-s -w' -o "$root/$nfpm" github.com/goreleaser/nfpm/v2/cmd/nfpm)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tree=$work/tree libexec=/usr/lib/kith doc=/usr/share/doc/kith
umask 022
export LC_ALL=C.UTF-8 # orders and line lengths are the same everywhere
zsh=/usr/share/zsh/vendor-completions # Debian's, which leaves site-functions to others
[ $format = deb ] || zsh=/usr/share/zsh/site-functions
DESTDIR=$tree PREFIX=/usr LIBEXECDIR=$libexec ZSHDIR=$zsh scripts/install.sh install
rm "$tree$libexec/installed" # the package manager has its own list

# A package for one processor has programs of that one only.
find "$tree" -type f -perm /111 | while read -r file; do
  is=$({ readelf -h "$file" 2>/dev/null || true; } | sed -n 's/ *Machine: *//p') # none of a script
  [ -z "$is" ] || [ "$is" = "$machine" ] || fail "${file#"$tree"} is for $is, and the package for $arch"
done

echo "$version" >"$tree$libexec/version"
find "$tree/usr/share/man" -type f -exec gzip -9n {} +
install -D -m 0644 packaging/deb/copyright "$tree$doc/copyright"
if [ $format = deb ]; then
  rm "$tree$doc/LICENSE"
  # Policy has the changelog in Debian's form.
  {
    printf 'kith (%s) unstable; urgency=medium\n\n' "$version"
    git log -10 --no-merges --format='* %s' | fold -s -w 74 | sed 's/^\([^*]\)/  \1/; s/^/  /; s/ *$//'
    printf '\n -- The Kith authors <packages@kith.dev>  %s\n' "$(date -u -R -d "@$SOURCE_DATE_EPOCH")"
  } | gzip -9n >"$tree$doc/changelog.gz"
  install -D -m 0644 packaging/deb/lintian-overrides "$tree/usr/share/lintian/overrides/kith"
fi
find "$tree" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +

# What it can read of what is stored (docs/upgrade.md), for the script that looks before anything is unpacked.
layout=${LAYOUT:-$(sed -n 's/^\tCurrent = \([0-9]*\)$/\1/p' core/base/layout/layout.go)}
kubernetes=${KUBERNETES:-$(sed -n 's/^\s*k8s.io\/kubernetes v\(1\.[0-9]*\)\..*/\1/p' engine/go.mod)}
[ -n "$layout" ] && [ -n "$kubernetes" ] || fail "the layout ($layout) or Kubernetes' version ($kubernetes) is not found in the sources"
scripts=()
for script in packaging/"$format"/*.in; do
  name=$(basename "$script" .in)
  sed "/^@check-data@$/{
    r packaging/check-data.sh
    d
  }
  s|@version@|$version|g; s|@libexecdir@|$libexec|g; s|@layout@|$layout|g; s|@kubernetes@|$kubernetes|g" "$script" >"$work/$name"
  ! grep -n '@[a-z-]*@' "$work/$name" || fail "${script##*/} has names that were not filled in"
  touch -d "@$SOURCE_DATE_EPOCH" "$work/$name"
  case $name in
    preinst | pre) as=preinstall ;; postinst | post) as=postinstall ;;
    prerm | preun) as=preremove ;; postrm | postun) as=postremove ;;
  esac
  scripts+=("  $as: \"$work/$name\"")
done

# Configuration is the owner's: conffiles, which an upgrade asks about, or leaves alone.
conf() { # SOURCE DESTINATION
  cp "$1" "$work/${2##*/}"
  touch -d "@$SOURCE_DATE_EPOCH" "$work/${2##*/}"
  printf -- '- {src: "%s", dst: "%s", type: config|noreplace, file_info: {mode: 0644}}\n' "$work/${2##*/}" "$2"
}
{
  sed "s|\${ARCH}|$arch|; s|\${VERSION}|$version|; s|\${RELEASE}|$([ $format = rpm ] && echo '"1"' || echo '""')|
    s|\${COMPRESSION}|${COMPRESSION:-gzip}|; s|\${RPM_COMPRESSION}|${COMPRESSION:-zstd}|" packaging/nfpm.yaml
  echo "mtime: $(date -u -d "@$SOURCE_DATE_EPOCH" +%Y-%m-%dT%H:%M:%SZ)"
  echo 'scripts:'
  printf '%s\n' "${scripts[@]}"
  echo 'contents:'
  while read -r mode from to; do
    [ "$mode" = conf ] || continue
    conf "$from" "${to/@sysconfdir@//etc}"
  done <packaging/files
  (cd "$tree" && find etc -type f) | sort | while read -r file; do
    conf "$tree/$file" "/$file"
    rm "$tree/$file"
  done
  rm -rf "$tree/etc"
  [ $format = deb ] || (cd "$tree" && find usr/share/doc usr/share/man -type f) | sort | while read -r file; do
    type=doc # rpm leaves these out where its owner wants none (--excludedocs)
    [[ $file != */LICENSE && $file != */copyright ]] || type=license
    mkdir -p "$work/${file%/*}"
    mv "$tree/$file" "$work/$file"
    printf -- '- {src: "%s", dst: "/%s", type: %s, file_info: {mode: 0644}}\n' "$work/$file" "$file" $type
  done
  [ $format = deb ] || echo '- {dst: /etc/kith, type: dir, file_info: {mode: 0755}}' # dpkg knows of it by its files
  [ $format = deb ] || rm -rf "$tree/usr/share/man" # the folder of the other is Kith's own
  echo "- {src: \"$tree\", dst: /, type: tree}"
} >"$work/nfpm.yaml"

out=${OUT:-build/packages}
mkdir -p "$out"
case $format in
  deb) out+=/kith_${version}_$arch.deb ;;
  rpm) out+=/kith-$version-1.$rpmarch.rpm ;;
esac
$nfpm package --config "$work/nfpm.yaml" --packager "$format" --target "$out" >/dev/null
echo "$out: $(du -h "$out" | cut -f1)"
