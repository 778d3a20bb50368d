#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Proves that the benchmarks' -c sees a wrong byte and passes right ones, and
# that a mistyped option is one line and exit 2. TAP.
# Usage: selftest.sh DIRECTORY-OF-THE-PROGRAMS
# OSU_MPIRUN: how to start 2 ranks (default: mpirun with Open MPI's own ob1);
# OSU_PRELOAD: what it preloads, which then stands behind our own.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
bin=${1:-$here}
seconds=60
number=0
failed=0

skip_all() {
    echo "1..0 # SKIP $1"
    exit 0
}

command -v mpirun >/dev/null ||
    skip_all "mpirun not found: install openmpi-bin"
command -v mpicc >/dev/null ||
    skip_all "mpicc not found: install libopenmpi-dev"
[ -x "$bin/osu_latency" ] ||
    skip_all "no osu_latency in $bin: build first, or name the directory"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

read -r -a mpirun <<<"${OSU_MPIRUN:-mpirun --oversubscribe --mca pml ob1}"
mpirun+=(-n 2)
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

mpicc -std=gnu11 -O1 -Wall -fPIC -shared -o "$work/spoil.so" "$here/spoil.c"

preload=$work/spoil.so${OSU_PRELOAD:+:$OSU_PRELOAD}

# report ok|not NAME: a TAP line; with "not", the run's output follows
report() {
    number=$((number + 1))
    if [ "$1" = ok ]; then
        echo "ok $number - $2"
    else
        failed=$((failed + 1))
        echo "not ok $number - $2"
        sed 's/^/# /' "$work/out" "$work/err"
    fi
}

# run SETTINGS PROGRAM ARGUMENTS...: leaves out, err and status
run() {
    local settings=$1 program=$2
    local -a vars
    shift 2
    read -r -a vars <<<"$settings"
    status=0
    timeout "$seconds" "${mpirun[@]}" env "${vars[@]}" "$bin/$program" "$@" \
        >"$work/out" 2>"$work/err" || status=$?
}

# Right data: nothing but Pass, and exit 0
expect_pass() {
    local name="$1 passes right data: ${*:2}"
    run "LD_PRELOAD=$preload OSU_SPOIL_CALL=0" "$@"
    if [ "$status" = 0 ] && grep -qw Pass "$work/out" &&
       ! grep -qw Fail "$work/out"; then
        report ok "$name"
    else
        report not "$name (status $status)"
    fi
}

# expect_fail SPOIL PROGRAM ARGUMENTS...: Fail in the first row, and exit 1
expect_fail() {
    local name="$2 sees '$1': ${*:3}"
    run "LD_PRELOAD=$preload $1" "${@:2}"
    if [ "$status" = 1 ] && grep -qw Fail "$work/out" &&
       grep -q 'wrong data: rank' "$work/err"; then
        report ok "$name"
    else
        report not "$name (status $status)"
    fi
}

# expect_usage PATTERN PROGRAM ARGUMENTS...: one clear line, and exit 2
expect_usage() {
    local name="${*:2} is refused"
    local lines
    run "OSU_SPOIL_CALL=0" "${@:2}"
    lines=$(grep -c "^$2: " "$work/err" || true)
    if [ "$status" = 2 ] && [ "$lines" = 1 ] && [ ! -s "$work/out" ] &&
       grep "^$2: " "$work/err" | grep -q -- "$1"; then
        report ok "$name"
    else
        report not "$name (status $status)"
    fi
}

# expect_digits N PROGRAM ARGUMENTS...: so many of them after the point
expect_digits() {
    local name="${*:2} prints $1 digits"
    run "OSU_SPOIL_CALL=0" "${@:2}" -i 3 -x 1
    if [ "$status" = 0 ] &&
        grep -qE "^(8|[ ])+ [0-9]+\.[0-9]{$1}\$" "$work/out"; then
        report ok "$name"
    else
        report not "$name (status $status)"
    fi
}

flip="OSU_SPOIL_HOW=flip"
leave="OSU_SPOIL_HOW=leave"
few=(-c -i 3 -x 1)
one=(-m 4096:4096)

for program in osu_latency osu_multi_lat osu_bw osu_bibw osu_mbw_mr; do
    expect_pass "$program" "${few[@]}" -m 65536
    expect_fail "$flip OSU_SPOIL_CALL=3" "$program" "${few[@]}" "${one[@]}"
    expect_fail "$leave OSU_SPOIL_CALL=3" "$program" "${few[@]}" "${one[@]}"
done
expect_fail "$flip OSU_SPOIL_BYTE=last OSU_SPOIL_RANK=1 OSU_SPOIL_CALL=3" \
    osu_latency "${few[@]}" -m 1:1
expect_fail "$flip OSU_SPOIL_BYTE=last OSU_SPOIL_CALL=70" \
    osu_bw "${few[@]}" -m 1000000:1000000
for extra in --fresh --dirty; do
    for program in osu_latency osu_bw; do
        expect_pass "$program" "${few[@]}" "$extra" -m 65536
    done
done
expect_fail "$flip OSU_SPOIL_CALL=3" osu_latency "${few[@]}" --fresh "${one[@]}"

for program in osu_put_latency osu_put_bw osu_acc_latency; do
    expect_pass "$program" "${few[@]}" -m 65536
    expect_fail "$flip OSU_SPOIL_CALL=2" "$program" "${few[@]}" "${one[@]}"
    expect_fail "$leave OSU_SPOIL_CALL=2" "$program" "${few[@]}" "${one[@]}"
done
for program in osu_get_latency osu_get_bw; do
    expect_pass "$program" "${few[@]}" -m 65536
    expect_fail "$leave OSU_SPOIL_CALL=2" "$program" "${few[@]}" "${one[@]}"
done
# Open MPI 4.1's ob1 crashes on a compare-and-swap in an allocated window
for program in osu_fop_latency osu_cas_latency; do
    expect_pass "$program" "${few[@]}" -w create
    expect_fail "$flip OSU_SPOIL_CALL=2" "$program" "${few[@]}" -w create
done

for program in osu_allreduce osu_alltoall osu_bcast; do
    expect_pass "$program" "${few[@]}" -m 65536
    expect_pass "$program" "${few[@]}" --fresh -m 65536
    expect_fail "$flip OSU_SPOIL_CALL=2" "$program" "${few[@]}" "${one[@]}"
done

expect_digits 2 osu_latency -m 8:8
expect_digits 4 osu_latency -m 8:8 --digits 4
expect_digits 5 osu_barrier --digits 5
expect_usage "bad value '7' for --digits" osu_latency --digits 7
expect_usage "unknown option -Q" osu_latency -Q
expect_usage "unknown option --frsh" osu_latency --frsh
expect_usage "bad value '12x' for -i" osu_bw -i 12x
expect_usage "bad value '-5' for -W" osu_bw -W -5
expect_usage "option -m needs a value" osu_bw -m
expect_usage "bad value '1:2:3' for -m" osu_latency -m 1:2:3
expect_usage "no sizes: smallest 64, largest 8" osu_latency -m 64:8
expect_usage "bad value 'flsh' for -s" osu_put_latency -s flsh
expect_usage "unknown option -s" osu_latency -s flush
expect_usage "unknown option -c" osu_barrier -c
expect_usage "unexpected argument 'D'" osu_bw D

echo "1..$number"
[ "$failed" = 0 ]
