#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Views of memory as rows of regions, and what each refusal means; prints TAP.
set -euo pipefail
if [ ! -x "$NPRDMA_BUILD/test_rows" ]; then
    echo "1..0 # SKIP built without libibverbs"
    exit 0
fi
exec "$NPRDMA_BUILD/test_rows"
