# SPDX-License-Identifier: BSD-3-Clause
# Runs with the cores where they usually are. A hypervisor may move its
# processors apart, for minutes; then all that two ranks share takes several
# times as long, and what is compared was not measured on the same machine.
# Needs: cpus[2], which are to be of two cores, nprdma_die (lib.sh).
# shellcheck shell=bash disable=SC2154

near_tries=3 # of a run, if the cores were apart after it
near_again=0 # runs that were made again
near_kept=0  # runs with the cores apart that were kept
near_line=   # prints how long a line takes; empty: no run is made again
near_usual=0 # tenths of ns that it takes mostly
near_left=0  # seconds that there are for all this

near_now() {
    local ns
    ns=$("$near_line" "${cpus[0]},${cpus[1]}") || return 1
    echo "${ns/./}"
}

# near_begin LINE SECONDS: how far the cores are from each other now
near_begin() {
    local i
    near_line=$1 near_left=$2
    if ! near_usual=$(for ((i = 0; i < 15; ++i)); do
        near_now || exit 1
        sleep 0.07
    done | sort -n | sed -n 8p) || [ -z "$near_usual" ]; then
        nprdma_die "$near_line failed: see above"
    fi
}

near_is_far() {
    local now
    [ -n "$near_line" ] || return 1
    now=$(near_now) || nprdma_die "$near_line failed: see above"
    [ "$now" -gt $((near_usual * 2)) ]
}

# near_run FILE COMMAND...: what that prints goes to FILE. Not in a pipe, where
# what it counts would be lost.
near_run() {
    local file=$1 try begun
    shift
    for ((try = 1; ; ++try)); do
        while [ "$near_left" -gt 0 ] && near_is_far; do
            sleep 1
            near_left=$((near_left - 1))
        done
        begun=$SECONDS
        "$@" >"$file"
        near_is_far || return 0
        if [ "$try" -eq "$near_tries" ] || [ "$near_left" -le 0 ]; then
            near_kept=$((near_kept + 1))
            return 0
        fi
        near_again=$((near_again + 1))
        near_left=$((near_left - (SECONDS - begun)))
    done
}

# What of all this there is to tell
near_report() {
    [ -n "$near_line" ] || return 0
    printf 'A line took %d ns from core to core at the beginning. Where it
took twice as long after a run, %d runs were made again, %d were kept.\n' \
        $((near_usual / 10)) "$near_again" "$near_kept"
}
