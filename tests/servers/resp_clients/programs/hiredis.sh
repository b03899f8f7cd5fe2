#!/usr/bin/env bash
# Compiles `hiredis.c` and runs it.
set -euo pipefail
directory=$(mktemp -d)
trap 'rm -rf "$directory"' EXIT
cc -Wall -Werror -o "$directory/client" "${0%.sh}.c" -lhiredis
"$directory/client" "$@"
