#!/bin/sh
# As root, before the files of packaging/files go: `make uninstall` calls it, with the folder of the programs. Packages have scripts of
# their own.
set -eu
# Peerings end while there is somebody to tell the peers.
[ ! -x "${1:-}/teardown" ] || "$1/teardown" goodbye || true
if [ -d /run/systemd/system ]; then
	systemctl disable --now kithd.service || true
fi
