#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The counters of a process.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

for name in $("$NPRDMA_BUILD/api_stats" | grep -v '^serve'); do
    run 60 "$NPRDMA_BUILD/api_stats" "$name"
    tap_expect_success "counters: $name"
done

tap_done
