#!/bin/sh
# As root, once the files of packaging/files are in place: `make install` calls it. Packages have scripts of their own.
# Nothing is started here that did not run before.
set -eu
if command -v systemd-sysusers >/dev/null 2>&1; then
	systemd-sysusers kith.conf || true
fi
# Without systemd, or one that does not look below the prefix.
getent group kith >/dev/null || groupadd --system kith
if [ -d /run/systemd/system ]; then
	systemctl daemon-reload
	systemctl try-restart kithd.service # pods run on; the new kithd starts the new engine
fi
