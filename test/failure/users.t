#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two users' jobs at the same time on one host: both are right.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ "$(id -u)" -eq 0 ] || tap_skip_all "needs root, to become another user"
[ -x "$NPRDMA_BUILD/mpi_p2p" ] || tap_skip_all "no MPI"

all=$(copy_for_all_users mpi_p2p mpi_coll)
if [ -d "$all/prefix" ]; then
    RUN_MPI=("$all/prefix/bin/nprdma-run" mpirun --oversubscribe
        --bind-to none)
fi
user=(setpriv --reuid "$(id -u nobody)" --regid "$(id -g nobody)"
    --clear-groups env)
mkdir "$TAP_DIR/home"
chmod 777 "$TAP_DIR/home"

# Two jobs share the cores: whoever waits gives his core away.
export OMPI_MCA_mpi_yield_when_idle=1
for program in mpi_p2p mpi_coll; do
    timeout -k 5 130 "${user[@]}" "HOME=$TAP_DIR/home" \
        "TMPDIR=$TAP_DIR/home" "${RUN_MPI[@]}" -n 2 "$all/bin/$program" \
        > "$TAP_DIR/nobody.out" 2>&1 < /dev/null &
    other=$!
    run 130 "${RUN_MPI[@]}" -n 2 "$all/bin/$program"
    tap_expect_success "$program as root beside another user's"
    if wait "$other"; then
        tap_ok "$program as another user beside root's"
    else
        tap_not_ok "$program as another user beside root's" \
            "$TAP_DIR/nobody.out"
    fi
done

tap_done
