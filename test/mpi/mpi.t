#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs the MPI programs with 1, 2 and 4 ranks; prints TAP.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

[ -x "$NPRDMA_BUILD/mpi_p2p" ] ||
    tap_skip_all "the MPI programs are not built: configure found no MPI"

if [ ${#UCX_PROTOCOLS[@]} -eq 1 ]; then
    tap_skip "the older protocols" "UCX 1.16 and later crash with them"
fi
for ranks in 1 2 4; do
    for protov2 in "${UCX_PROTOCOLS[@]}"; do
        for program in mpi_p2p mpi_types mpi_rma; do
            UCX_PROTO_ENABLE=$protov2 \
                run_mpi 130 "$ranks" "$NPRDMA_BUILD/$program"
            tap_expect_success \
                "$program, $ranks ranks, UCX_PROTO_ENABLE=$protov2"
        done
    done
    for program in mpi_pieces mpi_coll mpi_threads mpi_mem mpi_fork; do
        run_mpi 130 "$ranks" "$NPRDMA_BUILD/$program"
        tap_expect_success "$program, $ranks ranks"
    done
done

# Above, large buffers are announced; here none is
for program in mpi_p2p mpi_types mpi_rma mpi_coll mpi_threads mpi_mem mpi_fork; do
    UCX_NPRDMA_PREPARE=off run_mpi 130 2 "$NPRDMA_BUILD/$program"
    tap_expect_success "$program, 2 ranks, no buffer is announced"
done

# And here all that a rendezvous moves
for scheme in get_zcopy put_zcopy am; do
    for protov2 in "${UCX_PROTOCOLS[@]}"; do
        UCX_RNDV_SCHEME=$scheme UCX_PROTO_ENABLE=$protov2 \
            UCX_NPRDMA_PREPARE_MIN=4k \
            run_mpi 130 2 "$NPRDMA_BUILD/mpi_p2p"
        tap_expect_success \
            "mpi_p2p, rendezvous $scheme, UCX_PROTO_ENABLE=$protov2"
    done
done
UCX_RNDV_THRESH=0 run_mpi 130 2 "$NPRDMA_BUILD/mpi_p2p"
tap_expect_success "mpi_p2p, rendezvous at every size"

if [ -z "${NPRDMA_TEST_LAUNCH:-}" ]; then
    UCX_LOG_LEVEL=info run_mpi 130 2 "$NPRDMA_BUILD/mpi_types"
    tap_check "all lanes are nprdma's" grep -q 'nprdma/soft0' "$TAP_OUT"
fi

for ranks in 2 4; do
    run_mpi 130 "$ranks" "$NPRDMA_BUILD/mpi_passive"
    tap_expect_success "mpi_passive, $ranks ranks"
    grep '^# ' "$TAP_OUT" || true
done

# The programs must be able to fail.
UCX_TLS=tcp,self run 60 mpirun --allow-run-as-root --oversubscribe \
    --bind-to none --mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any \
    --mca opal_common_ucx_devices any -n 2 "$NPRDMA_BUILD/mpi_passive" 3
tap_expect_error "who needs the owner's progress is noticed" \
    "0 of 1 ranks had finished when the owner ended to compute"
# For the inner shell
# shellcheck disable=SC2016
run_mpi 130 2 bash -c 'LD_PRELOAD="${LD_PRELOAD:+$LD_PRELOAD:}$1" exec "$2"' \
    spoil "$(shim_path libmpi_spoil)" "$NPRDMA_BUILD/mpi_p2p"
tap_expect_error "a spoilt bit is noticed" 'byte [0-9]+ of [0-9]+ .* wanted'

tap_done
