#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 300 s
# Logs: many write at once, here and over a server, are killed, and run out of
# disk. All that was acknowledged is there, once, whole, and nothing else.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

export XDG_RUNTIME_DIR=$TAP_DIR/run HOME=$TAP_DIR/home
export LD_LIBRARY_PATH=$NPRDMA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
SHARE=$TAP_DIR/share
SERVER=
log=$SHARE/log
mkdir "$XDG_RUNTIME_DIR" "$HOME" "$SHARE"
trap '[ -z "$SERVER" ] || kill -9 "$SERVER"; rm -rf "$TAP_DIR"' EXIT

logs() { # as the program says, in its place
    case $2 in
    :*) exec "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/files_log" "$@" ;;
    *) exec "$NPRDMA_BUILD/files_log" "$@" ;;
    esac
}

# writer NUMBER LOG COUNT MIN MAX: in the background; its lines in wroteNUMBER
writers=()
writer() {
    logs write "$2" "$1" "$3" "$4" "$5" >"$TAP_DIR/wrote$1" \
        2>"$TAP_DIR/why$1" &
    writers+=($!)
}

writers_done() { # NAME: and all went well
    local pid failed=0

    for pid in "${writers[@]}"; do
        wait "$pid" || failed=1
    done
    writers=()
    cat "$TAP_DIR"/why* >"$TAP_OUT"
    tap_check "$1" [ "$failed" = 0 ]
}

# as_written NAME [LOG]: it has what was acknowledged, and nothing else
as_written() {
    sort "$TAP_DIR"/wrote* >"$TAP_DIR/wanted"
    (logs list "${2:-$log}") 2>"$TAP_OUT" | sort >"$TAP_DIR/found" || true
    tap_check "$1 ($(wc -l <"$TAP_DIR/wanted"))" \
        cmp "$TAP_DIR/wanted" "$TAP_DIR/found"
}

clean() {
    rm -f "$log" "$TAP_DIR"/wrote* "$TAP_DIR"/why*
}

server_start() { # DIRECTORY
    rm -f "$TAP_DIR/server.out"
    "$NPRDMA_PREFIX/bin/nprdma-filed" "$1" >"$TAP_DIR/server.out" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$TAP_DIR/server.out"
}

server_stop() { # NAME: and that was in order
    kill "$SERVER" 2>/dev/null || true
    if wait "$SERVER"; then
        tap_ok "$1"
    else
        tap_not_ok "$1" "$TAP_DIR/server.out"
    fi
    SERVER=
}

# follower NUMBER LOG COUNT: in the background, and has begun
followers=()
follower() {
    logs follow "$2" "$3" >"$TAP_DIR/follow$1" 2>&1 &
    followers+=($!)
    wait_until 30 grep -qs begun "$TAP_DIR/follow$1"
}

followers_done() {
    local pid

    for pid in "${followers[@]}"; do
        tap_check "who reads meanwhile sees each once, in order" wait "$pid"
    done
    followers=()
    grep -h -v begun "$TAP_DIR"/follow? | sed 's/^/# /'
    rm "$TAP_DIR"/follow?
}

mkdir "$TAP_DIR/unit"
run 120 "$NPRDMA_BUILD/files_log_unit" "$TAP_DIR/unit"
grep '^not ok\|^#' "$TAP_OUT" | sed 's/^/# /' || true
tap_check "files that are cut and damaged in all ways ($(grep -c '^ok' \
    "$TAP_OUT") checks)" [ "$RC" = 0 ]

run 20 "$NPRDMA_BUILD/files_log" calls "$log"
tap_expect_success "each call"
clean

# Eight at once, and two who read meanwhile
follower 1 "$log" 3200
for i in $(seq 8); do
    writer "$i" "$log" 400 16 5000
done
follower 2 "$log" 3200
writers_done "8 processes append 400 records each"
as_written "all are there"
followers_done
clean

# Killed: what was acknowledged is there, and at most what was under way beside
acknowledged() {
    sort "$TAP_DIR"/wrote* >"$TAP_DIR/wanted"
    (logs list "$log") >"$TAP_DIR/listed" 2>>"$TAP_OUT" || return 1
    sort "$TAP_DIR/listed" >"$TAP_DIR/found"
    comm -23 "$TAP_DIR/wanted" "$TAP_DIR/found" >"$TAP_DIR/lost"
    comm -13 "$TAP_DIR/wanted" "$TAP_DIR/found" >"$TAP_DIR/more"
    [ ! -s "$TAP_DIR/lost" ] &&
        [ "$(wc -l <"$TAP_DIR/more")" -le $((3 * $1)) ]
}

torn() { # how many ranges are damaged, or incomplete
    (logs check "$log") |
        awk '$1 == "torn" { n += $2 } $1 == "incomplete" { n += $2 > 0 }
             END { print n }'
}

failed=0 killed=0 damaged=0 records=0
while [ "$killed" -lt 50 ]; do
    for i in 1 2 3 4 5; do
        writer "$i" "$log" 60 16 1000000
    done
    for i in 0 1 2 3 4; do
        sleep "0.00$((RANDOM % 10))"
        ! kill -9 "${writers[i]}" 2>/dev/null || killed=$((killed + 1))
        wait "${writers[i]}" 2>/dev/null || true
    done
    writers=()
    writer 6 "$log" 5 16 100 # goes on behind what they have left
    wait "${writers[0]}" || failed=1
    writers=()
    acknowledged 5 || failed=$((failed + 1))
    damaged=$((damaged + $(torn)))
    records=$((records + $(wc -l <"$TAP_DIR/wanted")))
    clean
