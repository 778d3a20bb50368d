# SPDX-License-Identifier: BSD-3-Clause
# Shared by the tests of nprdma-filed: one server at a time, and its clients,
# with a home of their own.
# shellcheck shell=bash

export XDG_RUNTIME_DIR=$TAP_DIR/run HOME=$TAP_DIR/home
SHARE=$TAP_DIR/share
SERVER_OUT=$TAP_DIR/server.out
SERVER=
mkdir "$XDG_RUNTIME_DIR" "$HOME" "$SHARE"

# server_start OPTION...: shares SHARE, or the directory that is named last
server_start() {
    rm -f "$SERVER_OUT" # of the last one
    "$NPRDMA_PREFIX/bin/nprdma-filed" "$@" >"$SERVER_OUT" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$SERVER_OUT"
}

# server_stop NAME: and that was in order
server_stop() {
    kill "$SERVER" 2>/dev/null || true
    if wait "$SERVER"; then
        tap_ok "$1"
    else
        tap_not_ok "$1" "$SERVER_OUT"
    fi
    SERVER=
}

trap '[ -z "$SERVER" ] || kill -9 "$SERVER"; rm -rf "$TAP_DIR"' EXIT

file() { # what nprdma-file does, within a minute
    timeout 60 "$NPRDMA_PREFIX/bin/nprdma-file" "$@"
}

try() { # the same, for tap_expect_*
    run 60 "$NPRDMA_PREFIX/bin/nprdma-file" "$@"
}

says() { # NAME PATTERN: it went well, with such a line
    if [ "$RC" -eq 0 ] && grep -qE -e "$2" "$TAP_OUT"; then
        tap_ok "$1"
    else
        echo "exit code $RC; a line wanted like: $2" >>"$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}
