#!/bin/sh
# As root, before the files of packaging/files go: `make uninstall` calls it, and packages have it as their prerm. Of an
# upgrade dpkg says so ("upgrade"), rpm counts what stays (1): kithd is restarted afterwards, and never stopped for it.
set -eu
case ${1:-} in upgrade | 1) exit 0 ;; esac
if [ -d /run/systemd/system ]; then
	systemctl disable --now kithd.service || true
fi
