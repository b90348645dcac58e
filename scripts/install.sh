#!/usr/bin/env bash
# Puts what `make build` built where it belongs, or takes it away: packaging/files says what goes where. It builds nothing, since
# root often has no Go on its PATH.
# usage: install.sh [install|uninstall]
#   PREFIX=/usr/local  SYSCONFDIR=/etc   where to; a package has PREFIX=/usr
#   LIBEXECDIR=PREFIX/libexec/kith  ZSHDIR=PREFIX/share/zsh/site-functions   where a distribution has these elsewhere
#   DESTDIR=           put before all of them: a tree to be packed, with nothing made known to this machine
#   KITH_BIN=bin       where the programs were built
set -euo pipefail
cd "$(dirname "$0")/.."
prefix=${PREFIX:-/usr/local} dest=${DESTDIR:-} bin=${KITH_BIN:-bin}
fail() { echo "install.sh: $*" >&2; exit 1; }
[[ $prefix == /* ]] || fail "PREFIX is $prefix: it must be an absolute path"

declare -A dirs=(
  [bindir]=$prefix/bin [sbindir]=$prefix/sbin [libexecdir]=${LIBEXECDIR:-$prefix/libexec/kith}
  [unitdir]=$prefix/lib/systemd/system [sysusersdir]=$prefix/lib/sysusers.d [sysctldir]=$prefix/lib/sysctl.d [modulesdir]=$prefix/lib/modules-load.d
  [zshdir]=${ZSHDIR:-$prefix/share/zsh/site-functions} [datadir]=$prefix/share [mandir]=$prefix/share/man [docdir]=$prefix/share/doc/kith [sysconfdir]=${SYSCONFDIR:-/etc}
)
fill() { # TEXT: with the names of directories filled in, as $filled
  local name
  filled=$1
  for name in "${!dirs[@]}"; do filled=${filled//@$name@/${dirs[$name]}}; done
}
# What was installed is listed there, so that an upgrade takes away what is no part any more, and uninstall needs no build.
list=${dirs[libexecdir]}/installed

# remove PATH: that file, and the directories that it leaves empty, up to those every system has
remove() {
  rm -f "$dest$1"
  local dir=${1%/*}
  while [[ $dir == "$prefix"/*/* || $dir == "${dirs[sysconfdir]}"/*/* ]] && rmdir "$dest$dir" 2>/dev/null; do dir=${dir%/*}; done
}

install_one() { # MODE SOURCE DESTINATION
  if [ "$1" = link ]; then
    mkdir -p "$dest${3%/*}"
    ln -sfn "$(realpath -m --relative-to="${3%/*}" "$2")" "$dest$3"
  elif [[ $2 == *.in ]]; then
    fill "$(<"$2")"
    install -D -m "$1" /dev/stdin "$dest$3" <<<"$filled"
  else
    install -D -m "$1" "$2" "$dest$3" # makes a new file: a program that runs keeps its own
  fi
  echo "$3" >>"$new"
}

install_all() {
  local mode from to file missing=()
  new=$(mktemp)
  trap 'rm -f "$new"' EXIT
  while read -r mode from to; do
    [[ $mode == link || -z $mode || $mode == \#* ]] && continue
    [[ $from != bin/* ]] || from=$bin/${from#bin/}
    compgen -G "$from" >/dev/null || missing+=("$from")
  done <packaging/files
  [ ${#missing[@]} = 0 ] || fail "not built yet: ${missing[*]}; run make build first"
  if [ -z "$dest" ] && [ "$(id -u)" != 0 ]; then
    fail "this needs root: sudo make install (or DESTDIR for a tree of your own)"
  fi
  # What a newer Kith stored this one cannot run on: that is said before anything is replaced.
  [ -n "$dest" ] || "$bin/kithd" check-data || fail "nothing was installed"
  while read -r mode from to; do
    [[ -n $mode && $mode != \#* && $mode != conf ]] || continue
    fill "$to"
    to=$filled
    if [ "$mode" = link ]; then
      fill "$from"
      install_one link "$filled" "$to"
      continue
    fi
    [[ $from != bin/* ]] || from=$bin/${from#bin/}
    while IFS= read -r file; do
      if [[ $to == */ ]]; then install_one "$mode" "$file" "$to${file##*/}"; else install_one "$mode" "$file" "$to"; fi
    done < <(compgen -G "$from")
  done <packaging/files
  if [ -e "$dest$list" ]; then
    while read -r file; do remove "$file"; done < <(sort "$dest$list" | comm -23 - <(sort "$new"))
  fi
  install -m 0644 "$new" "$dest$list"
}

case ${1:-install} in
  install)
    install_all
    [ -z "$dest" ] || exit 0
    packaging/after-install.sh
    cat <<TXT
Kith is installed in $prefix.
  start it, now and at each boot:   sudo systemctl enable --now kithd
  use it without sudo:              sudo usermod -aG kith ${SUDO_USER:-YOU}    (then log in again; the group is root's equal)
  see how it is:                    kith status
TXT
    ;;
  uninstall)
    [ -e "$dest$list" ] || fail "nothing is installed in $dest$prefix ($dest$list is not there); is PREFIX as it was at make install?"
    if [ -z "$dest" ]; then
      [ "$(id -u)" = 0 ] || fail "this needs root: sudo make uninstall"
      packaging/before-remove.sh "${dirs[libexecdir]}"
    fi
    while read -r file; do remove "$file"; done <"$dest$list"
    remove "$list"
    [ -z "$dest" ] || exit 0
    [ ! -d /run/systemd/system ] || systemctl daemon-reload
    echo "Kith is gone from $prefix. Its cluster's data, its key and the configuration are kept: /var/lib/kith, /etc/kith; and the group kith."
    ;;
  *) fail "no such thing to do: $1 (install uninstall)" ;;
esac
