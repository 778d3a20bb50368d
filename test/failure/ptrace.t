#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The kernel refuses process_vm_readv/writev: the data is right all the same,
# and each process says at most once what to change.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

nobody=$(id -u nobody)

# advice NAME MIN MAX: that many lines advise; none comes twice from a process.
advice() {
    local name=$1 min=$2 max=$3 count

    if [ -n "${NPRDMA_TEST_LAUNCH:-}" ]; then
        tap_skip "$name: the advice" "not our transport"
        return
    fi
    count=$(grep -ciE '(UCX|nprdma).*(process_vm|ptrace|seccomp)' \
        "$TAP_OUT" || true)
    if [ "$count" -ge "$min" ] && [ "$count" -le "$max" ]; then
        tap_ok "$name: the advice"
    else
        echo "$count lines of advice, $min to $max wanted" >> "$TAP_OUT"
        tap_not_ok "$name: the advice" "$TAP_OUT"
    fi
}

run_here 30 "$NPRDMA_BUILD/fail_deny" true
if [ "$RC" -eq 77 ]; then
    tap_skip "seccomp" "this kernel has no seccomp filter"
else
    run_here 60 "$NPRDMA_BUILD/fail_deny" "$NPRDMA_BUILD/fail_data"
    tap_expect_success "seccomp: tags, puts, gets, atomics"
    advice "seccomp" 1 2
    run_here 60 "$NPRDMA_BUILD/fail_deny" "$NPRDMA_BUILD/fail_data" \
        --largest-first
    tap_expect_success "seccomp: a large transfer is the first to be refused"
    if [ -x "$NPRDMA_BUILD/mpi_p2p" ]; then
        for program in mpi_p2p mpi_rma mpi_mem; do
            run_mpi 130 2 "$NPRDMA_BUILD/fail_deny" "$NPRDMA_BUILD/$program"
            tap_expect_success "seccomp: $program"
            advice "seccomp, $program" 1 2
        done
        # One side is refused, the other is not.
        name="seccomp at one of two ranks: mpi_p2p"
        run 60 mpirun --allow-run-as-root --oversubscribe -n 1 true : -n 1 true
        if [ "$RC" -gt 128 ]; then
            tap_skip "$name" "mpirun fails with two programs (exit code $RC)"
        else
            run_mpi 130 1 "$NPRDMA_BUILD/fail_deny" "$NPRDMA_BUILD/mpi_p2p" : \
                -n 1 "$NPRDMA_BUILD/mpi_p2p"
            tap_expect_success "$name"
        fi
    else
        tap_skip "seccomp: MPI programs" "no MPI"
    fi
fi

if [ "$(id -u)" -ne 0 ]; then
    tap_skip "another user" "needs root"
else
    all=$(copy_for_all_users fail_data)
    if [ -d "$all/prefix" ]; then
        RUN_PREFIX=("$all/prefix/bin/nprdma-run")
    fi
    cp "$(shim_path libfail_undumpable)" "$all/bin/"
    chmod a+r "$all"/bin/*

    UCX_NPRDMA_PEER_USERS=any run_here 60 "$all/bin/fail_data" \
        --child-user "$nobody"
    tap_expect_success "two users: tags, puts, gets, atomics"
    advice "two users" 0 2

    run_here 60 "$all/bin/fail_data" --child-user "$nobody"
    tap_expect_error "two users who did not agree are refused" \
        'nprdma.*(user|uid|PEER_USERS)|nreachable'

    as_nobody=(setpriv --reuid "$nobody" --regid "$(id -g nobody)"
        --clear-groups env "HOME=$TAP_DIR")
    run 60 "${as_nobody[@]}" "${RUN_PREFIX[@]}" "$all/bin/fail_data" \
        --undumpable
    tap_expect_success "not to be traced: tags, puts, gets, atomics"
    advice "not to be traced" 1 2

    # For the inner shell
    # shellcheck disable=SC2016
    run 60 "${as_nobody[@]}" "${RUN_PREFIX[@]}" bash -c \
        'LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$1" exec "$2"' \
        shim "$all/bin/libfail_undumpable.so" "$all/bin/fail_data"
    tap_expect_success "not to be traced from the start"
fi

tap_done
