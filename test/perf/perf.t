#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The scripts that measure work; what they find must hold where no time is in
# it: memory.
set -euo pipefail
# shellcheck source=test/mpi/tap.sh
. "$(dirname "$0")/../mpi/tap.sh"

bench=$NPRDMA_SRC/contrib/bench.sh
paging=$NPRDMA_SRC/contrib/bench-paging.sh
overlap=$NPRDMA_SRC/contrib/bench-overlap.sh
memory=$NPRDMA_SRC/contrib/bench/memory.sh
programs=$NPRDMA_PREFIX/libexec/nprdma/bench

[ -x "$programs/reg" ] ||
    tap_skip_all "no $programs/reg: make install first"

# value NAME: what reg said
value() {
    awk -v name="$1" '$1 == name { print $2 }' "$TAP_OUT"
}

test_reg() {
    run 60 "$NPRDMA_PREFIX/bin/nprdma-run" "$programs/reg"
    tap_expect_success "reg registers 64 GiB of reserved memory"
    tap_check "no page of the range is resident" \
        [ "$(value range_kb)" = 0 ]
    tap_check "later registrations make at most a page of the table resident" \
        [ "$(value later_kb)" -le 4 ]
    # Bookkeeping for 16 TiB of addresses may be made once
    tap_check "the first one makes at most 64 KiB resident" \
        [ "$(value first_kb)" -le 64 ]

    run 60 "$programs/reg"
    tap_expect_error "without the launcher reg says what to do" nprdma-run
}

test_dirty() {
    run_here 60 "$programs/dirty_bw" -b 1 1 4096 1048576
    tap_expect_success "dirty_bw sends what it wrote last"
    tap_check "and prints a line for each size" \
        [ "$(awk 'NF == 3 && $2 > 0 && $3 > 0' "$TAP_OUT" | wc -l)" = 3 ]
}

# kb STAGE: shared memory and page tables of 6 ranks over nprdma
kb() {
    awk -v stage="$1" '$1 == "nprdma" && $2 == 6 && $3 == stage {
        print $5 + $6 }' "$TAP_DIR/memory/memory.tsv"
}

test_memory() {
    # So few messages that no ring becomes wide: those are a bounded allowance
    # for each rank, not for each peer. The script's own verdict also counts
    # what UCP keeps of messages that came early, which differs each time.
    run 120 "$memory" --messages 128 --prefix "$NPRDMA_PREFIX" \
        --out "$TAP_DIR/memory" 2 6
    tap_check "memory.tsv has every stage" \
        [ "$(grep -c $'^nprdma\t6\t' "$TAP_DIR/memory/memory.tsv")" = 4 ]
    # 6 ranks have one neighbour to send to and one to receive from, and four
    # more peers of each kind in the end
    tap_check "a peer that is talked to costs less than 64 KiB" \
        [ $((($(kb all) - $(kb neighbour)) / 24)) -lt 64 ]
    tap_check "one that is not costs less than 1 KiB and its page tables" \
        [ $((($(kb connected) - $(kb alone)) / 30)) -le 1 ]
}

test_bench() {
    local verdicts='(ok|MISSED)$'
    run 120 "$bench" --prefix "$NPRDMA_PREFIX" --out "$TAP_DIR/bench" --quick \
        --rounds 1 --only 'uc*_lat'
    if grep -q 'one CPU' "$TAP_OUT"; then
        tap_skip "bench.sh measures" "there is only one CPU"
        return
    fi
    tap_expect_success "bench.sh measures"
    tap_check "its table has a verdict a line" \
        [ "$(grep -cE "_lat .* $verdicts" "$TAP_OUT")" = 3 ]
    tap_check "samples.tsv has every run" \
        [ "$(wc -l <"$TAP_DIR/bench/samples.tsv")" = 9 ]
}

