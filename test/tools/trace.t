#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 120 s
# UCX_NPRDMA_TRACE and nprdma-trace-plot: what happened in which order.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

plot=$NPRDMA_PREFIX/bin/nprdma-trace-plot
osu=$NPRDMA_PREFIX/libexec/nprdma/osu/osu_latency
size=1048576

# expect NAME CODE PATTERN: the run ended with CODE and printed PATTERN
expect() {
    if [ "$RC" -eq "$2" ] && grep -qE -e "$3" "$TAP_OUT"; then
        tap_ok "$1"
    else
        echo "exit code $RC; wanted $2 and a line like: $3" >>"$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}

# traced NAME: two ranks whose memory is new each time
traced() {
    UCX_NPRDMA_TRACE=$1 run 60 "${RUN_MPI[@]}" -n 2 "$osu" --fresh -i 5 -x 5 \
        -m "$size:$size"
}

# is_json FILE
is_json() {
    perl -MJSON::PP -e 'local $/; decode_json(<>)' "$1"
}

# in_order: the events of a transfer, of whichever rank received it, are there:
# what was posted first, that the receiver was told, and when it was over
in_order() {
    awk '
        $4 == "get" { get = $1; end = $2; receiver = $3 }
        { line[NR] = $0 }
        END {
            for (i = 1; i <= NR; ++i) {
                $0 = line[i]
                mine = $3 == receiver
                # behind the get where the message was there before: UCP
                # moves it before it returns
                if (mine && $4 == "post_recv") posted = 1
                if (mine && $4 == "prepare" && $1 <= get) prepared = 1
                if (mine && $4 == "fault_in") faults++
                if (!mine && $4 == "RTS" && $1 <= get) rts = 1
                if (mine && $4 == "ATS" && $1 >= end) ats = 1
                if (($4 == "move" || $4 == "help" || $4 == "serve") &&
                    $1 >= get && $2 <= end + 1) bytes += $5
            }
            printf "posted %d prepared %d faults %d rts %d ats %d bytes %d\n",
                   posted, prepared, faults, rts, ats, bytes
            exit !(posted && faults && rts && ats && bytes > 0)
        }' "$1" >"$TAP_OUT"
}

traced "$TAP_DIR/t-%p.json"
expect "a traced job" 0 "^$size "
tap_check "a file for each rank" \
    test "$(find "$TAP_DIR" -name 't-*.json' | wc -l)" -eq 2
for file in "$TAP_DIR"/t-*.json; do
    tap_check "it is JSON" is_json "$file"
done
tap_check "events of UCP's calls" \
    grep -q '"name":"post recv"' "$TAP_DIR"/t-*.json

run 20 "$plot" -l -s "$size" "$TAP_DIR"/t-*.json
expect "the last transfer" 0 " get $size$"
cp "$TAP_OUT" "$TAP_DIR/list"
tap_check "its events are in order" in_order "$TAP_DIR/list"
read -r from to < <(awk '$4 == "get" { print $1, $2 }' "$TAP_DIR/list" |
    tail -n 1)
run 20 "$plot" -l -f "$from" -t "$to" "$TAP_DIR"/t-*.json
# awk's own
# shellcheck disable=SC2016
tap_check "a span of time" awk -v from="$from" -v to="$to" '
    $2 < from || $1 > to { bad = 1 }
    END { exit bad || NR == 0 }' "$TAP_OUT"

run 60 "$plot" -s "$size" -o "$TAP_DIR/plot" "$TAP_DIR"/t-*.json
expect "a plot" 0 "^plot: "
for file in "$TAP_DIR/plot.svg" "$TAP_DIR/plot.png"; do
    tap_check "it is there" test -s "$file"
done

# Names and mistakes
traced "$TAP_DIR/u"
tap_check "without %p the process id is appended" \
    test "$(find "$TAP_DIR" -name 'u.[0-9]*' | wc -l)" -eq 2
traced "$TAP_DIR/nowhere/t"
expect "a folder that is not there is no failure" 0 "^$size "
expect "but a line" 0 "cannot write the trace $TAP_DIR/nowhere/t"
run 10 "$plot"
expect "no file" 2 "no file; UCX_NPRDMA_TRACE="
run 10 "$plot" "$plot"
expect "no timeline" 2 "was not written by UCX_NPRDMA_TRACE"
run 10 "$plot" "$TAP_DIR/none"
expect "a file that is not there" 2 "cannot read"
run 10 "$plot" -s 12345 "$TAP_DIR"/t-*.json
expect "no transfer of this size" 2 "no transfer of 12345 bytes"
run 10 "$plot" -f x "$TAP_DIR"/t-*.json
expect "no number" 2 "-f: wanted a number, found 'x'"
run 10 "$plot" -s x "$TAP_DIR"/t-*.json
expect "no number of bytes" 2 "-s: wanted a number, found 'x'"
run 10 "$plot" -o "$TAP_DIR/nowhere/x" "$TAP_DIR"/t-*.json
expect "a folder that is not there" 2 \
    "^nprdma-trace-plot: -o: cannot write to the folder $TAP_DIR/nowhere\$"
run 10 "$plot" --help
expect "--help" 0 "^Usage: nprdma-trace-plot"
expect "which lists -o" 0 "^  -o PREFIX"
run 10 "$plot" -z
expect "an unknown option" 2 "unknown option -z"
tap_done
