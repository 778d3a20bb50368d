#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The MPI programs, compiled and started with MPICH, which here is over UCX.
# Time limit: 300 s
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
for tool in mpicc.mpich mpirun.mpich mpichversion; do
    command -v "$tool" >/dev/null ||
        tap_skip_all "no $tool: packages mpich, libmpich-dev"
done
version=$(mpichversion)
[[ $version == *ch4:ucx* ]] ||
    tap_skip_all "this MPICH was not built for UCX: its device is$(sed -n \
        's/^MPICH Device:[[:blank:]]*/ /p' <<<"$version")"

# mpich RANKS PROGRAM...
mpich() {
    local ranks=$1
    shift
    run_here 130 mpirun.mpich -n "$ranks" "$@"
}

programs=(mpi_p2p mpi_types mpi_rma mpi_pieces mpi_coll mpi_threads mpi_mem
    mpi_fork)
for name in "${programs[@]}"; do
    # its header takes MPI_STATUSES_IGNORE for an array, and warns
    run 120 mpicc.mpich -w -O1 -std=gnu11 -pthread -o "$TAP_DIR/$name" \
        "$NPRDMA_SRC/test/mpi/$name.c" "$NPRDMA_SRC/test/mpi/mpi_check.c"
    tap_expect_success "$name compiles"
done

# Lanes are words such as am(nprdma/soft0); nothing else has a device
only_nprdma() {
    grep -q '(nprdma/soft0' "$TAP_OUT" &&
        ! grep -qE 'cfg(\[|#).*[( ](posix|sysv|tcp|cma|self)/' "$TAP_OUT"
}

# MPICH could take its own shared memory within a host, and say nothing
for name in "${programs[@]}"; do
    UCX_LOG_LEVEL=info mpich 2 "$TAP_DIR/$name"
    tap_expect_success "$name, 2 ranks"
    tap_check "all its lanes are nprdma's" only_nprdma
done
for name in mpi_types mpi_coll mpi_mem mpi_fork; do
    mpich 4 "$TAP_DIR/$name"
    tap_expect_success "$name, 4 ranks"
done

UCX_NPRDMA_TRACE=$TAP_DIR/trace.%p mpich 2 "$TAP_DIR/mpi_coll"
cat "$TAP_DIR"/trace.* >"$TAP_OUT"
tap_check "its messages are in a timeline" \
    test "$(grep -c '"name":"message"' "$TAP_OUT")" -ge 1000
tap_done
