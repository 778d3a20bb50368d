#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 120 s
# libnprdma_remote: how programs are built with it, its calls, and what becomes
# of them when servers are killed.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

SHARE=$TAP_DIR/share
SOCKET=$TAP_DIR/socket
SERVER=
mkdir "$SHARE"

server_start() {
    rm -f "$TAP_DIR/server.out"
    "$NPRDMA_PREFIX/bin/nprdma-filed" -s "$SOCKET" "$SHARE" \
        >"$TAP_DIR/server.out" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$TAP_DIR/server.out"
}

server_kill() {
    kill -9 "$SERVER"
    wait "$SERVER" 2>/dev/null || true
    SERVER=
}

trap '[ -z "$SERVER" ] || kill -9 "$SERVER"; rm -rf "$TAP_DIR"' EXIT

# tell NAME: the lines of a program that tests, as ours
tell() {
    local line
    while read -r line; do
        case $line in
        'ok '*) tap_ok "$1: ${line#* - }" ;;
        'not ok '*) tap_not_ok "$1: ${line#* - }" ;;
        '#'*) echo "$line" ;;
        esac
    done <"$TAP_OUT"
    tap_check "$1: it has come to its end" grep -qE '^1\.\.[1-9]' "$TAP_OUT"
    [ "$RC" -eq 0 ] || sed 's/^/# /' "$TAP_OUT"
}

remote() { # MODE: in the background, when it has begun
    rm -f "$TAP_DIR/remote.out"
    "$NPRDMA_PREFIX/bin/nprdma-run" "$NPRDMA_BUILD/files_remote" "$1" \
        "$SOCKET" "$SHARE" <&0 >"$TAP_DIR/remote.out" 2>&1 &
    client=$!
    wait_until 30 grep -qs '^# begun' "$TAP_DIR/remote.out"
}

remote_end() { # NAME
    RC=0
    wait "$client" || RC=$?
    cp "$TAP_DIR/remote.out" "$TAP_OUT"
    tell "$1"
}

# What is installed
lib=$NPRDMA_PREFIX/lib/libnprdma_remote.so.0
headers=("$NPRDMA_PREFIX"/include/nprdma/nprdma_{remote,log}.h)
export LD_LIBRARY_PATH=$NPRDMA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH=$NPRDMA_PREFIX/lib/pkgconfig
readelf -d "$lib" >"$TAP_OUT"
tap_check "the library is libnprdma_remote.so.0" \
    grep -q 'SONAME.*\[libnprdma_remote\.so\.0\]' "$TAP_OUT"
sed -n 's/^[a-z].*[ *]\(nprdma_[a-z_]*\)(.*/\1/p' "${headers[@]}" | sort -u |
    sed '/_cb_t$/d' >"$TAP_DIR/declared"
nm -D --defined-only "$lib" | sed -n 's/.* T \([a-z_]*\)@.*/\1/p' |
    sort >"$TAP_DIR/defined"
tap_check "what is declared is exported, nothing else" \
    diff "$TAP_DIR/declared" "$TAP_DIR/defined"
page=$NPRDMA_PREFIX/share/man/man3/nprdma_remote.3
while read -r name; do
    tap_check "$name(3) describes it" grep -qE \
        "^\.BI \"[a-z0-9_ ]+ [*]?$name\(" \
        "$(readlink -f "${page%/*}/$name.3")"
done <"$TAP_DIR/declared"
cc=$(command -v "${CC:-cc}" || true)
cxx=$(command -v "${CXX:-c++}" || true)
cat >"$TAP_DIR/user.c" <<'END'
#include <nprdma/nprdma_remote.h>
int main(void)
{
    nprdma_server_t *server;
    return nprdma_server_connect(NULL, &server) == 0;
}
END
cp "$TAP_DIR/user.c" "$TAP_DIR/user.cc"
for user in "$cc user.c -std=gnu99" "$cxx user.cc -std=c++11"; do
    read -r compiler source flag <<<"$user"
    if [ -z "$compiler" ] || ! command -v pkg-config >/dev/null; then
        tap_skip "a program is built" "needs a compiler and pkg-config"
        continue
    fi
    # shellcheck disable=SC2046
    run 60 "$compiler" "$flag" -Wall -Wextra -Wpedantic -Werror \
        -o "$TAP_DIR/user" "$TAP_DIR/$source" \
        $(pkg-config --cflags --libs nprdma_remote)
    tap_expect_success "a program is built with what pkg-config says ($flag)"
done
if [ -e "$TAP_DIR/user" ]; then
    run 20 env -u LD_PRELOAD XDG_RUNTIME_DIR="$TAP_DIR" "$TAP_DIR/user"
    tap_expect_success "without a server it is told so"
fi

# Its calls; the program's own UCX may use what it likes
server_start
run_here 60 "$NPRDMA_BUILD/files_remote" all "$SOCKET" "$SHARE"
tell calls
rm -rf "${SHARE:?}"/*
run_here 60 env UCX_TLS=tcp "$NPRDMA_BUILD/files_remote" all "$SOCKET" "$SHARE"
tap_check "whatever UCX_TLS says" test "$RC" -eq 0
[ "$RC" -eq 0 ] || sed 's/^/# /' "$TAP_OUT"

# The example
rm -rf "${SHARE:?}"/*
seq 300000 >"$SHARE/numbers"
sum=$(od -An -v -tu1 -w1 "$SHARE/numbers" |
    awk '{ sum += $1 } END { print sum }')
if [ -z "$cc" ] || ! command -v pkg-config >/dev/null; then
    tap_skip "the example" "needs a compiler and pkg-config"
else
    # shellcheck disable=SC2046
    run 60 "$cc" -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror \
        -o "$TAP_DIR/sum" "$NPRDMA_SRC/examples/files/sum.c" \
        $(pkg-config --cflags --libs nprdma_remote)
    tap_expect_success "sum.c is compiled with what pkg-config says"
    ln -s "$SOCKET" "$TAP_DIR/nprdma-filed.sock"
    run_here 60 env XDG_RUNTIME_DIR="$TAP_DIR" "$TAP_DIR/sum" /numbers
    tap_check "it adds up a file" grep -qx \
        "$(stat -c %s "$SHARE/numbers") bytes, sum $sum" "$TAP_OUT"
    run_here 60 env XDG_RUNTIME_DIR="$TAP_DIR" "$TAP_DIR/sum" /none
    tap_expect_error "and says which is not there" \
        'sum: /none: No such file or directory'
fi

# Servers are killed, and started again
rm -rf "${SHARE:?}"/*
remote storm
for pause in 1 0.3 2 0.1; do
    sleep "$pause"
    server_kill
    sleep "$pause"
    server_start
done
remote_end storm
mkfifo "$TAP_DIR/fifo"
exec 3<>"$TAP_DIR/fifo"
remote gone <&3
server_kill
echo >&3
remote_end gone

tap_done
