#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A peer dies by SIGKILL in mid-transfer: an error in time, nothing left.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

# UCX 1.13 stops with an assertion (stubs.c) when a peer fails under the new
# protocols, whatever the transport.
export UCX_PROTO_ENABLE=${UCX_PROTOCOLS[0]}
export UCX_KEEPALIVE_INTERVAL=1s
leftovers_note

# UCX 1.18 forgets a receive whose sender dies in a rendezvous, over tcp too
killed() {
    local mode=$1 size=$2 name="killed: $1, $2 bytes"

    run_here 60 "$NPRDMA_BUILD/fail_kill" "$mode" "$size"
    if [ "$mode" = sender ] && [ "$size" -gt 9000 ] && [ "$RC" -eq 1 ] &&
        ucx_has 16 && grep -q 'still not done' "$TAP_OUT"; then
        cp "$TAP_OUT" "$TAP_DIR/ours"
        run 60 env UCX_TLS=tcp,self "$NPRDMA_BUILD/fail_kill" "$mode" "$size"
        if [ "$RC" -eq 1 ] && grep -q 'still not done' "$TAP_OUT"; then
            tap_skip "$name" "UCX's own: it is the same over tcp"
        else
            tap_not_ok "$name, which passes over tcp" "$TAP_DIR/ours"
        fi
        return
    fi
    tap_expect_success "$name"
}

for mode in receiver sender put get; do
    for size in 8 9000 1000000 33000000; do
        killed "$mode" "$size"
    done
done
run_here 60 "$NPRDMA_BUILD/fail_kill" idle 100
tap_expect_success "killed while idle"
tap_check "nothing is left of the killed" \
    leftovers_none "$NPRDMA_BUILD/fail_kill"

if [ -x "$NPRDMA_BUILD/fail_mpi" ]; then
    run_mpi 60 2 "$NPRDMA_BUILD/fail_mpi"
    # mpirun gives 128 + 9 then, as a time-out's last resort would. It names the
    # rank that it has seen end first, which may be the other one: UCX aborts
    # where an endpoint fails that has no error handler.
    if [ "$RC" -ne 0 ] && [ "$RC" -ne 124 ] &&
        grep -q 'exited on signal [96] ' <<<"$(tr -s '\n' ' ' <"$TAP_OUT")"
    then
        tap_ok "an MPI job ends when a rank is killed"
    else
        tap_not_ok "an MPI job ends when a rank is killed" "$TAP_OUT"
    fi
    tap_check "nothing is left of the MPI job" \
        leftovers_none "$NPRDMA_BUILD/fail_mpi"
else
    tap_skip "an MPI job ends when a rank is killed" "no MPI"
fi

tap_done
