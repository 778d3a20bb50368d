# SPDX-License-Identifier: BSD-3-Clause
# For jobs: what most of them need.
# shellcheck shell=bash disable=SC2034
set -euo pipefail

# The reference transport: UCX 1.13's own wire-up over UD drops packets that
# come over rxe unless it does not check their addresses.
LAB_UCX_RC=("UCX_TLS=rc_verbs,ud_verbs:aux,self"
    UCX_UD_VERBS_ETH_DGID_CHECK=n UCX_NET_DEVICES=rxe0:1)

# Open MPI among guests, started through the shared folder
LAB_MPIRUN=(mpirun --allow-run-as-root --oversubscribe --bind-to none
    --mca plm_rsh_agent /lab/guest/lab-rsh --mca oob_tcp_if_include eth0
    --mca btl_tcp_if_include eth0)

# And among its modules nothing but UCX
LAB_MPI_UCX=(--mca pml ucx --mca osc ucx --mca opal_common_ucx_tls any
    --mca opal_common_ucx_devices any)
for name in UCX_TLS UCX_UD_VERBS_ETH_DGID_CHECK UCX_NET_DEVICES; do
    LAB_MPI_UCX+=(-x "$name")
done
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# own_transport: what nprdma-run starts from here uses our transport over rxe0,
# also where soft0 would reach the peer; with the device rxe-dmabuf by nprdma.ko
own_transport() {
    local guest
    if [ -e /sys/module/rdma_rxe/parameters/dmabuf_delay ] &&
        [ ! -e /sys/module/nprdma ]; then
        kmod_load_rxe
        for ((guest = 2; guest <= LAB_GUESTS; ++guest)); do
            on "$guest" bash -c '. /lab/guest/lib.sh && kmod_load_rxe'
        done
        export UCX_NPRDMA_MAPPER=kmod
    fi
    export UCX_TLS=nprdma UCX_NET_DEVICES=rxe0:1 UCX_NPRDMA_INTRA_NODE=verbs
    export UCX_WARN_UNUSED_ENV_VARS=n
    LAB_RUN=$NPRDMA_PREFIX/bin/nprdma-run
}

# own_gtest PROGRAM FILTER: all of it must pass over rxe0
own_gtest() {
    if [ ! -x "$NPRDMA_BUILD/$1" ]; then
        skip "$1 is not built"
    fi
    own_transport
    NPRDMA_TEST_DEV=rxe0:1 "$LAB_RUN" "$NPRDMA_BUILD/$1" --gtest_filter="$2"
}

die() {
    echo "$*" >&2
    exit 1
}

# skip REASON: this cannot run here
skip() {
    echo "SKIP $*"
    exit 77
}

# passes COMMAND...: it prints TAP, of which no line may be "not ok"
passes() {
    "$@" | tee /tmp/tap
    grep -q '^1\.\.[1-9]' /tmp/tap
    ! grep -q '^not ok' /tmp/tap
}

# kmod_load [NAME...]: nprdma.ko as it was built for this kernel, and modules of
# its tests. KMOD_PARAMETERS: of nprdma.ko
kmod_load() {
    local dir name
    dir=$NPRDMA_BUILD/kmod/$(uname -r)
    [ -e "$dir/nprdma.ko" ] ||
        skip "nprdma.ko is not built for this kernel: make kmod in the build tree"
    # A job before this one may have failed with it loaded
    rmmod "$@" nprdma 2>/dev/null || true
    # shellcheck disable=SC2086
    insmod "$dir/nprdma.ko" ${KMOD_PARAMETERS-}
    for name in "$@"; do
        insmod "$dir/test/$name.ko"
    done
}

# kmod_load_rxe: for Soft-RoCE, which has no translation cache but readers of
# RCU
kmod_load_rxe() {
    kmod_load
    echo Y >/sys/module/nprdma/parameters/sync_rcu
}

