#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 1800 s (it builds for three kernels and boots guests of each)
# Builds the kernel module for the lab's kernels, without a warning, and runs
# its jobs: all on the first two, and on the third what is different there,
# which is translations replaced by one store, and the kernel's helpers for
# drivers; prints TAP.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

lab=$NPRDMA_SRC/test/lab/lab
results=$NPRDMA_BUILD/test-logs/kmod
export TMPDIR=$TAP_DIR

# silent COMMAND...: it succeeds and says nothing
silent() {
    if ! "$@" >"$TAP_DIR/said" 2>&1 || [ -s "$TAP_DIR/said" ]; then
        cat "$TAP_DIR/said"
        return 1
    fi
}

# verdict SERIES JOB: of what is left of it
verdict() {
    local dir=$results/$1/$2 code
    code=$(cat "$dir/code" 2>/dev/null || echo none)
    case $code in
    0) tap_ok "$2 on Linux $1" ;;
    77) tap_skip "$2 on Linux $1" "$(sed -n 's/^SKIP //p' "$dir/output")" ;;
    *)
        {
            grep -A 3 '^not ok' "$dir/output" || true
            cat "$dir/problems" || true
            tail -n 10 "$dir/output"
        } >"$TAP_DIR/bad" 2>/dev/null
        tap_not_ok "$2 on Linux $1 (exit code $code)" "$TAP_DIR/bad"
        ;;
    esac
}

# build SERIES [MAKE-ARGUMENT]: fails if there is nothing to build it with
build() {
    local series=$1 headers code=0
    shift
    headers=$("$lab" headers --quiet --kernel "$series" 2>"$TAP_OUT") || code=$?
    if [ "$code" -eq 77 ]; then
        tap_skip "the module on Linux $series" "$(tail -n 1 "$TAP_OUT")"
        return 1
    fi
    tap_check "it builds against Linux $series without a warning" \
        silent "$lab" toolchain --quiet --kernel "$series" \
        "$NPRDMA_SRC/kmod/build.sh" '{}' \
        "$NPRDMA_BUILD/kmod/$(sed -n 's/^#define UTS_RELEASE "\(.*\)"/\1/p' \
            "$headers/include/generated/utsrelease.h")" W=1 "$@"
}

# jobs_of SERIES: all but the last share a boot; huge pages are had before
# memory is used
jobs_of() {
    case $1 in
    7) echo kmod-edu kmod-umem ;;
    *) echo kmod-edu kmod-pressure kmod-abi kmod-umem kmod-passthrough ;;
    esac
}

# run_jobs SERIES: what goes on for a time does so on each kernel
run_jobs() {
    local jobs
    read -ra jobs <<<"$(jobs_of "$1")"
    rm -rf "${results:?}/$1"
    "$lab" run --kernel "$1" --build "$NPRDMA_BUILD" --out "$results/$1" \
        --env KMOD_PRESSURE_SECONDS=12 --env KMOD_RACE_SECONDS=12 \
        "${jobs[@]}" >"$TAP_DIR/jobs-$1" 2>&1 </dev/null || true
}

# check_patches FILE...: checkpatch says nothing of them. A macro that is a loop
# has its arguments more than once. IGNORE: more that may be.
check_patches() {
    silent "${checkpatch[@]}" --ignore "MACRO_ARG_REUSE,${IGNORE-}" "$@"
}

# As those who write for the kernel run it: all that it knows, of 6.1
checkpatch=("$("$lab" source --quiet --kernel 6.1 scripts/checkpatch.pl \
    scripts/spelling.txt scripts/const_structs.checkpatch 2>"$TAP_OUT" ||
    true)/scripts/checkpatch.pl" --no-tree --strict --terse --no-summary
    --show-types -f)
if [ -x "${checkpatch[0]}" ]; then
    printf '// %s: GPL-2.0-only\nint one(void)\n{\n%s\n}\n' \
        SPDX-License-Identifier '	if(two)return 1;' >"$TAP_DIR/fault.c"
    run 60 "${checkpatch[@]}" "$TAP_DIR/fault.c"
    tap_expect_error "checkpatch finds a fault" 'fault.c:4: ERROR:SPACING'
    : >"$TAP_OUT"
    tap_check "checkpatch says nothing of the module" check_patches \
        "$NPRDMA_SRC"/{kmod/*.[ch],include/nprdma/nprdma_uapi.h}
    mapfile -t modules < <(grep -l '^#include <linux/module.h>' \
        "$NPRDMA_SRC"/test/kmod/*.c)
    tap_check "checkpatch says nothing of the tests' modules" check_patches \
        "${modules[@]}" "$NPRDMA_SRC"/test/kmod/*_import.h
    # One source for several kernels, each with its own Soft-RoCE
    IGNORE=LINUX_VERSION_CODE,CONSTANT_COMPARISON \
        tap_check "checkpatch says nothing of the patched Soft-RoCE's parts" \
        check_patches "$NPRDMA_SRC"/contrib/rxe/*.[ch]
else
    tap_skip "checkpatch" "$(tail -n 1 "$TAP_OUT")"
fi

# The kernels' jobs at once: none has two processors busy all the time
SPARSE=$(command -v sparse || true)
built=()
for series in 6.1 6.12 7; do
    arguments=()
    # Debian 12's does not know all of 7's
    if [ -n "$SPARSE" ] && [ "$series" != 7 ]; then
        arguments=(C=2)
    fi
    if build "$series" "${arguments[@]}"; then
        built+=("$series")
        run_jobs "$series" &
    fi
done
wait
for series in "${built[@]}"; do
    for job in $(jobs_of "$series"); do
        verdict "$series" "$job"
    done
done
tap_done
