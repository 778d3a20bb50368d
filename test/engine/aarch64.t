#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Orders that x86 has by itself and aarch64 does not: the looks at views and
# entries that decide what is moved are compiled for aarch64, and their machine
# code must load with acquire. It is read, not run.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

command -v clang > /dev/null || tap_skip_all "no clang (package clang)"
clang --print-targets 2> /dev/null | grep -w aarch64 > /dev/null ||
    tap_skip_all "clang has no target aarch64"

# The headers of the host's own C library, but for what they say of its words.
# __float128 is x86's name for aarch64's long double.
mkdir -p "$TAP_DIR/cross/bits" "$TAP_DIR/cross/gnu"
: > "$TAP_DIR/cross/gnu/stubs.h"
printf '#define __WORDSIZE 64\n#define __WORDSIZE_TIME64_COMPAT32 0\n' \
    > "$TAP_DIR/cross/bits/wordsize.h"
multiarch=$(${CC:-cc} -print-multiarch 2> /dev/null || true)
read -ra ucx <<< "$(sed -n 's/^UCX_SRC_CPPFLAGS = //p' "$NPRDMA_BUILD/Makefile")"

# compile CPU: code.s; its functions are split into code.FUNCTION
compile() {
    rm -f "$TAP_DIR"/code.*
    run 60 clang --target=aarch64-linux-gnu -march="$1" -std=gnu11 -O2 \
        -fno-inline -w -S \
        -isystem "$TAP_DIR/cross" -isystem "/usr/include/$multiarch" \
        '-Dregparm(n)=' '-D__float128=long double' "${ucx[@]}" \
        -I"$NPRDMA_SRC/src" \
        -I"$NPRDMA_SRC/include" -DNPRDMA_VERSION='"0"' \
        -o "$TAP_DIR/code.s" "$NPRDMA_SRC/test/engine/aarch64_probe.c"
    [ "$RC" -eq 0 ] && awk -v dir="$TAP_DIR" '
        /^[a-z_0-9]+:/ { sub(":.*", "", $1); name = $1 }
        /^\.Lfunc_end/ { name = "" }
        name != ""     { print > (dir "/code." name) }' "$TAP_DIR/code.s"
}

# acquires FUNCTION PLAIN ACQUIRE: it has a load that matches ACQUIRE, and none
# that matches PLAIN
acquires() {
    local code=$TAP_DIR/code.$1

    [ -s "$code" ] && grep -E "[[:blank:]]($3)" "$code" > /dev/null &&
        ! grep -E "[[:blank:]]($2)" "$code"
}

for cpu in armv8-a armv8.3-a; do
    if ! compile "$cpu"; then
        tap_not_ok "$cpu: compiled" "$TAP_OUT"
        continue
    fi
    # one view: there are no other bytes in these
    for name in probe_dma_is_mapped np_views_have np_tlb_translate; do
        tap_check "$cpu: $name looks at a view with acquire" \
            acquires "$name" 'ldr[bh]|ldur[bh]' 'ldap?rb'
    done
    # nothing else is loaded there
    tap_check "$cpu: np_views_load looks at views with acquire" \
        acquires probe_views_load 'ldr|ldur|ldp' 'ldap?r[[:blank:]]+x'
    tap_check "$cpu: two entries are looked at with acquire" \
        acquires probe_entries_pair 'ldr|ldur|ldp' 'ldap?r[[:blank:]]+x'
    # of entries alone, 32 bits are loaded
    for name in probe_entries_of probe_kmod_entries; do
        tap_check "$cpu: $name looks at an entry with acquire" \
            acquires "$name" 'ldu?r[[:blank:]]+w' 'ldap?r[[:blank:]]+w'
    done
done

tap_done
