#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# nprdma_info says what works and what does not, and the manual pages are
# complete and render.
# The shells that are started expand what is in single quotes.
# shellcheck disable=SC2016
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

info=$NPRDMA_PREFIX/bin/nprdma_info
man7=$NPRDMA_SRC/docs/man/nprdma.7

# expect NAME CODE PATTERN: the run ended with CODE and printed PATTERN
expect() {
    if [ "$RC" -eq "$2" ] && grep -qE -e "$3" "$TAP_OUT"; then
        tap_ok "$1"
    else
        echo "exit code $RC; wanted $2 and a line like: $3" >>"$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}

run 60 "$info"
expect "the device is shown" 0 '^devices +soft0\b'
expect "its mode works" 0 '^soft0 +user .* yes$'
tap_check "all four modes are shown, those of a module with a reason" \
    test "$(grep -cE '^(soft0|verbs) +kmod .*no: ' "$TAP_OUT")" -eq 2
if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    expect "and so is verbs without a device" 0 \
        '^verbs +user .*no: (no RDMA device here.*rdma link|built without)'
else
    expect "and verbs, one way or the other" 0 '^verbs +user .*(yes|no): '
fi

run 60 "$info" --check -v
expect "--check passes" 0 '^nprdma works here'
tap_check "and nothing is missing" \
    test "$(grep -c '^missing' "$TAP_OUT")" -eq 0
tap_check "and UCX's version is that of ucx_info" grep -qF \
    "ok: UCX: version $(ucx_info -v | sed -n 's/.*ersion:* *\([0-9.]*\).*/\1/p' |
        head -n 1)" "$TAP_OUT"
run 20 env -i "$info" --version
expect "--version" 0 '^nprdma_info [0-9.]+ \(for UCX: [0-9.]+(, [0-9.]+)*\)$'
run 20 "$info" --ucx
expect "--ucx shows the version, and no more" 0 '^[0-9]+\.[0-9]+\.[0-9]+$'
tap_check "in one line" test "$(wc -l <"$TAP_OUT")" -eq 1
run 20 "$info" --help
expect "--help" 0 '^Usage: nprdma_info'
run 20 "$info" --chekc
expect "an unknown option is one line" 2 "unknown argument '--chekc'.*-h"
tap_check "and no more" test "$(wc -l <"$TAP_OUT")" -eq 1

# What is missing is found
run 60 env NPRDMA_PLUGIN=/nonexistent/plugin.so "$info" --check
expect "a missing plug-in" 1 '^missing: the plug-in: /nonexistent/plugin.so: .*Unset NPRDMA_PLUGIN'
run 60 env NPRDMA_PLUGIN=/nonexistent/plugin.so "$info"
expect "is the reason in the table" 0 '^soft0 +user .*no: the plug-in: '
run 60 env NPRDMA_PLUGIN="$NPRDMA_PREFIX/lib/nprdma/libnprdma_preload.so" \
    "$info" --check
expect "a plug-in that is none" 1 '^missing: the plug-in: '

# What the environment says
for setting in ORDER=foo INTRA_NODE=foo SHARE_MIN=x RING_SIZE=x; do
    run 60 env UCX_NPRDMA_PREPARE=off UCX_NPRDMA_$setting "$info" --check
    expect "UCX refuses $setting" 1 \
        "^missing: the environment: UCX refuses UCX_NPRDMA_$setting\. "
done
run 60 env UCX_NPRDMA_ORDER=foo "$info" --check
expect "and what it would take is said" 1 \
    'ORDER=foo\. Wanted: \[overlap\|strict\|relaxed\]$'
run 60 env UCX_NPRDMA_INLINE=1m "$info" --check
expect "a value that nprdma refuses" 1 \
    '^missing: the environment: UCX_NPRDMA_INLINE is .*: give it at most 16k'
run 60 env UCX_NPRDMA_RING_SIZE=3 "$info" --check
expect "one that only an interface refuses" 1 \
    '^missing: the environment: UCX_NPRDMA_RING_SIZE is 3: give it a power of'
run 60 env UCX_NPRDMA_RNG_SIZE=64 "$info" --check
expect "a name that is none" 0 \
    '^warning: the environment: nprdma has no UCX_NPRDMA_RNG_SIZE, and UCX '
run 60 env UCX_NPRDMA_RNG_SIZE=64 UCX_NPRDMA_FOO=1 UCX_TLS=tcp "$info" --check
expect "two of them, beside what else is wrong" 0 \
    '^warning: the environment: UCX_TLS=tcp .*; nprdma has no .*_FOO, and UCX '
run 60 env UCX_LOG_LEVEL=debug UCX_LOG_FILE=/dev/null UCX_NPRDMA_RING_SIZE=3 \
    "$info" --check
expect "whatever UCX is to log" 1 \
    '^missing: the environment: UCX_NPRDMA_RING_SIZE is 3: '
