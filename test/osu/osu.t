#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The benchmarks' own checks, over nprdma.
set -euo pipefail
bin=$NPRDMA_PREFIX/libexec/nprdma/osu
if [ ! -x "$bin/osu_latency" ]; then
    echo "1..0 # SKIP the benchmarks are not built: configure found no MPI"
    exit 0
fi
export OSU_MPIRUN="$NPRDMA_PREFIX/bin/nprdma-run mpirun --oversubscribe"
export OSU_PRELOAD=$NPRDMA_PREFIX/lib/nprdma/libnprdma_preload.so
exec "$NPRDMA_SRC/osu-bench/selftest.sh" "$bin"
