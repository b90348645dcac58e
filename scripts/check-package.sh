#!/usr/bin/env bash
# Looks at packages with the tools of those who will get them, and starts their programs, under qemu if they are for another processor.
# Nothing is installed on this machine. scripts/deps.sh packages and, for another processor, scripts/deps.sh arm64 install what it needs.
# usage: check-package.sh FILE...     such as build/packages/*.deb
set -euo pipefail
fail() { echo "check-package.sh: $*" >&2; exit 1; }
need() { command -v "$1" >/dev/null || fail "$1 is missing: scripts/deps.sh ${2:-packages}"; }
[ $# -gt 0 ] || fail "no package is named"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# quietly NAME COMMAND...: what it says is shown if it fails
quietly() {
  "${@:2}" >"$work/said" 2>&1 || { cat "$work/said" >&2; fail "$1"; }
}

programs() { # TREE ARCH: what a package for that processor must have, and whether it starts
  local tree=$1 machine run=() file is n=0 program
  case $2 in
    amd64 | x86_64) machine='Advanced Micro Devices X86-64' image=amd64 ;;
    arm64 | aarch64) machine=AArch64 image=arm64 ;;
    *) fail "no such processor: $2" ;;
  esac
  while read -r file; do
    is=$({ readelf -h "$file" 2>/dev/null || true; } | sed -n 's/ *Machine: *//p')
    [ -n "$is" ] || continue # a script
    [ "$is" = "$machine" ] || fail "${file#"$tree"} is for $is"
    ! readelf -l "$file" | grep -q INTERP || fail "${file#"$tree"} is not static: the libraries of this distribution may not be there"
    n=$((n + 1))
  done < <(find "$tree" -type f -perm /111)
  [ $n -ge 14 ] || fail "only $n programs are in it"
  tar -xOf "$tree/usr/lib/kith/images/pause.tar" --wildcards '*.json' | grep -q "\"architecture\":\"$image\"" || fail "the image of pause is for another processor than $image"
  echo "  $n programs, all for $image, all static"
  if [ "$image" != "$(dpkg --print-architecture)" ]; then
    need "qemu-${machine,,}-static" "$image"
    run=("qemu-${machine,,}-static")
  fi
  while read -r program; do
    # shellcheck disable=SC2086
    quietly "$program" "${run[@]}" "$tree"/usr/$program
    echo "  ${run[*]:+under ${run[*]}: }$program: $(grep -m 1 . "$work/said" | cut -c 1-100)"
  done <<'TXT'
bin/kith version --client
lib/kith/kithd --version
lib/kith/kith-k8s version
lib/kith/kith-k8s --help
lib/kith/kith-k8s kubectl version --client
lib/kith/containerd --version
lib/kith/ctr --version
lib/kith/runc --version
TXT
}

deb() {
  need lintian
  local tree=$work/deb
  mkdir "$tree"
  # Warnings are shown, errors end it; what is as it should be is in packaging/deb/lintian-overrides, with the reason.
  lintian --fail-on error --tag-display-limit 0 "$1" 2>"$work/said" || { cat "$work/said" >&2; fail "lintian finds errors"; }
  echo "  lintian: no error"
  dpkg-deb -x "$1" "$tree"
  dpkg-deb -e "$1" "$work/control"
  for script in preinst postinst prerm postrm; do
    quietly "$script" sh -n "$work/control/$script"
  done
  programs "$tree" "$(dpkg-deb -f "$1" Architecture)"
  rm -rf "$tree" "$work/control"
}

# Not rpmlint: it unpacks with cpio, which takes the names in nfpm's payload, /usr and not ./usr, for this machine's own.
rpm_() {
  need rpm
  local tree=$work/rpm script
  quietly "rpm -K" rpm -K --nosignature "$1"
  for script in preinstall postinstall preuninstall postuninstall; do
    # Between its own heading and the next.
    rpm -qp --scripts "$1" | awk -v name="$script" '/^(pre|post)(un)?install (scriptlet|program)/ { on = index($0, name " ") == 1; next } on' >"$work/$script"
    [ -s "$work/$script" ] || fail "it has no $script"
    quietly "$script" sh -n "$work/$script"
  done
  rpm -qp --requires "$1" | grep -qx nftables || fail "it does not ask for nftables"
  mkdir "$tree"
  # Its scripts would need a Fedora around them.
  quietly "rpm -i" rpm --root "$tree" -i --nodeps --noscripts --ignorearch --ignoreos "$1"
  quietly "rpm -V" rpm --root "$tree" -V --nodeps --noscripts --nouser --nogroup kith
  echo "  rpm: digests are right, its four scripts are shell, installed in an empty root it is what it says"
  programs "$tree" "$(rpm -qp --qf '%{ARCH}' "$1")"
  quietly "rpm -e" rpm --root "$tree" -e --nodeps --noscripts kith
  [ -z "$(find "$tree" -path '*kith*')" ] || fail "rpm -e leaves $(find "$tree" -path '*kith*' | head -n 3)"
  echo "  rpm: removed again nothing is left"
  rm -rf "$tree"
}

for package; do
  echo "${package##*/}: $(du -h "$package" | cut -f1)"
  case $package in
    *.deb) deb "$package" ;;
    *.rpm) rpm_ "$package" ;;
    *) fail "$package is no package" ;;
  esac
done
