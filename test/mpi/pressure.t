#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A job that has less memory than buffers, and swap; prints TAP.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/tap.sh"

# MiB of the whole job, which has 320. Some kernels (Linux 6.18, on a machine
# that is busy otherwise) give reclaim up now and then although there is swap,
# and kill a rank: then the job gets a little more, still less than it has. What
# pins its memory is killed with any of them.
limits=(192 224 256)
area=20   # MiB of each area for transfers: both ranks have three
work=100  # MiB that each rank works on between transfers: 320 in all
total=$(((area * 6) + (work * 2)))

[ -x "$NPRDMA_BUILD/mpi_pressure" ] ||
    tap_skip_all "the MPI programs are not built: configure found no MPI"
[ "$(id -u)" -eq 0 ] ||
    tap_skip_all "only root can limit a job's memory and make swap"

zram=
group=
keeper=

# May be called again
clean_up() {
    local tries pid

    if [ -n "$group" ] && [ -d "$group" ]; then
        for ((tries = 0; tries < 50; ++tries)); do
            while read -r pid; do # nobody but our job is in there
                kill -9 "$pid" 2> /dev/null || true
            done < "$group/cgroup.procs"
            if rmdir "$group" 2> /dev/null; then
                break
            fi
            sleep 0.1
        done
    fi
    if [ -n "$zram" ]; then
        swapoff "/dev/zram$zram" 2> /dev/null || true
        echo 1 > "/sys/block/zram$zram/reset" || true
        echo "$zram" > /sys/class/zram-control/hot_remove || true
    fi 2> /dev/null
    rm -rf "$TAP_DIR"
}

stop() {
    if [ -n "$keeper" ]; then
        kill -- "-$keeper" 2> /dev/null || true
        wait "$keeper" 2> /dev/null || true
    fi
    clean_up
}
trap stop EXIT
trap 'exit 143' INT TERM HUP

# A device of our own: who made another may take it away. Sets reason if there
# is no swap.
make_swap() {
    modprobe zram 2> /dev/null || true
    if ! zram=$(cat /sys/class/zram-control/hot_add 2> /dev/null); then
        zram=
        reason="the kernel gives no zram device for swap"
    elif ! { echo 1G > "/sys/block/zram$zram/disksize" &&
        mkswap "/dev/zram$zram" && swapon "/dev/zram$zram"; } \
        > "$TAP_OUT" 2>&1; then
        reason="no swap on /dev/zram$zram: $(tail -n 1 "$TAP_OUT")"
    fi
    if [ -n "$(sed 1d /proc/swaps)" ]; then
        reason=
    fi
}

# set_limit MIB: of the group, which is of version 1 or 2
set_limit() {
    local file=memory.max

    [ -e "$group/$file" ] || file=memory.limit_in_bytes
    limit=$1
    echo "${limit}M" > "$group/$file"
}

# Processes of the group that the kernel killed so far
group_kills() {
    { cat "$group"/memory.{oom_control,events} 2> /dev/null || true; } |
        awk '$1 == "oom_kill" { kills += $2 } END { print kills + 0 }'
}

# Version 1: below the group that we are in, or the root that we see
make_group_v1() {
    local top own at

    top=$(awk '$3 == "cgroup" && $4 ~ /(^|,)memory(,|$)/ { print $2; exit }' \
        /proc/mounts)
    own=$(awk -F: '$2 ~ /(^|,)memory(,|$)/ { print $3; exit }' \
        /proc/self/cgroup)
    [ -n "$top" ] || return 1
    for at in "$top$own" "$top"; do
        group=${at%/}/nprdma-test.$$
        if mkdir "$group" 2> /dev/null; then
            if set_limit "${limits[0]}" 2> /dev/null; then
                return 0
            fi
            rmdir "$group"
        fi
    done
    group=
    return 1
}

# Version 2: the controller goes to children of groups without processes, and of
# the root
make_group_v2() {
    local top own at

    top=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
    own=$(awk -F: '$1 == "0" { print $3; exit }' /proc/self/cgroup)
    [ -n "$top" ] || return 1
    for at in "$(dirname "$top$own/.")" "$(dirname "$top$own")" "$top"; do
        [ -d "$at" ] || continue
        echo +memory > "$at/cgroup.subtree_control" || true
        group=${at%/}/nprdma-test.$$
        if mkdir "$group"; then
            if set_limit "${limits[0]}"; then
                return 0
            fi
            rmdir "$group"
        fi
    done 2> /dev/null
    group=
    return 1
}

# run_limited ROUNDS: in the group: a child of ours, so that our own shell is
# not limited. What does not fit must be in swap, but for what a rank is about
# to use.
run_limited() {
    local mib kills

    for mib in "${limits[@]}"; do
        set_limit "$mib"
        kills=$(group_kills)
        in_swap=$((total - mib - 8))
        run_once "$area" "$work" "$in_swap" "$1"
        [ "$(group_kills)" -gt "$kills" ] || break
        echo "# with $mib MiB the kernel killed a rank (out of memory)"
    done
}

run_once() {
    # For the inner shell
    # shellcheck disable=SC2016
    run 60 bash -c 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"' \
        limited "$group" "${RUN_MPI[@]}" -n 2 "$NPRDMA_BUILD/mpi_pressure" "$@"
}

swapped_out() {
    awk '$1 == "pswpout" { print $2 }' /proc/vmstat
}

# Of the limit, so that nobody takes a generous machine for a right program
group_limit() {
    cat "$group/memory.limit_in_bytes" 2> /dev/null || cat "$group/memory.max"
}

reason=
make_swap
[ -z "$reason" ] || tap_skip_all "$reason"
make_group_v1 || make_group_v2 ||
    tap_skip_all "no memory cgroup can be made below that of this process"

# Whoever kills us hard leaves a keeper, out of reach of his signal
export zram group TAP_DIR
export -f clean_up
# shellcheck disable=SC2016
setsid bash -c 'tail --pid="$1" -f /dev/null; clean_up' keeper $$ \
    > /dev/null 2>&1 < /dev/null &
keeper=$!

before=$(swapped_out)
run_limited 2
tap_expect_success "messages, puts and gets, $limit MiB for $total"
grep '^# ' "$TAP_OUT" || true
tap_check "the job was limited" [ "$(group_limit)" -eq $((limit << 20)) ]
pages=$(($(swapped_out) - before))
echo "# $pages pages went to swap"
tap_check "pages went to swap" [ $pages -ge $((in_swap << 8)) ]

UCX_RNDV_SCHEME=get_zcopy run_limited 1
tap_expect_success "rendezvous by get"
UCX_RNDV_SCHEME=put_zcopy UCX_PROTO_ENABLE=y run_limited 1
tap_expect_success "rendezvous by put, UCX_PROTO_ENABLE=y"

# The program must be able to fail.
run_mpi 60 2 "$NPRDMA_BUILD/mpi_pressure" "$area" "$work" "$in_swap" 1
tap_expect_error "a job that is not limited is noticed" \
    "MiB of the job are in swap, at least $in_swap wanted"

tap_done
