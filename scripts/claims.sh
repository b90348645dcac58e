#!/usr/bin/env bash
# Writes into docs/claims.md which tests show what the pages say, out of the comments that they have for this (test/claims).
# --check only says whether it is up to date. Fails when a page names a test that is not there.
set -euo pipefail
cd "$(dirname "$0")/.."
CGO_ENABLED=0 go run ./test/claims "$@"
