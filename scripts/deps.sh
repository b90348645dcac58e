#!/usr/bin/env bash
# Installs the Debian packages that building and running need. Without root it says which are missing.
set -euo pipefail
packages=(
  gcc libc6-dev pkg-config libseccomp-dev            # runc is the one part with C in it
  iproute2 nftables iptables conntrack socat ethtool # what kubelet, kube-proxy and the CNI plugins call
  curl procps util-linux ca-certificates             # tests look from inside a laptop
  dbus-daemon dbus-session-bus-common                # a session bus for the tests of the tray
  xvfb xfce4-panel xfce4-notifyd xdotool imagemagick # and a real desktop, with a mouse and pictures of it
  x11-xserver-utils fonts-dejavu-core
)
missing=()
for p in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing+=("$p")
done
if ! command -v go >/dev/null; then
  echo "Go is missing: Kith needs Go 1.26 or later on PATH" >&2
  exit 1
fi
[ ${#missing[@]} -gt 0 ] || exit 0
if [ "$(id -u)" != 0 ]; then
  echo "These packages are missing: ${missing[*]}" >&2
  echo "Install them with: sudo apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "install ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -q >/dev/null
apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