# Of OSU programs that take no time: both of them make a plot
test_plot() {
    local name
    if ! command -v mpirun >/dev/null || ! command -v gnuplot >/dev/null; then
        tap_skip "bench.sh plots" "there is no mpirun, or no gnuplot"
        return
    fi
    mkdir -p "$TAP_DIR/osu"
    for name in osu_latency osu_bw; do
        printf '#!/bin/sh\necho "1 2.00"\necho "8 3.00"\n' \
            >"$TAP_DIR/osu/$name"
        chmod +x "$TAP_DIR/osu/$name"
    done
    run 120 "$bench" --prefix "$NPRDMA_PREFIX" --out "$TAP_DIR/plot" --quick \
        --rounds 1 --osu "$TAP_DIR/osu" --only 'osu_@(latency|bw)'
    if grep -q 'one CPU' "$TAP_OUT"; then
        tap_skip "bench.sh plots" "there is only one CPU"
        return
    fi
    tap_expect_success "bench.sh measures programs that it is given"
    tap_check "and plots them" grep -q 'ob1' "$TAP_DIR/plot/osu.svg"
}

# A run in which the cores were far from each other is made again: an
# installation whose line says so once, after 15 looks and one before the run
test_far() {
    local fake=$TAP_DIR/far
    local own=$fake/libexec/nprdma
    mkdir -p "$own"
    ln -sfn "$NPRDMA_PREFIX/bin" "$fake/bin"
    ln -sfn "$NPRDMA_PREFIX/libexec/nprdma/osu" "$own/osu"
    mkdir -p "$own/bench"
    ln -sf "$programs"/* "$own/bench"
    rm "$own/bench/line"
    cat >"$own/bench/line" <<END
#!/bin/sh
echo >>"$fake/looks"
[ \$(wc -l <"$fake/looks") = 17 ] && echo 150.0 || echo 50.0
END
    chmod +x "$own/bench/line"
    run 120 "$bench" --prefix "$fake" --out "$fake/out" --quick --rounds 1 \
        --only uct_am_lat
    if grep -q 'one CPU' "$TAP_OUT"; then
        tap_skip "a run with the cores apart" "there is only one CPU"
        return
    fi
    tap_check "a run with the cores apart is made again" \
        grep -q 'after a run, 1 runs were made again, 0 were kept' "$TAP_OUT"
    tap_check "and only the second one is kept" \
        [ "$(wc -l <"$fake/out/samples.tsv")" = 3 ]
}

# paging_all PATTERN AWK-CONDITION: there are such samples, and all fulfil it
paging_all() {
    awk -F '\t' "/$1/ { ++n; bad += !($2) } END { exit !n || bad }" \
        "$TAP_DIR/paging/samples.tsv"
}

test_paging() {
    # Data is checked by the program itself. Swap is the whole machine's.
    run 300 "$paging" --prefix "$NPRDMA_PREFIX" --out "$TAP_DIR/paging" \
        --quick --no-swap --sparse 16
    if grep -qE 'one CPU|cma|posix does not' "$TAP_OUT" && [ "$RC" -ne 0 ]
    then
        tap_skip "bench-paging.sh measures" \
            "$(grep -m 1 -E 'one CPU|cma|posix does not' "$TAP_OUT")"
        return
    fi
    tap_expect_success "bench-paging.sh measures"
    tap_check "its table has a verdict for each goal" \
        grep -qE '^[0-9]+ of [1-9][0-9]+ goals' "$TAP_DIR/paging/table.txt"
    # shellcheck disable=SC2016
    tap_check "every transfer of memory never touched has met a fault" \
        paging_all '\tfaults\t' '$7 >= 1'
    # shellcheck disable=SC2016
    tap_check "of a sparse region only what is used is resident" \
        paging_all '\tsparse\t.*\trss\t' '$7 < 2 * 16384'
}

# The same figures, one as wanted and one not
test_paging_report() {
    local value
    for value in 1.2:ok 1.3:MISSED; do
        printf '1\tlatency\tkernel\tread\t8\t%s\t%s\n' pinned 1 again 1 \
            nprdma "${value%:*}" |
            awk -f "$NPRDMA_SRC/contrib/bench/paging.awk" >"$TAP_OUT"
        tap_check "a read of ${value%:*} of pinned is ${value#*:}" \
            grep -qE "^no fault us .* ${value#*:} *\$" "$TAP_OUT"
    done
}

# least NAME: microseconds of 32 MiB
least() {
    awk -v name="$1" '$1 == "ucx" && $5 == name && $6 == 33554432 { print $8 }' \
        "$TAP_DIR/overlap/samples"
}

# Data is checked by the program itself. A busy machine is slower than the
# model, so medians are not judged.
test_overlap() {
    run 120 "$overlap" --prefix "$NPRDMA_PREFIX" --out "$TAP_DIR/overlap" --quick
    if grep -q 'one CPU' "$TAP_OUT" && [ "$RC" -ne 0 ]; then
        tap_skip "bench-overlap.sh measures" "$(tail -n 1 "$TAP_OUT")"
        return
    fi
    tap_check "bench-overlap.sh has a verdict for each goal" \
        grep -qE '^[0-9]+ of 32 goals' "$TAP_DIR/overlap/table.txt"
    tap_check "modelled, a new buffer of 32 MiB takes less than 2/3 overlapped" \
        awk -v s="$(least sequential)" -v o="$(least overlapped)" \
        'BEGIN { exit !(o > 0 && 1.5 * o <= s) }'
    tap_check "and one that is registered no longer than one that is cached" \
        awk -v c="$(least cached)" -v w="$(least warm)" \
        'BEGIN { exit !(c > 0 && w <= 1.25 * c) }'
}

# What is modelled is moved as right as what is not
test_model() {
    local order
    for order in overlap sequential cached; do
        run 120 env UCX_NPRDMA_SOFT_MODEL="$order" \
            "$NPRDMA_PREFIX/bin/nprdma-run" "$NPRDMA_BUILD/gtest_ucp" \
            --gtest_filter='Ucp/Tag.*/New*:Ucp/Memory.*/New*:Ucp/Killed.*'
        tap_expect_success "transfers under the model are right, $order"
    done
}

