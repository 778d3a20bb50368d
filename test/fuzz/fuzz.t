#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzes what comes from peers, for a bounded time; prints TAP. A failing input
# is kept, and `fuzz_target FILE` repeats it. NPRDMA_FUZZ_SECONDS: of each
# target. NPRDMA_FUZZ_SEED: where the search begins, 0 anywhere. It is the same
# each time, so that a change is judged by what it does; new inputs are searched
# for with 0.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

seconds=${NPRDMA_FUZZ_SECONDS:-14}
kept=$NPRDMA_BUILD/test-logs/fuzz
seeds=$(dirname "${BASH_SOURCE[0]}")/seeds.sh

[ -x "$NPRDMA_BUILD/fuzz_target" ] ||
    tap_skip_all "no fuzz targets: configure found no clang with libFuzzer"
mkdir -p "$kept"

# fuzz PROGRAM SEEDS SECONDS: output into TAP_OUT
fuzz() {
    local corpus=$TAP_DIR/$1

    "$seeds" "$2" "$corpus"
    run $(($3 + 60)) "$NPRDMA_BUILD/$1" -max_total_time="$3" -max_len=1536 \
        -timeout=20 -rss_limit_mb=2048 -print_final_stats=1 \
        -seed="${NPRDMA_FUZZ_SEED:-1}" \
        -artifact_prefix="$kept/$1-" "$corpus"
}

# Of the whole run
figures() {
    awk '/ cov: / { for (i = 1; i < NF; ++i) {
                        if ($i == "cov:") cov = $(i + 1)
                        if ($i == "ft:") ft = $(i + 1)
                    } }
         /number_of_executed_units/ { runs = $2 }
         END { printf "%d executions, %d edges, %d features\n", runs, cov, ft }' \
        "$TAP_OUT"
}

# fuzz_one TARGET NAME EDGES [SECONDS]: fewer edges, and the seeds do not reach
# the code
fuzz_one() {
    fuzz "fuzz_$1" "$1" "${4:-$seconds}"
    tap_expect_success "$2"
    echo "# $(figures)"
    tap_check "$2: the code is reached" \
        [ "$(figures | sed 's/.*, \([0-9]*\) edges.*/\1/')" -ge "$3" ]
}

# Leaks cannot be looked for where tracing is forbidden
export ASAN_OPTIONS=detect_leaks=1:print_legend=0 UBSAN_OPTIONS=print_stacktrace=1
run 60 "$NPRDMA_BUILD/fuzz_target" -runs=1
if grep -q 'LeakSanitizer has encountered a fatal error' "$TAP_OUT"; then
    echo "# leaks are not looked for: no ptrace permission here"
    ASAN_OPTIONS=detect_leaks=0:print_legend=0
fi

fuzz_one target "hostile initiators" 600
fuzz_one initiator "hostile targets and keys" 500

# Each input opens and closes hundreds of files: slow, and soon through
fuzz_one descriptors "descriptors of all kinds" 450 \
    "${NPRDMA_FUZZ_SECONDS:-8}"

if [ -x "$NPRDMA_BUILD/fuzz_verbs" ]; then
    fuzz_one verbs "hostile peers over an RNIC" 700
fi

fuzz_one log "logs of any bytes" 150 "${NPRDMA_FUZZ_SECONDS:-8}"

# The targets must be able to fail.
kept=$TAP_DIR
fuzz fuzz_mutant target 40
tap_expect_error "a missing check of bounds is found" \
    'FUZZ: (memory of nobody|across the end of shared memory)'

fuzz fuzz_descriptors_mutant descriptors 40
tap_expect_error "a close that waits for a sender is found" \
    'FUZZ: a sender holds its victim'
fuzz fuzz_descriptors_keeper descriptors 40
tap_expect_error "a descriptor that is kept is found" \
    'FUZZ: descriptors of a sender stay'

name="an heir that closes in the order of numbers is found"
run 60 "$NPRDMA_BUILD/fuzz_descriptors" -runs=0
if grep -q 'FUZZ: no file systems in user space here' "$TAP_OUT"; then
    tap_skip "$name" "no file systems in user space here"
else
    fuzz fuzz_descriptors_heir descriptors 40
    tap_expect_error "$name" 'FUZZ: a pipe has no end'
fi

fuzz fuzz_log_mutant log 40
tap_expect_error "a record that is torn, and hides others, is found" \
    'FUZZ: the last records are not told'

if [ -x "$NPRDMA_BUILD/fuzz_verbs_mutant" ]; then
    fuzz fuzz_verbs_mutant verbs-gets 40
    tap_expect_error "a missing check of what an RNIC brings is found" \
        'FUZZ: bytes that nobody asked for'
fi

tap_done