tap_check "and where" grep -q '^ok: UCX$' "$TAP_OUT"
for tls in nprdmaa tcp,self ^nprdma; do
    run 60 env UCX_TLS=$tls "$info" --check
    # shellcheck disable=SC1003 # a backslash for the pattern
    expect "UCX_TLS=$tls" 0 \
        "^warning: the environment: UCX_TLS=${tls/^/'\'^} leaves nprdma out"
done
for tls in nprdma tcp,nprdma ^tcp all; do
    run 60 env UCX_TLS=$tls UCX_NPRDMA_ORDER=strict UCX_NPRDMA_RING_SIZE=64 \
        "$info" --check
    expect "UCX_TLS=$tls" 0 '^ok: the environment$'
done
if [ -z "$(ls /sys/class/infiniband 2>/dev/null)" ]; then
    run 60 env UCX_NPRDMA_INTRA_NODE=verbs "$info" --check
    expect "an RDMA device that is not there" 1 \
        '^missing: the environment: UCX_NPRDMA_INTRA_NODE=verbs, and no '
    run 60 env UCX_NPRDMA_INTRA_NODE=verbs UCX_NPRDMA_RNG=1 "$info" --check
    expect "which a name that is none does not hide" 1 \
        '^missing: the environment: UCX_NPRDMA_INTRA_NODE=verbs, and no '
else
    tap_skip "an RDMA device that is not there" "there is one"
    tap_skip "which a name that is none does not hide" "there is one"
fi

mkdir "$TAP_DIR/bin"
cp "$info" "$TAP_DIR/bin/"
run 60 "$TAP_DIR/bin/nprdma_info" --check
expect "a missing stub" 1 '^missing: the preload stub: .*make install'

cp -R "$NPRDMA_PREFIX" "$TAP_DIR/moved"
run 60 "$TAP_DIR/moved/bin/nprdma_info" --check -v
expect "an installation that was moved" 0 "^ok: the plug-in: $TAP_DIR/moved/"

cp -R "$NPRDMA_PREFIX" "$TAP_DIR/with blank"
run 60 "$TAP_DIR/with blank/bin/nprdma_info" --check
expect "one where LD_PRELOAD has no way to name it" 1 \
    '^missing: the preload stub: LD_PRELOAD cannot hold .*/with blank/'
run 60 "$info" --ucx --check
expect "--ucx goes with nothing else" 2 "--ucx does not go with '--check'"

run 60 bash -c 'ulimit -n 12 && exec "$1" --check' limit "$info"
expect "too few descriptors" 1 "^missing: file descriptors: 'ulimit -n' is 12"
run 60 bash -c 'ulimit -f 4 && "$1" --check | cat; exit "${PIPESTATUS[0]}"' \
    limit "$info"
expect "no segment of the size" 1 \
    "^missing: shared memory segments: .* [0-9]+ bytes.*ulimit -f"

if [ -x "$NPRDMA_BUILD/fail_deny" ]; then
    run 60 "$NPRDMA_BUILD/fail_deny" "$info" --check
    if [ "$RC" -eq 77 ]; then
        tap_skip "process_vm refused" "this kernel has no seccomp filter"
    else
        expect "process_vm refused is a warning" 0 \
            '^warning: direct access to peers: .*slower.*seccomp'
    fi
else
    tap_skip "process_vm refused" "no fail_deny: make check-programs"
fi

# UCX out of sight, in a mount namespace of our own
ucx=$(ldconfig -p | sed -n 's/^\tlibucp\.so\.0 .* => //p' | head -n 1)
if [ -n "$ucx" ] && unshare -m mount --bind /dev/null "$ucx" 2>/dev/null; then
    run 60 unshare -m bash -c \
        'mount --bind /dev/null "$1" && exec "$2" --check' hide "$ucx" "$info"
    expect "it runs without UCX, and says so" 1 '^missing: UCX: .*libucx0'
else
    tap_skip "without UCX" "needs root, to hide the system's UCX"
fi

# The manual
run_here 30 ucx_info -cf
grep -oE '^UCX_NPRDMA_[A-Z0-9_]+=.*' "$TAP_OUT" | sort -u >"$TAP_DIR/vars"
tap_check "ucx_info -cf shows variables" test -s "$TAP_DIR/vars"
while IFS='=' read -r name value; do
    tap_check "nprdma(7) has $name and its default $value" \
        grep -qiE "^\.BR $name \" \(${value}b?\)\"$" "$man7"
done <"$TAP_DIR/vars"

if command -v man >/dev/null; then
    for page in "$NPRDMA_SRC"/docs/man/*.[1-9]; do
        LC_ALL=C.UTF-8 MANWIDTH=80 man -l --warnings=all "$page" \
            >"$TAP_DIR/page" 2>"$TAP_OUT" || echo "exit code $?" >>"$TAP_OUT"
        if [ ! -s "$TAP_OUT" ] && grep -q '^NAME' "$TAP_DIR/page"; then
            tap_ok "${page##*/} renders without a warning"
        else
            tap_not_ok "${page##*/} renders without a warning" "$TAP_OUT"
        fi
    done
else
    tap_skip "manual pages render" "no man (package man-db)"
fi

tap_done
