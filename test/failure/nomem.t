#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Too little memory, files or file size for a segment: an error that tells
# the size that was wanted, no crash, no hang.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

# sweep OPTION PATTERN VALUE...: with more and more of a resource a job ends
# by itself each time; at least one end is an error line like PATTERN, and
# with the last value it works.
sweep() {
    local option=$1 pattern=$2 value told=0

    shift 2
    for value in "$@"; do
        # Through a pipe: a limit on files would hit the output itself.
        # shellcheck disable=SC2016
        run_here 60 bash -c '"$@" 2>&1 | cat; exit "${PIPESTATUS[0]}"' \
            pipe "$NPRDMA_BUILD/fail_data" "$option" "$value"
        if [ "$RC" -eq 134 ] && grep -q 'rcache\.c.*ERROR' "$TAP_OUT"; then
            tap_skip "$option $value ends by itself" \
                "UCX's registration cache aborts the process"
            continue
        fi
        if [ "$RC" -ge 124 ] || grep -q 'still not done' "$TAP_OUT"; then
            echo "exit code $RC" >> "$TAP_OUT"
            tap_not_ok "$option $value ends by itself" "$TAP_OUT"
            continue
        fi
        tap_ok "$option $value ends by itself"
        if [ "$RC" -ne 0 ] && grep -qE -e "$pattern" "$TAP_OUT"; then
            told=1
        fi
    done
    tap_expect_success "$option $value is enough"
    tap_check "$option: one of the errors says what was wanted" \
        test "$told" -eq 1
}

size='nprdma.* [0-9]+ *(bytes|[KMG]i?B|[KMG]\b)'
sweep --extra-as "$size" 0 65536 262144 1048576 4194304 16777216 67108864 \
    268435456 17179869184
sweep --fsize "$size" 0 4096 65536 1073741824
sweep --extra-nofile 'nprdma.*(file|descriptor|Too many open)' \
    0 1 2 3 4 5 6 7 8 10 12 16 100

tap_done