done
cat "$TAP_DIR/lost" >>"$TAP_OUT"
tap_check "of $killed writers that were killed all is there ($records)" \
    [ "$failed" = 0 ]
echo "# $damaged of them in the middle of a record" # as it happens

# The same through a server, beside local ones
server_start "$SHARE"
run_here 20 "$NPRDMA_BUILD/files_log" calls :log
tap_expect_success "each call, of a server"
clean
follower 1 "$log" 1600
follower 2 :log 1600
for i in 1 2 3; do
    writer "$i" "$log" 200 16 5000
    writer "$((i + 3))" :log 200 16 5000
done
writer 7 "$log" 200 16 200000
writer 8 :log 200 16 200000
writers_done "4 processes here and 4 of a server append 200 records each"
as_written "all are there"
as_written "and there as well" :log
followers_done
clean

# From the command line
file() {
    timeout 60 "$NPRDMA_PREFIX/bin/nprdma-file" "$@"
}

seq 1000 >"$TAP_DIR/lines"
for place in "$log" :log; do
    echo first | file -q log append "$place"
    file -D -L log append "$place" <"$TAP_DIR/lines" >"$TAP_DIR/at"
    tap_check "lines are appended to $place, and told where" \
        [ "$(sed -n '1p;2p;1000p' "$TAP_DIR/at" | tr '\n' ' ')" = \
        "26 48 23894 " ]
    file log cat "$place" >"$TAP_DIR/found" || true
    tap_check "and shown" cmp <(echo first; seq 1000) "$TAP_DIR/found"
    file log check "$place" >"$TAP_OUT" || true
    tap_check "and counted" grep -q ': 1001 records, 3899 bytes' "$TAP_OUT"
    printf garbage >>"$log"
    printf '\371log' >>"$log" # as a record begins
    run 60 "$NPRDMA_PREFIX/bin/nprdma-file" log check "$place"
    tap_expect_error "what is no record is told, and an error" \
        ': 7 bytes at 23919 are no record'
    tap_check "and what is not whole" \
        grep -q ': 4 bytes at 23926 are not whole' "$TAP_OUT"
    tap_check "and for programs" [ "$(file -j log check "$place")" = \
        '{"records": 1001, "data": 3899, "damaged": 1, "lost": 7,'\
' "incomplete": 4, "bytes": 23930}' ]
    echo last | file -q log append "$place"
    tap_check "those after it are shown" \
        [ "$(file log cat "$place" | tail -n 1)" = last ]
    clean
done
run 60 "$NPRDMA_PREFIX/bin/nprdma-file" log cat :none
tap_expect_error "no such log" "cannot cat 'none': No such file"
run 60 "$NPRDMA_PREFIX/bin/nprdma-file" log cat /none
tap_expect_error "nor here" "cannot cat '/none': No such file"
run 60 "$NPRDMA_PREFIX/bin/nprdma-file" log walk :log
tap_expect_error "no such command" "append, cat or check is needed, found walk"

# Clients that are killed, and then the server: an append that is under way then
# may be there, and is said to be an error
failed=0 records=0
for _ in 1 2 3; do
    for i in 1 2 3; do
        writer "$i" :log 3000 16 100000
    done
    for i in 0 1 2; do
        wait_until 30 [ -s "$TAP_DIR/wrote$((i + 1))" ]
        sleep "0.0$((RANDOM % 10))"
        [ "$i" != 2 ] || kill -9 "$SERVER"
        kill -9 "${writers[i]}" 2>/dev/null || true
        wait "${writers[i]}" 2>/dev/null || true
    done
    writers=()
    wait "$SERVER" 2>/dev/null || true
    server_start "$SHARE"
    writer 6 :log 5 16 100
    wait "${writers[0]}" || failed=1
    writers=()
    acknowledged 3 || failed=1
    records=$((records + $(wc -l <"$TAP_DIR/wanted")))
    cat "$TAP_DIR/lost" "$TAP_DIR"/why* >>"$TAP_OUT"
    clean
done
tap_check "of clients and servers that were killed all is there ($records)" \
    [ "$failed" = 0 ]
server_stop "the last one ends in order"

# A disk that is full: an error, and what is there stays; with room again
# writers go on
if [ "$(id -u)" -eq 0 ] && mkdir "$TAP_DIR/small" &&
    mount -t tmpfs -o size=4m small "$TAP_DIR/small" 2>/dev/null; then
    trap 'umount -l "$TAP_DIR/small"; [ -z "$SERVER" ] || kill -9 "$SERVER"
        rm -rf "$TAP_DIR"' EXIT
    server_start "$TAP_DIR/small"
    log=$TAP_DIR/small/log
    head -c 1000000 /dev/zero >"$TAP_DIR/small/other"
    for place in "$log" :log; do
        writer 1 "$place" 1000 16 30000
        wait "${writers[0]}" && failed=1 || failed=0
        cp "$TAP_DIR/why1" "$TAP_OUT"
        tap_check "a disk is full: an append to $place says so" \
            grep -q 'No space left on device' "$TAP_OUT"
        acknowledged 1 || failed=1
        tap_check "and all before is there ($(wc -l <"$TAP_DIR/wanted"))" \
            [ "$failed" = 0 ]
        echo "# $(torn) torn"
        rm -f "$TAP_DIR/small/other"
        writers=()
        writer 2 "$place" 10 16 100
        writers_done "with room again they go on"
        acknowledged 1 || failed=1
        tap_check "and all is there" [ "$failed" = 0 ]
        clean
        head -c 1000000 /dev/zero >"$TAP_DIR/small/other"
    done
    server_stop "the server lives on"
else
    tap_skip "a full disk" "needs root, to mount one"
fi

tap_done
