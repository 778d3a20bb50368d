#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Without nprdma-run none of our code runs: the README must hold the words
# that UCX and Open MPI then print.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

phrase="transport 'nprdma' is not available"
readme=$NPRDMA_SRC/README.md

UCX_TLS=nprdma run 30 env -u LD_PRELOAD "$NPRDMA_BUILD/fail_load"
tap_expect_error "UCX names the transport" "$phrase"
tap_check "the README has UCX's words" grep -qF "$phrase" "$readme"

if [ -x "$NPRDMA_BUILD/mpi_types" ]; then
    # The first comes by way of mpirun, which may be ending already
    # (ORTE_ERROR_LOG in its place); the second from the rank itself.
    ompi="No components were able to be opened in the pml framework"
    rank="PML ucx cannot be selected"
    UCX_TLS=nprdma run 60 mpirun --allow-run-as-root --oversubscribe -n 2 \
        --mca pml ucx "$NPRDMA_BUILD/mpi_types"
    tap_expect_error "under Open MPI UCX names the transport" "$phrase"
    tap_expect_error "Open MPI names framework or component" "$ompi|$rank"
    tap_check "the README has Open MPI's words" grep -qF "$ompi" "$readme"
    tap_check "and those of its component" grep -qF "$rank" "$readme"
else
    tap_skip "Open MPI names the framework" "no MPI"
fi
tap_check "the README names the cure" grep -qF nprdma-run "$readme"

tap_done