# The same figures, one as wanted and one not
test_overlap_report() {
    local value size
    for value in 90:ok 120:MISSED; do
        printf 'none 0 0 1 %s 1048576 %s 0 0 20 60 40\n' sequential 130 \
            overlapped "${value%:*}" unannounced 200 |
            awk -v plot="$TAP_DIR/report" \
                -f "$NPRDMA_SRC/contrib/bench/overlap.awk" >"$TAP_OUT" || true
        tap_check "not modelled, 1 MiB in ${value%:*} us is ${value#*:}" \
            grep -qE "^ +1 MiB +20.0 .* 80.0 +${value#*:} " "$TAP_OUT"
    done
    for value in 100:ok 200:MISSED; do
        for size in sequential:400 overlapped:"${value%:*}" cached:90 warm:90; do
            echo "ucx 16 15895 1 ${size%:*} 1048576 ${size#*:} 0 0"
        done | awk -v plot="$TAP_DIR/report" \
            -f "$NPRDMA_SRC/contrib/bench/overlap.awk" >"$TAP_OUT" || true
        tap_check "1 MiB in ${value%:*} us is ${value#*:}" \
            grep -qE "^ +1 MiB +400.0 .* ${value#*:} " "$TAP_OUT"
    done
}

# Verdicts come from the samples: the same ones, one side twice as slow
test_report() {
    local factor wanted
    for factor in 1.9:ok 0.4:MISSED; do
        wanted=${factor#*:}
        printf '%d\t%s\ttag_bw\t8\t%s\n' 1 stock 100 1 again 100 1 nprdma \
            "$(awk -v f="${factor%:*}" 'BEGIN { print 100 * f }')" |
            awk -f "$NPRDMA_SRC/contrib/bench/report.awk" >"$TAP_OUT"
        tap_check "a ratio of ${factor%:*} is $wanted" \
            grep -q "^tag_bw .* $wanted\$" "$TAP_OUT"
    done
}

# The best of all is what it is compared with
test_report_best() {
    local side
    for side in stock ob1 mpich; do
        printf '1\t%s\tosu_bw\t8\t100\n' stock again ob1 mpich |
            sed "s/\(\t$side\t.*\)100/\1300/" >"$TAP_DIR/samples"
        if [ "$side" = stock ]; then
            sed -i 's/\(again.*\)100/\1300/' "$TAP_DIR/samples"
        fi
        printf '1\tnprdma\tosu_bw\t8\t200\n' >>"$TAP_DIR/samples"
        awk -f "$NPRDMA_SRC/contrib/bench/report.awk" "$TAP_DIR/samples" \
            >"$TAP_OUT"
        tap_check "200 beside 300 of $side is 0.67" \
            grep -qE '^osu_bw .* 0\.67 +1\.00 +>= 1\.00 +MISSED$' "$TAP_OUT"
    done
}

# Against another nprdma: slower only if the middle halves lie apart
test_report_against() {
    local value
    for value in 99:ok 90:SLOWER; do
        printf '%d\t%s\ttag_bw\t8\t%s\n' 1 stock 100 2 stock 101 \
            1 again 98 2 again 100 1 nprdma "${value%:*}" 2 nprdma 90 |
            awk -v against=/other -f "$NPRDMA_SRC/contrib/bench/report.awk" \
                >"$TAP_OUT"
        tap_check "from 90 to ${value%:*} beside 98 to 101 is ${value#*:}" \
            grep -q "^tag_bw .* ${value#*:}\$" "$TAP_OUT"
    done
}

# What the scripts measure on; nothing if there is only one
find_cpus() {
    local cpus
    # shellcheck source=contrib/lib.sh
    . "$NPRDMA_SRC/contrib/lib.sh"
    nprdma_find_cpus 2>/dev/null
    printf '%s\n' "${cpus[@]}"
}

test_line() {
    local cpus
    mapfile -t cpus < <(find_cpus)
    if [ ${#cpus[@]} -lt 2 ]; then
        tap_skip "line measures" "there is only one CPU"
    else
        run 10 "$programs/line" "${cpus[0]},${cpus[1]}"
        tap_check "line says how long one takes" \
            grep -qE '^[0-9]+\.[0-9]$' "$TAP_OUT"
    fi
    run 10 "$programs/line" "${cpus[0]-0},1023"
    tap_expect_error "line: a CPU that is not there" "line: the second CPU"
    run 10 "$programs/line" 0,0
    tap_expect_error "line: one CPU" "line: two CPUs"
    run 10 "$programs/line" 0
    tap_expect_error "line: too few CPUs" "usage: line CPU,CPU"
}

test_mistakes() {
    run 10 "$bench" --rounds many
    tap_expect_error "bench.sh: a wrong number" "from 1 up, not 'many'"
    run 10 "$bench" --only nothing
    tap_expect_error "bench.sh: no such case" "--list shows them"
    run 10 "$bench" --against /nowhere --prefix "$NPRDMA_PREFIX"
    tap_expect_error "bench.sh: nothing to compare with" \
        "no /nowhere/bin/nprdma-run: --against"
    run 10 "$bench" --prefix /nowhere
    tap_expect_error "bench.sh: a wrong prefix" "no /nowhere/bin/nprdma-run"
    run 10 "$paging" --rounds many
    tap_expect_error "bench-paging.sh: a wrong number" "not 'many'"
    run 10 "$paging" --prefix /nowhere
    tap_expect_error "bench-paging.sh: a wrong prefix" "no /nowhere/"
    run 10 "$overlap" --rounds many
    tap_expect_error "bench-overlap.sh: a wrong number" "not 'many'"
    run 10 "$overlap" --prefix /nowhere
    tap_expect_error "bench-overlap.sh: a wrong prefix" "no /nowhere/"
    run 10 "$programs/overlap" 65536
    tap_expect_error "overlap without the launcher says what to do" nprdma-run
    run 10 env UCX_TLS=nprdma UCX_NPRDMA_SOFT_MODEL=overlap \
        UCX_NPRDMA_SOFT_MODEL_SLOWDOWN=0.5 "$NPRDMA_PREFIX/bin/nprdma-run" \
        "$programs/overlap" 65536
    tap_expect_error "a model that is faster than its settings" \
        "SOFT_MODEL_SLOWDOWN is 0.5: it must be 1 or more"
    run 10 "$memory" --prefix "$NPRDMA_PREFIX" 2
    tap_expect_error "memory.sh: too few ranks" "two numbers are wanted"
}

test_reg
test_dirty
test_memory
test_bench
test_plot
test_far
test_line
test_paging
test_paging_report
test_overlap
test_overlap_report
test_model
test_report
test_report_best
test_report_against
test_mistakes
tap_done
