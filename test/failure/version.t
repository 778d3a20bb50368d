#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A UCX of another version: the plug-in refuses, in one line.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

# For the inner shell
# shellcheck disable=SC2016
run_here 30 bash -c 'LD_PRELOAD="$1:$LD_PRELOAD" exec "$2"' \
    shim "$(shim_path libfail_version)" "$NPRDMA_BUILD/fail_load"
tap_expect_error "UCX says that the transport is not there" \
    "transport 'nprdma' is not available"
tap_check "exactly one line says why" \
    test "$(grep -c 'nprdma.*1\.99' "$TAP_OUT")" -eq 1
built=$("${RUN_PREFIX[@]}" ucx_info -v |
    sed -n '1s/.*ersion \([0-9]*\)\.\([0-9]*\).*/\1\\.\2/p')
tap_check "and names the version it was built for" \
    grep -q "nprdma.*$built.*1\.99" "$TAP_OUT"

tap_done
