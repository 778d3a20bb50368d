#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Which plug-in is loaded: that of the UCX that runs, or none and one line.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

shim=$(shim_path libfail_version)
here=$("$NPRDMA_PREFIX/bin/nprdma_info" --ucx)
here=${here%.*}
pattern=${here//./\\.}

# as_199 COMMAND...: with a UCX that calls itself 1.99
as_199() {
    # For the inner shell
    # shellcheck disable=SC2016
    run 30 "$@" bash -c 'LD_PRELOAD="$1:$LD_PRELOAD" exec "$2"' \
        shim "$shim" "$NPRDMA_BUILD/fail_load"
}

as_199 "${RUN_PREFIX[@]}"
tap_expect_error "UCX says that the transport is not there" \
    "transport 'nprdma' is not available"
tap_check "exactly one line says why" \
    test "$(grep -c 'nprdma.*1\.99' "$TAP_OUT")" -eq 1
tap_check "and names what it is installed for" \
    grep -q "UCX 1\.99\.0 .* for: .*$pattern.*package for UCX 1\.99" "$TAP_OUT"

as_199 env \
    NPRDMA_PLUGIN="$NPRDMA_PREFIX/lib/nprdma/ucx-$here/libuct_nprdma.so.0" \
    "${RUN_PREFIX[@]}"
tap_expect_error "a plug-in for another UCX stays off" \
    "transport 'nprdma' is not available"
tap_check "exactly one line says why" \
    test "$(grep -c 'nprdma.*1\.99' "$TAP_OUT")" -eq 1
tap_check "and names the version it was built for" \
    grep -q "built for UCX $pattern.*1\.99" "$TAP_OUT"

# One installation with plug-ins for several, moved to another place
mkdir -p "$TAP_DIR/moved/lib"
cp -R "$NPRDMA_PREFIX/bin" "$TAP_DIR/moved"
cp -R "$NPRDMA_PREFIX/lib/nprdma" "$TAP_DIR/moved/lib"
plugins=$TAP_DIR/moved/lib/nprdma
mkdir "$plugins/ucx-1.99" "$plugins/ucx-1.9"
echo "not a library" >"$plugins/ucx-1.99/libuct_nprdma.so.0"
run 30 "$TAP_DIR/moved/bin/nprdma-run" "$NPRDMA_BUILD/fail_load"
tap_expect_success "of several plug-ins the one for this UCX is loaded"
as_199 "$TAP_DIR/moved/bin/nprdma-run"
tap_expect_error "and another for another UCX" \
    'cannot load the UCX plug-in.*/ucx-1\.99/'
run 30 env -u UCX_RCACHE_ENABLE "$TAP_DIR/moved/bin/nprdma-run" env
cache=$(grep '^UCX_RCACHE_ENABLE' "$TAP_OUT" || true)
if ucx_has 16 && ! ucx_has 22; then
    tap_check "UCX's cache stays on" test -z "$cache"
else
    tap_check "UCX's cache is off" test "$cache" = UCX_RCACHE_ENABLE=n
    mkdir "$plugins/ucx-1.18"
    touch "$plugins/ucx-1.18/libuct_nprdma.so.0"
    run 30 env -u UCX_RCACHE_ENABLE "$TAP_DIR/moved/bin/nprdma-run" env
    tap_expect_success "the launcher goes on beside a plug-in for 1.18"
    tap_check "and leaves UCX its cache, which that needs" \
        test -z "$(grep '^UCX_RCACHE_ENABLE' "$TAP_OUT")"
    rm -r "$plugins/ucx-1.18"
fi
run 30 "$TAP_DIR/moved/bin/nprdma-run" "$NPRDMA_PREFIX/bin/nprdma-run" \
    ucx_info -d
tap_check "one launcher in another loads one plug-in" \
    test "$(grep -c 'Transport: nprdma' "$TAP_OUT")" -eq 1
run 30 "$TAP_DIR/moved/bin/nprdma-run" --version
tap_check "both are listed, an empty directory is not" \
    grep -q "(for UCX: \(.*, \)*$pattern, 1\.99)\$" "$TAP_OUT"
run 30 "$TAP_DIR/moved/bin/nprdma_info" --version
tap_check "also by nprdma_info" \
    grep -q "(for UCX: \(.*, \)*$pattern, 1\.99)\$" "$TAP_OUT"

rm -r "$plugins/ucx-$here"
run 30 "$TAP_DIR/moved/bin/nprdma-run" "$NPRDMA_BUILD/fail_load"
tap_expect_error "without one for this UCX one line says so" \
    "nprdma: UCX $pattern\.[0-9]* is running.* for: 1\.99\."
run 30 "$TAP_DIR/moved/bin/nprdma_info" --check
tap_check "and so does nprdma_info" \
    grep -q "^missing: UCX: this is $pattern\..* installed for: 1\.99\." \
    "$TAP_OUT"
rm -r "$plugins/ucx-1.99"
run 30 "$TAP_DIR/moved/bin/nprdma-run" "$NPRDMA_BUILD/fail_load"
tap_check "with no plug-in at all nprdma-run stops" \
    grep -q '^nprdma-run: no plug-in in .*make install' "$TAP_OUT"

# From UCX 1.22 on a plug-in can be named to UCX itself
if ucx_has 22; then
    run 30 env UCX_PLUGIN_PATH="$NPRDMA_PREFIX/lib/nprdma/ucx-$here" \
        ucx_info -d
    tap_check "UCX_PLUGIN_PATH loads it without the launcher" \
        grep -q 'Transport: nprdma' "$TAP_OUT"
else
    tap_skip "UCX_PLUGIN_PATH loads it without the launcher" \
        "UCX $here does not have it"
fi
tap_done
