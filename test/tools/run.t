#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# nprdma-run says what it was given in place of a program, and runs what is one.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

run=$NPRDMA_PREFIX/bin/nprdma-run

# expect NAME CODE PATTERN: the run ended with CODE and printed that line alone
expect() {
    if [ "$RC" -eq "$2" ] && grep -qE -e "$3" "$TAP_OUT" &&
        [ "$(wc -l <"$TAP_OUT")" -eq 1 ]; then
        tap_ok "$1"
    else
        echo "exit code $RC; wanted $2 and one line like: $3" >>"$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}

mkdir "$TAP_DIR/work"
cd "$TAP_DIR/work"
echo 'int main(void) { return 0; }' >a.c
printf '#!/bin/sh\necho it runs\n' >program
chmod +x program

run 10 "$run" ./program
expect "a program" 0 '^it runs$'
run 10 "$run" ./a.c
expect "a file that is none" 126 "^nprdma-run: './a.c' is not executable"
run 10 "$run" "$TAP_DIR/work"
expect "a directory" 126 "^nprdma-run: '$TAP_DIR/work' is a directory"
run 10 "$run" ./nosuch
expect "no file" 127 "^nprdma-run: program './nosuch' not found: there is no"
run 10 "$run" nosuch
expect "no program" 127 "^nprdma-run: program 'nosuch' not found: .*PATH"
run 10 "$run" program
expect "a program that is here, not in PATH" 127 "here is \./program\$"
run 10 env NPRDMA_PLUGIN=/nosuch "$run" ./program
expect "a plug-in of the user's that is not there" 2 \
    "^nprdma-run: NPRDMA_PLUGIN=/nosuch is missing .*unset NPRDMA_PLUGIN"
run 10 env NPRDMA_PLUGIN=/ "$run" ./program
expect "or is a directory" 2 "^nprdma-run: NPRDMA_PLUGIN=/ is .*no file: unset"
run 10 env NPRDMA_PLUGIN=program "$run" env
tap_check "one that is here is named by its path" \
    grep -q '^NPRDMA_PLUGIN=/.*/program$' "$TAP_OUT"
tap_check "and UCX's cache stays on, since it may be for a UCX that needs it" \
    test -z "$(grep '^UCX_RCACHE_ENABLE=' "$TAP_OUT")"

# Eager messages of UCP, as both kinds of its protocols have them
if ! ucx_has 14; then
    # border VARIABLE...: where rendezvous begins
    border() {
        run 20 env -u PMIX_RANK UCX_TLS=nprdma UCX_PROTO_ENABLE=n "$@" "$run" \
            ucx_info -e -u t -D shm
        sed -n 's/.*tag_send: .*>\.\.\([0-9]*\)\.\.<rndv>.*/\1/p' "$TAP_OUT"
    }
    at=$(border PMIX_RANK=0)
    tap_check "ranks of MPI: rendezvous begins right above 256 KiB: ${at:=0}" \
        [ "$at" -gt 262144 -a "$at" -lt 280000 ]
    at=$(border UCX_NPRDMA_EAGER_MAX=4m)
    tap_check "where EAGER_MAX says: $((at))" \
        [ "$at" -gt 4194304 -a "$at" -lt 4294967 ]
    at=$(border A=)
    tap_check "else where no message has two fragments: ${at:=0}" \
        [ "$at" -eq 12352 ]

    # its newer ones say what they take for each size
    newer_border() {
        run 20 env -u PMIX_RANK UCX_TLS=nprdma UCX_PROTO_ENABLE=y "$@" "$run" \
            ucx_info -e -u t -D shm
        sed -n 's/^# | *\([0-9]*\)\.\.inf .*rendezvous.*/\1/p' "$TAP_OUT"
    }
    at=$(newer_border PMIX_RANK=0)
    tap_check "newer protocols: the same: ${at:=0}" \
        [ "$at" -gt 250000 -a "$at" -lt 280000 ]
    at=$(newer_border UCX_NPRDMA_EAGER_MAX=1m)
    tap_check "newer protocols, where EAGER_MAX says: $((at))" \
        [ "$at" -gt 1000000 -a "$at" -lt 1100000 ]
    at=$(newer_border A=)
    tap_check "newer protocols, no message has two fragments: ${at:=0}" \
        [ "$at" -gt 8192 -a "$at" -le 12352 ]
else
    tap_skip "where rendezvous begins" "UCX's newer protocols are the default"
fi
run 20 env UCX_TLS=nprdma UCX_NPRDMA_EAGER_MAX=inf "$run" \
    ucx_info -e -u t -D shm
tap_check "no bound for eager messages is refused with a line" \
    grep -q 'UCX_NPRDMA_EAGER_MAX is more than 64m' "$TAP_OUT"

tap_done
