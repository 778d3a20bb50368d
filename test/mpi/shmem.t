#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# OpenSHMEM, as Open MPI has it over UCX.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
for tool in oshcc oshrun; do
    command -v "$tool" >/dev/null ||
        tap_skip_all "no $tool: this Open MPI has no OpenSHMEM"
done

run 120 oshcc -O1 -std=gnu11 -Wall -Wextra -Werror -o "$TAP_DIR/shmem_all" \
    "$NPRDMA_SRC/test/mpi/shmem_all.c"
tap_expect_success "shmem_all compiles"
for ranks in 1 2 4; do
    run_here 100 oshrun --oversubscribe --bind-to none -n "$ranks" \
        "$TAP_DIR/shmem_all"
    tap_expect_success "shmem_all, $ranks processes"
    tap_check "each of them says so" \
        test "$(grep -c 'all right$' "$TAP_OUT")" -eq "$ranks"
done
UCX_LOG_LEVEL=info run_here 100 oshrun --oversubscribe --bind-to none -n 2 \
    "$TAP_DIR/shmem_all"
tap_check "puts, gets and atomics are nprdma's" \
    grep -qE 'cfg.* rma\(nprdma/soft0\) +amo\(nprdma/soft0' "$TAP_OUT"
tap_done