# kmod_unload [NAME...]: nothing uses them any more
kmod_unload() {
    kmod_leaks
    rmmod "$@" nprdma
}

# kmod_leaks: what kmemleak says of our modules, on a kernel that has it, if
# KMEMLEAK=yes: it takes minutes. It tells of nothing that is younger than 5 s,
# or that it has seen once only.
kmod_leaks() {
    local leaks=/sys/kernel/debug/kmemleak
    [ "${KMEMLEAK-}" = yes ] || return 0
    mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
    [ -e "$leaks" ] || return 0
    sleep 6
    echo scan >"$leaks"
    echo scan >"$leaks"
    awk 'BEGIN { RS = "unreferenced object" } /nprdma/' "$leaks" >/tmp/leaks
    [ ! -s /tmp/leaks ] || die "kmemleak: $(cat /tmp/leaks)"
    echo "# kmemleak found nothing of nprdma"
}

# kmod_failures: any allocation may be made to fail, by fail-nth in /proc, on a
# kernel that has it
kmod_failures() {
    local what
    mount -t debugfs debugfs /sys/kernel/debug 2>/dev/null || true
    for what in failslab fail_page_alloc; do
        [ -d "/sys/kernel/debug/$what" ] || continue
        echo N >"/sys/kernel/debug/$what/ignore-gfp-wait"
        echo 0 >"/sys/kernel/debug/$what/verbose"
    done
    if [ -d /sys/kernel/debug/fail_page_alloc ]; then
        echo 0 >/sys/kernel/debug/fail_page_alloc/min-order
    fi
}

# within GROUP MIB COMMAND...: in a memory cgroup of that name and limit
within() {
    local group=/sys/fs/cgroup/$1
    echo +memory >/sys/fs/cgroup/cgroup.subtree_control
    mkdir -p "$group"
    echo $(($2 * 1048576)) >"$group/memory.max"
    shift 2
    (
        echo "$BASHPID" >"$group/cgroup.procs"
        exec "$@"
    )
}

# listening GUEST PORT
listening() {
    local show=(ss -Hltn "sport = :$2")
    if [ "$1" != "$LAB_GUEST" ]; then
        show=(on "$1" "${show[@]}")
    fi
    "${show[@]}" | grep -q .
}

# with_server GUEST PORT "SERVER COMMAND" CLIENT...: runs the client when the
# server listens; both must succeed.
with_server() {
    local guest=$1 port=$2 code=0 tries pid log
    local -a server
    read -r -a server <<<"$3"
    shift 3
    if [ "$guest" != "$LAB_GUEST" ]; then
        server=(on "$guest" "${server[@]}")
    fi
    log=$(mktemp)
    "${server[@]}" >"$log" 2>&1 </dev/null &
    pid=$!
    for ((tries = 0; tries < 100; ++tries)); do
        if listening "$guest" "$port" || ! kill -0 "$pid" 2>/dev/null; then
            break
        fi
        sleep 0.1
    done
    "$@" || code=$?
    if [ "$code" -ne 0 ]; then
        kill "$pid" 2>/dev/null || true
    fi
    wait "$pid" || code=$((code == 0 ? $? : code))
    if [ "$code" -ne 0 ]; then
        echo "the server said:"
        tail -n 20 "$log"
    fi
    return "$code"
}

# lab_iommu_groups: what stands in them
lab_iommu_groups() {
    local group device
    for group in /sys/kernel/iommu_groups/*; do
        for device in "$group"/devices/*; do
            echo "group ${group##*/} $(cat "$group/type"): ${device##*/}" \
                "$(cat "$device/vendor"):$(cat "$device/device")"
        done
    done
}

# lab_pci VENDOR:DEVICE: its address
lab_pci() {
    local device
    for device in /sys/bus/pci/devices/*; do
        if [ "$(cat "$device/vendor"):$(cat "$device/device")" = \
            "0x${1%:*}:0x${1#*:}" ]; then
            echo "${device##*/}"
        fi
    done
}
