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

mkdir "$TAP_DIR/unit"
run 120 "$NPRDMA_BUILD/files_log_unit" "$TAP_DIR/unit"
grep '^not ok\|^#' "$TAP_OUT" | sed 's/^/# /' || true
tap_check "files that are cut and damaged in all ways ($(grep -c '^ok' \
    "$TAP_OUT") checks)" [ "$RC" = 0 ]

# Eight at once, and two who read meanwhile
logs follow "$log" 3200 >"$TAP_DIR/follow1" 2>&1 &
first=$!
for i in $(seq 8); do
    writer "$i" "$log" 400 16 5000
done
logs follow "$log" 3200 >"$TAP_DIR/follow2" 2>&1 &
second=$!
writers_done "8 processes append 400 records each"
as_written "all are there"
for reader in "$first" "$second"; do
    cat "$TAP_DIR"/follow? >"$TAP_OUT"
    tap_check "who reads meanwhile sees each once, in order" wait "$reader"
done
sed 's/^/# /' "$TAP_DIR"/follow?
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
for _ in $(seq 10); do
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
tap_check "and some were killed in the middle of a record ($damaged)" \
    [ "$damaged" -gt 0 ]

tap_done
