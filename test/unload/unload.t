#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# What a decision of a policy of unloading costs, and contrib/bench-unload.sh.
# Prints TAP.
set -euo pipefail
# shellcheck source=test/mpi/tap.sh
. "$(dirname "$0")/../mpi/tap.sh"

script=$NPRDMA_SRC/contrib/bench-unload.sh
model=$NPRDMA_PREFIX/libexec/nprdma/bench/unload_model

# decides POLICY LIMIT: instructions of a decision; with 64 KiB of counters
decides() {
    local found

    found=$(valgrind --tool=callgrind --toggle-collect=measured \
        --callgrind-out-file=/dev/null "$model" --puts 200000 --decide "$1" \
        2>&1 | awk '/Collected :/ { printf "%.0f\n", $4 / 200000 }')
    echo "# $1: ${found:-no count} instructions a decision, at most $2"
    [ -n "$found" ] && [ "$found" -le "$2" ]
}

version=$("$(sed -n 's/^CC = //p' "$NPRDMA_BUILD/Makefile")" -dumpversion)
while read -r policy limit; do
    name="a decision by $policy takes at most $limit instructions"
    if ! command -v valgrind >/dev/null; then
        tap_skip "$name" "no valgrind: contrib/setup.sh"
    elif [ "$(uname -m) ${version%%.*}" != "x86_64 12" ]; then
        tap_skip "$name" "the counts are of gcc 12 on x86-64"
    else
        tap_check "$name" decides "$policy" "$limit"
        grep '^# .* instructions' "$TAP_OUT" | tail -n 1
    fi
done <<'EOF'
off 18
always 18
hint 45
frequency 80
auto 120
EOF

tap_check "bench-unload.sh shows the model" "$script" --quick --device none \
    --prefix "$NPRDMA_PREFIX" --puts 100000 --out "$TAP_DIR/unload"
tap_check "in a table with what was published" \
    grep -q '1048576 .*(5.1).*(3.5)' "$TAP_DIR/unload/table.txt"
if command -v gnuplot >/dev/null; then
    tap_check "and a plot" test -s "$TAP_DIR/unload/unload.svg"
else
    tap_skip "and a plot" "no gnuplot: contrib/setup.sh"
fi

run 10 "$script" --puts many
tap_expect_error "bench-unload.sh: a wrong number" "not 'many'"
run 10 "$script" --prefix "$NPRDMA_PREFIX" --device nowhere:1
tap_expect_error "bench-unload.sh: a device that is not there" "'nowhere:1'"
run 60 env UCX_TLS=posix,self "$NPRDMA_PREFIX/bin/nprdma-run" \
    "${model%_model}" -p 16 -n 100
tap_expect_error "bench/unload: over another transport" "not go over nprdma"
run 60 env UCX_TLS=nprdma UCX_NPRDMA_SERVICE=off \
    "$NPRDMA_PREFIX/bin/nprdma-run" "${model%_model}" -p 16 -n 100 -t
tap_expect_error "bench/unload: a target that never answers" "SERVICE=off"
run 10 "$script" --no-model --device none
tap_expect_error "bench-unload.sh: nothing to measure" "nothing is left"
run 10 "$model" --decide often
tap_expect_error "unload_model: a wrong policy" "'often'"
run 10 "$model" river
tap_expect_error "unload_model: a wrong stream" "'river'"
tap_done
