#!/bin/sh
# As root, before the files of packaging/files go: `make uninstall` calls it. Packages have scripts of their own.
set -eu
if [ -d /run/systemd/system ]; then
	systemctl disable --now kithd.service || true
fi
