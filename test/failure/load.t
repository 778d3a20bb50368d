#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# What nprdma-run loads into programs, and what it must leave alone.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

stub=$NPRDMA_PREFIX/lib/nprdma/libnprdma_preload.so
needed=$(readelf -d "$stub" | grep NEEDED || true)
echo "$needed" > "$TAP_OUT"
if [ -n "$needed" ] && ! grep -qE 'libuc[a-z]' "$TAP_OUT"; then
    tap_ok "the stub needs no UCX"
else
    tap_not_ok "the stub needs no UCX" "$TAP_OUT"
fi

run_here 20 true
tap_expect_success "a program without UCX runs"
tap_check "and nothing is printed" test ! -s "$TAP_OUT"
# The shell expands this in the program that is run.
# shellcheck disable=SC2016
run_here 20 bash -c 'grep -l libucs /proc/$$/maps && exit 1; exit 0'
tap_expect_success "no UCX is loaded into it"

run_here 30 "$NPRDMA_BUILD/fail_load"
tap_expect_success "a program that loads libucp with RTLD_LOCAL finds it"
if ucx_has 16 && ! ucx_has 22; then
    tap_skip "libc's mmap is left alone" "UCX 1.16 to 1.21 must watch memory"
else
    tap_check "libc's mmap is left alone" grep -q 'mmap untouched' "$TAP_OUT"
fi
run_here 30 env -u UCX_MEM_EVENTS "$NPRDMA_BUILD/fail_load"
tap_check "which is nprdma-run's doing" grep -q 'mmap patched' "$TAP_OUT"
tap_check "a forked child begins without a call of mmap" \
    grep -q '^calls of mmap in a child: 0, and where it makes one: [1-9]' \
    "$TAP_OUT"

run_here 30 ucx_info -d
tap_check "ucx_info -d shows the device" \
    grep -qE '(Device|device): *soft0' "$TAP_OUT"
run_here 30 ucx_info -cf
tap_check "ucx_info -cf shows the variables" \
    grep -q '^UCX_NPRDMA_' "$TAP_OUT"

run 30 env NPRDMA_PLUGIN=/nonexistent/libuct_nprdma.so.0 \
    "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/fail_load"
tap_expect_error "a plug-in that is not there is named" \
    'nprdma.*/nonexistent/libuct_nprdma.so.0'
libc=$(ldd "$NPRDMA_BUILD/fail_load" | awk '/libc\.so/ { print $3 }')
run 30 env NPRDMA_PLUGIN="$libc" "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/fail_load"
tap_expect_error "a library that is no plug-in is named" \
    "nprdma: .*$libc is none of nprdma's): unset NPRDMA_PLUGIN"

tap_done
