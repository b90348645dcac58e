#!/usr/bin/env bash
# Installs the Debian packages that building, running and the tests need; with the argument `build`, without those of the
# tests, with `conformance` with those of upstream's tests instead, with `packages` with those of the tests of packages, with `arm64` with
# those of building for that processor on another, with `panels` also those of GNOME and Plasma. Without root it says which are missing.
set -euo pipefail
packages=(
  gcc libc6-dev pkg-config libseccomp-dev            # runc is the one part with C in it
  patch                                              # for engine/patches
  iproute2 nftables netbase iptables conntrack socat ethtool # what kubelet, kube-proxy and the CNI plugins call
  procps util-linux ca-certificates
)
if [ "${1:-}" = conformance ]; then
  packages+=(busybox-static curl bind9-dnsutils netcat-openbsd) # what upstream's test images have besides their own programs
elif [ "${1:-}" = packages ]; then
  packages+=(debootstrap systemd-container lintian rpm) # a Debian to boot, and what boots it; what distributions look at packages with
elif [ "${1:-}" = arm64 ]; then
  packages+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross libseccomp-dev:arm64 # for runc
    qemu-user-static)                                                           # starts what was built (scripts/check-package.sh)
elif [ "${1:-}" != build ]; then
  packages+=(
    curl                                               # tests look from inside a laptop
    miniupnpd-nftables                                 # a router that maps ports: the program alone, no service
    knot knot-dnsutils unbound dnsmasq-base            # name servers of the tests
    dbus-daemon dbus-bin dbus-session-bus-common python3-dbusmock # a session bus for the tests of the tray, a system bus with a logind
    xvfb xfce4-panel xfce4-notifyd xdotool imagemagick # and a real desktop, with a mouse and pictures of it
    xorriso p7zip-full dmg2img libplist-utils          # make and look at the disk image for Macs
    x11-xserver-utils x11-utils yad fonts-dejavu-core  # yad and xmessage show the tray's windows
    chromium                                           # shows the page of kith web
    lxqt-panel lxqt-notificationd                      # further panels, small ones
    mate-panel mate-notification-daemon
  )
  if [ "${1:-}" = panels ]; then
    packages+=(
      gnome-shell gnome-shell-extension-appindicator gjs # large ones: 900 MB
      plasma-desktop plasma-workspace kwin-x11
      dunst notify-osd # show no buttons
    )
  fi
fi
if ! command -v go >/dev/null; then
  echo "Go is missing: Kith needs Go 1.26 or later on PATH, from https://go.dev/dl" >&2
  exit 1
fi
# From 1.21 on Go fetches the version that go.mod names.
version=$(cd / && go env GOVERSION)
case $version in
  go1.[0-9] | go1.[0-9].* | go1.1[0-9] | go1.1[0-9].* | go1.20 | go1.20.*)
    echo "$(command -v go) is $version: Kith needs Go 1.26 or later on PATH, from https://go.dev/dl" >&2
    exit 1
    ;;
esac
[ "${1:-}" != arm64 ] || [ "$(id -u)" != 0 ] || dpkg --print-foreign-architectures | grep -qx arm64 || dpkg --add-architecture arm64
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "These packages are missing: ${missing[*]}" >&2
  echo "Install them with: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "install ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
# A desktop updates itself now and then, and holds the lock meanwhile.
apt-get install -y -q --no-install-recommends -o DPkg::Lock::Timeout=300 "${missing[@]}" >/dev/null
