#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every kind of test that ucx_perftest has, over UCT and UCP, between two
# processes. It looks at no data; GoogleTest and MPI programs do.
# Time limit: 300 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"
# shellcheck source-path=SCRIPTDIR source=pair.sh
. "$(dirname "${BASH_SOURCE[0]}")/pair.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
command -v ucx_perftest >/dev/null || tap_skip_all "no ucx_perftest: ucx-utils"
help=$(ucx_perftest -h 2>&1) || true
# One that is built with MPI must be told that there is none
base=(ucx_perftest -n 300 -w 10)
[[ $help != *"MPI mode"* ]] || base+=(-P 0)
mapfile -t tests < <(sed -n '/-t <test>/,/^$/s/^ *\([a-z_]*\) - .*/\1/p' \
    <<<"$help")

# perftest ARGUMENT...: a line of results, and both sides end well
perftest() {
    pair -p localhost "${base[@]}" "$@"
    pair_end
    if [ "$RC" -eq 0 ] && [ "$PAIR_RC" -eq 0 ] &&
        grep -qE '^(Final:|\[thread|\[multi) *.* [0-9.]+ ' "$TAP_OUT"; then
        tap_ok "ucx_perftest $*"
    else
        cat "$PAIR_OUT" >>"$TAP_OUT"
        tap_not_ok "ucx_perftest $* (codes $RC, server $PAIR_RC)" "$TAP_OUT"
    fi
}

uct() {
    perftest -d soft0 -x nprdma "$@"
}

# all_of TEST: in each layout, and with some options
all_of() {
    local test=$1 size
    case $test in
    am_lat | am_bw)
        uct -t "$test" -D short -s 16
        uct -t "$test" -D shortiov -s 16
        uct -t "$test" -D bcopy -s 1024
        uct -t "$test" -D zcopy -s 4096
        ;;
    put_lat | put_bw)
        uct -t "$test" -D short -s 8
        uct -t "$test" -D bcopy -s 1024
        uct -t "$test" -D zcopy -s 65536
        ;;
    get | get_bw)
        uct -t "$test" -D bcopy -s 1024
        uct -t "$test" -D zcopy -s 65536
        ;;
    add_lat | add_mr | fadd | swap | cswap)
        for size in 4 8; do
            uct -t "$test" -D short -s "$size"
        done
        ;;
    ucp_add | ucp_fadd | ucp_swap | ucp_cswap)
        for size in 4 8; do
            perftest -t "$test" -s "$size"
        done
        ;;
    tag_* | stream_* | ucp_put_* | ucp_get | ucp_am_*)
        for size in 8 4000 1000000; do
            perftest -t "$test" -s "$size"
        done
        perftest -t "$test" -s 100000 -e
        perftest -t "$test" -s 1000 -M multi
        ;;
    *)
        tap_skip "ucx_perftest -t $test" "it is new: say here how it is called"
        return
        ;;
    esac
    case $test in
    tag_lat | tag_bw)
        perftest -t "$test" -s 100,3000,20000 -D iov
        perftest -t "$test" -s 1000 -E sleep
        perftest -t "$test" -s 1000 -C
        perftest -t "$test" -s 100000 -U
        ;;
    stream_*) perftest -t "$test" -s 1000 -r recv_data ;;
    ucp_am_*) perftest -t "$test" -s 100000 -H 64 ;;
    esac
}

tap_check "ucx_perftest lists its tests" test "${#tests[@]}" -ge 25
for test in "${tests[@]}"; do
    all_of "$test"
done

# A transport that is not there is noticed
pair -p localhost "${base[@]}" -t am_lat -d soft1 -x nprdma
pair_stop
tap_check "a device that is not there is an error" \
    grep -q 'Cannot use nprdma/soft1' "$TAP_OUT"
tap_done
