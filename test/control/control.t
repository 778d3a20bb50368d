#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 400 s
# Control operations while transfers fly: soft0 against stock's posix, cma and,
# where errors of peers are handled, tcp. A sample; NPRDMA_CONTROL_SAMPLE=1 runs
# all 2005 combinations.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"
# shellcheck source-path=SCRIPTDIR source=compare.sh
. "$(dirname "${BASH_SOURCE[0]}")/compare.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

CONTROL_STOCK=(env "UCX_TLS=posix,cma,tcp,self" UCX_NET_DEVICES=lo
    UCX_LOG_LEVEL=error)
CONTROL_OURS=(env UCX_LOG_LEVEL=error "${RUN_PREFIX[@]}")

leftovers_note
export UCX_PROTO_ENABLE=${UCX_PROTOCOLS[0]}
if ucx_has 16; then
    cat "$CONTROL_DIR"/accepted{,-newer} >"$TAP_DIR/accepted"
    CONTROL_ACCEPTED=$TAP_DIR/accepted
fi
control_compare "$TAP_DIR" -s "${NPRDMA_CONTROL_SAMPLE:-8}" || true
grep '^differs' "$TAP_DIR/result" >"$TAP_OUT" || true
name="$(control_count ran "$TAP_DIR") combinations differ"
name+=" $(control_count accepted "$TAP_DIR") times, each with a reason"
if [ -s "$TAP_OUT" ]; then
    tap_not_ok "$name" "$TAP_OUT"
    mkdir -p "$NPRDMA_BUILD/test-logs"
    cp "$TAP_DIR"/stock? "$TAP_DIR"/ours? "$NPRDMA_BUILD/test-logs"
else
    tap_ok "$name"
fi
tap_check "combinations ran" test "$(control_count ran "$TAP_DIR")" -gt 100
tap_check "nothing is left of their processes" \
    leftovers_none "$NPRDMA_BUILD/control"
tap_done
