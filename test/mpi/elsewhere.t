#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A rank that mpirun starts on another host has what nprdma-run has set. The
# other host is a name: its agent starts with an empty environment.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
[[ $(mpirun --version 2>&1) == *"(Open MPI)"* ]] ||
    tap_skip_all "there is no mpirun of Open MPI"

as_root=()
[ "$EUID" -eq 0 ] || as_root=(--map-root-user)
unshare "${as_root[@]}" --uts true 2>/dev/null ||
    tap_skip_all "unshare --uts is not allowed here"

cat >"$TAP_DIR/agent" <<END
#!/bin/bash
shift
exec unshare ${as_root[*]-} --uts env -i "PATH=\$PATH" HOME="$TAP_DIR" \\
    "LD_LIBRARY_PATH=\${LD_LIBRARY_PATH-}" \\
    bash -c 'hostname elsewhere; cd /; eval "\$*"' agent "\$@"
END
chmod 755 "$TAP_DIR/agent"
# Open MPI 4 and 5 have other names for it
export OMPI_MCA_plm_rsh_agent=$TAP_DIR/agent
export PRTE_MCA_plm_ssh_agent=$TAP_DIR/agent

# elsewhere ARGUMENT...: what a rank there has in its environment
elsewhere() {
    run 30 "${RUN_PREFIX[@]}" mpirun "$@" --host elsewhere:1 -n 1 env
    tap_expect_success "a rank elsewhere${1+ with $*}"
}

# has NAME VALUE
has() {
    tap_check "$1 is there" grep -qxE "$1=(.*:)?$2" "$TAP_OUT"
}

export UCX_NPRDMA_RING_SIZE=32
elsewhere
tap_check "it is elsewhere" grep -q '=elsewhere$' "$TAP_OUT"
has UCX_TLS nprdma
has UCX_ALLOC_PRIO '.*nprdma.*'
has LD_PRELOAD '.*/libnprdma_preload.so'
has OMPI_MCA_pml ucx
tap_check "what is not ours stays here" \
    test -z "$(grep '^UCX_NPRDMA_RING_SIZE=' "$TAP_OUT")"

elsewhere -x UCX_NPRDMA_RING_SIZE
has UCX_TLS nprdma
has LD_PRELOAD '.*/libnprdma_preload.so'
has UCX_NPRDMA_RING_SIZE 32

UCX_TLS=nprdma,self elsewhere
has UCX_TLS nprdma,self
tap_done
