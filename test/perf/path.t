#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# No short way of soft0 becomes longer: instructions, which no other work on the
# machine changes. test/perf/path.txt has what they may be.
# Time limit: 300 s
set -euo pipefail
# shellcheck source=test/mpi/tap.sh
. "$(dirname "$0")/../mpi/tap.sh"

program=$NPRDMA_BUILD/path_soft
count=2000

# What the numbers are of
compiler=$(sed -n 's/^CC = //p' "$NPRDMA_BUILD/Makefile")
flags=$(sed -n 's/^CFLAGS = //p' "$NPRDMA_BUILD/Makefile")
version=$($compiler -dumpversion)
[ "$(uname -m) ${version%%.*} $flags" = "x86_64 12 -g -O2" ] ||
    [ "$(uname -m) ${version%%.*} $flags" = "x86_64 12 -O2 -g" ] ||
    tap_skip_all "the counts are of gcc 12 -O2 -g on x86-64, this is $compiler \
$version $flags on $(uname -m)"
command -v valgrind >/dev/null ||
    tap_skip_all "no valgrind: contrib/setup.sh"

# instructions NAME: of one, in the middle of many
instructions() {
    # memcpy() of a plain processor
    local caps=-AVX2_Usable,-AVX_Fast_Unaligned_Load,-ERMS,-FSRM lend=y

    [[ $1 != *_own ]] || lend=n # by the kernel
    run 120 env UCX_TLS=nprdma "UCX_NPRDMA_LEND=$lend" \
        "GLIBC_TUNABLES=glibc.cpu.hwcaps=$caps" \
        setarch "$(uname -m)" -R "${RUN_PREFIX[@]}" \
        valgrind --tool=callgrind --toggle-collect=measured \
        --callgrind-out-file=/dev/null "$program" "$1" "$count"
    [ "$RC" -eq 0 ] || return 0
    awk -v count="$count" '/Collected :/ { printf "%.0f\n", $4 / count }' \
        "$TAP_OUT"
}

# is_right NAME BEFORE MORE FOUND
is_right() {
    [ -n "$4" ] && [ "$4" -le $(($2 + $3)) ]
}

while read -r name before more; do
    case $name in
    "" | "#"*) continue ;;
    esac
    # a busy machine lets more looks at the clock come in between, and where
    # the memory is decides which way memcpy() takes
    for _ in {1..8}; do
        found=$(instructions "$name")
        echo "# $name: ${found:-no count}, before $before"
        ! is_right "$name" "$before" "$more" "$found" || break
    done
    tap_check "$name takes at most $before + $more instructions" \
        is_right "$name" "$before" "$more" "$found"
done <"$NPRDMA_SRC/test/perf/path.txt"

# A limit that is too low is noticed, and so is a program that says nothing
tap_check "more than allowed is noticed" \
    eval '! is_right name 100 2 103 && ! is_right name 100 2 ""'
tap_done
