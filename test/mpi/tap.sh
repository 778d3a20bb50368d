# SPDX-License-Identifier: BSD-3-Clause
# Shared by the *.t files: TAP lines, the launcher, bounded runs.
# shellcheck shell=bash

TAP_COUNT=0
TAP_FAILED=0
TAP_DIR=$(mktemp -d "${TMPDIR:-/tmp}/nprdma-test.XXXXXX")
TAP_OUT=$TAP_DIR/out
chmod 755 "$TAP_DIR"
trap 'rm -rf "$TAP_DIR"' EXIT

NPRDMA_BUILD=${NPRDMA_BUILD:?the build directory}
NPRDMA_SRC=${NPRDMA_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}

# How an MPI job is started; NPRDMA_TEST_LAUNCH tries the tests themselves on
# another transport.
if [ -n "${NPRDMA_TEST_LAUNCH:-}" ]; then
    read -ra RUN_PREFIX <<< "${NPRDMA_TEST_LAUNCH%%mpirun*}"
    read -ra RUN_MPI <<< "$NPRDMA_TEST_LAUNCH"
else
    NPRDMA_PREFIX=${NPRDMA_PREFIX:?the install prefix}
    RUN_PREFIX=("$NPRDMA_PREFIX/bin/nprdma-run")
    RUN_MPI=("${RUN_PREFIX[@]}" mpirun)
fi
RUN_MPI+=(--oversubscribe --bind-to none)

tap_ok() {
    TAP_COUNT=$((TAP_COUNT + 1))
    echo "ok $TAP_COUNT - $1"
}

# tap_not_ok NAME [FILE]: FILE's lines are shown as the diagnosis.
tap_not_ok() {
    TAP_COUNT=$((TAP_COUNT + 1))
    TAP_FAILED=$((TAP_FAILED + 1))
    echo "not ok $TAP_COUNT - $1"
    if [ -n "${2:-}" ]; then
        tail -n 25 "$2" | sed 's/^/# /'
    fi
}

tap_skip() {
    TAP_COUNT=$((TAP_COUNT + 1))
    echo "ok $TAP_COUNT - $1 # SKIP $2"
}

# tap_check NAME COMMAND...: ok if the command says yes.
tap_check() {
    local name=$1

    shift
    if "$@" >> "$TAP_OUT" 2>&1; then
        tap_ok "$name"
    else
        tap_not_ok "$name" "$TAP_OUT"
    fi
}

tap_done() {
    echo "1..$TAP_COUNT"
    [ "$TAP_FAILED" -eq 0 ]
}

tap_skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

# ucx_has MINOR: what is tested is for UCX 1.MINOR or later
ucx_has() {
    local version minor

    if [ -n "${NPRDMA_PREFIX:-}" ]; then
        version=$("$NPRDMA_PREFIX/bin/nprdma_info" --ucx)
    else
        version=$(ucx_info -v | sed -n 's/^.*ersion:* *v*\([0-9.]*\).*/\1/p')
        version=${version%%$'\n'*}
    fi
    minor=${version#*.}
    [ "${version%%.*}" -gt 1 ] || [ "${minor%%.*}" -ge "$1" ]
}

# Values of UCX_PROTO_ENABLE that can be used: from 1.16 on the older protocols
# crash in puts and gets of a transport that needs no memh
# shellcheck disable=SC2034
if ucx_has 16; then
    UCX_PROTOCOLS=(y)
else
    UCX_PROTOCOLS=(n y)
fi

# wait_until SECONDS COMMAND...
wait_until() {
    local end=$((SECONDS + $1))

    shift
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}

# run SECONDS COMMAND...: output into TAP_OUT, exit code into RC (124 or 137
# if time ran out).
run() {
    local seconds=$1

    shift
    RC=0
    { timeout -k 5 "$seconds" "$@" > "$TAP_OUT" 2>&1 < /dev/null; } \
        2> /dev/null || RC=$?
}

# A program of ours under the launcher, without MPI.
run_here() {
    local seconds=$1

    shift
    run "$seconds" "${RUN_PREFIX[@]}" "$@"
}

# run_mpi SECONDS RANKS PROGRAM...
run_mpi() {
    local seconds=$1 ranks=$2

    shift 2
    run "$seconds" "${RUN_MPI[@]}" -n "$ranks" "$@"
}

tap_expect_success() {
    if [ "$RC" -eq 0 ]; then
        tap_ok "$1"
    else
        echo "exit code $RC" >> "$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}

# The run failed by itself: no time-out, no signal; PATTERN stands in its
# output.
tap_expect_error() {
    local name=$1 pattern=$2

    if [ "$RC" -eq 0 ] || [ "$RC" -ge 124 ] ||
        ! grep -qE -e "$pattern" "$TAP_OUT"; then
        echo "exit code $RC; an error wanted, with a line like: $pattern" \
            >> "$TAP_OUT"
        tap_not_ok "$name" "$TAP_OUT"
    else
        tap_ok "$name"
    fi
}

# Where libtool leaves a module that is not installed.
shim_path() {
    echo "$NPRDMA_BUILD/.libs/$1.so"
}

# A copy of the install prefix and of programs that every user can read.
copy_for_all_users() {
    local dir=$TAP_DIR/all program

    mkdir -p "$dir/bin"
    if [ -n "${NPRDMA_PREFIX:-}" ]; then
        cp -R "$NPRDMA_PREFIX" "$dir/prefix"
    fi
    for program in "$@"; do
        cp "$NPRDMA_BUILD/$program" "$dir/bin/"
    done
    chmod -R a+rX "$TAP_DIR"
    echo "$dir"
}

# Leftovers: remember what is there before, wait until all else is gone. A
# file that a living process has mapped is another job's, or its process is
# found.
leftovers_note() {
    (cd /dev/shm && find . -type f) | sort > "$TAP_DIR/shm.before"
    SHMEM_BEFORE=$(awk '$1 == "Shmem:" { print $2 }' /proc/meminfo)
}

leftover_files() {
    local file

    (cd /dev/shm && find . -type f) | sort |
        comm -13 "$TAP_DIR/shm.before" - |
        while read -r file; do
            if ! grep -qsF "/dev/shm/${file#./}" /proc/[0-9]*/maps; then
                echo "$file"
            fi
        done
}

leftovers_none() {
    local program=$1 tries shmem

    for ((tries = 0; tries < 100; ++tries)); do
        shmem=$(awk '$1 == "Shmem:" { print $2 }' /proc/meminfo)
        if [ -z "$(leftover_files)" ] &&
            [ -z "$(processes_of "$program")" ] &&
            [ "$shmem" -le $((SHMEM_BEFORE + 16384)) ]; then
            return 0
        fi
        sleep 0.1
    done
    echo "left in /dev/shm, in memory ($SHMEM_BEFORE to $shmem kB), running:"
    leftover_files
    processes_of "$program"
    return 1
}

processes_of() {
    local link

    for link in /proc/[0-9]*/exe; do
        if [ "$(readlink "$link" 2> /dev/null || true)" = "$1" ]; then
            echo "$link"
        fi
    done
}
