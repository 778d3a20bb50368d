#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# For distro.sh --built: runs what was built in one Debian in another one, whose
# UCX it has no plug-in for. Prints TAP. Usage: elsewhere.sh BUILD
# Functions are called by their names:
# shellcheck disable=SC2317
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

build=${1:?"which build? It is for contrib/distro.sh SUITE --built"}
run=$build/install/bin/nprdma-run
info=$build/install/bin/nprdma_info
count=0
failed=0
out=$(mktemp)
trap 'rm -f "$out"' EXIT
export UCX_VFS_ENABLE=n
# Of mpirun in a container
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# ok NAME COMMAND...: the end of what was printed last is the diagnosis
ok() {
    local name=$1
    shift
    count=$((count + 1))
    if "$@"; then
        echo "ok $count - $name"
    else
        echo "not ok $count - $name"
        tail -n 20 "$out" | sed 's/^/# /'
        failed=1
    fi
}

# program NAME ARGUMENT...: one of the engine's. Others read variables of UCX's
# libraries, and those are made for one version.
program() {
    ok "$1, with the libraries of this Debian" passes "$@"
}

passes() {
    (cd "$build" && timeout -k 5 180 "./$1" "${@:2}") >"$out" 2>&1 </dev/null &&
        grep -qE '^1\.\.[1-9]' "$out" && ! grep -q '^not ok' "$out"
}

# start COMMAND...: code and out are what came of it
start() {
    code=0
    timeout -k 5 60 "$@" >"$out" 2>&1 </dev/null || code=$?
}

# once PATTERN: exactly one line
once() {
    [ "$(grep -cE "$1" "$out")" -eq 1 ]
}

# fails: an error code, and neither a signal nor the end of our patience
fails() {
    [ "$code" -gt 0 ] && [ "$code" -lt 124 ]
}

ucx=$(nprdma_ucx_installed)
minor=${ucx%.*}
if [ -e "$build/install/lib/nprdma/ucx-$minor/libuct_nprdma.so.0" ]; then
    echo "elsewhere.sh: the UCX here is $minor, for which there is a plug-in:" \
        "another Debian is wanted" >&2
    exit 2
fi
refusal="^nprdma: UCX ${ucx//./\\.} is running.* for: .*package for UCX"
refusal+=" ${minor//./\\.}"

start "$info" --check
ok "nprdma_info names the UCX $ucx that is here, and what to install" \
    once "^missing: UCX: this is ${ucx//./\\.}"
ok "with an error code" fails
start "$run" ucx_info -d
ok "in UCX $ucx the launcher says so in one line" once "$refusal"
ok "and UCX goes on, with its own transports" \
    grep -q 'Transport: self' "$out"
start "$run" mpirun --oversubscribe -n 2 "$build/osu-bench/osu_latency" -m 8:8
ok "so does MPI, which ends with an error" grep -qE "$refusal" "$out"
ok "and does not hang or crash" fails
program test_engine
program test_race 4
echo "1..$count"
exit "$failed"
