#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds, and measures osu_latency and osu_bw over nprdma, over UCX's
# shared memory (posix,cma), Open MPI's (ob1), MPICH's, where it is installed,
# and tcp, alternately; prints a table of medians and ratios, plots it into
# build/osu, shows a page fault.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=contrib/bench/near.sh
. "$nprdma_top/contrib/bench/near.sh"

rounds=5
budget=90
tcp_rounds=2
benches=(latency bw)
out=$nprdma_top/build/osu
fresh=no
third=tcp
others=(nprdma posix ob1) # and MPICH's
mpich=
common=()
checked=(-i 20 -x 2 -m 1:1048576)
results=(table.txt latency.txt bw.txt osu.svg osu.png)
# Of awk: is this line of medians off by noise alone? Without a value it is 0.
# shellcheck disable=SC2016 # the fields are awk's
noise='function is_noisy() { return $8 > 0 && ($8 < 0.9 || $8 > 1.1) }'
again_rows=8 # so few rows that noise has spoilt are measured again
near_seconds=30 # that runs with the cores apart may cost
own=$nprdma_top/build/install/libexec/nprdma # programs that make install puts

usage() {
    sed -n '3,6s/^# //p' "$0"
    cat <<END

Usage: osu.sh [--fresh] [--rounds N] [--seconds N]
  --fresh       every message from and into memory that was never used before,
                by default from 4 KiB to 16 MiB; and in place of tcp over nprdma
                without preparing buffers. Into build/osu-fresh
  --rounds N    at most N rounds (default: $rounds)
  --seconds N   start no new round after N seconds of measuring (default:
                $budget); up to $again_rows rows that noise has spoilt are then
                measured again
What was there of an earlier run is kept, as table.txt.old, osu.svg.old and so
on.
NPRDMA_CONFIGURE_ARGS=--with-osu=DIR measures with OSU programs of your own.
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --fresh)
        fresh=yes third=off budget=240
        out=$nprdma_top/build/osu-fresh
        common=(--fresh -i 100 -x 10 -m 4096:16777216)
        checked=(--fresh -i 5 -x 2 -m 4096:16777216)
        ;;
    --rounds | --seconds)
        [[ ${2-} =~ ^[1-9][0-9]*$ ]] ||
            nprdma_die "$1 needs a number from 1 up, not '${2-}'"
        if [ "$1" = --rounds ]; then rounds=$2; else budget=$2; fi
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) nprdma_die "unknown argument '$1': osu.sh --help shows what there is" ;;
    esac
    shift
done
unset UCX_TLS UCX_NET_DEVICES # each series has its own

# One at a time: two would spoil each other's figures, and files
lock_tree() {
    exec 8>>"$nprdma_top/build/.osu.lock"
    flock -n 8 ||
        nprdma_die "another osu.sh measures in $nprdma_top: wait until it" \
            "has ended"
}

# A short run must not take a good result away
keep_results() {
    local name
    [ -f "$out/table.txt" ] || return 0
    for name in "${results[@]}"; do
        rm -f "$out/$name.old"
        if [ -f "$out/$name" ]; then
            mv "$out/$name" "$out/$name.old"
        fi
    done
    echo "the results before are kept: $out/table.txt.old and others"
}

# find_osu: the programs that configure was told to use, or our own
find_osu() {
    local dir
    dir=$(sed -n 's/^OSU_DIR = //p' "$nprdma_top/build/Makefile")
    if [ -z "$dir" ]; then
        dir=$own/osu
    fi
    if [ ! -x "$dir/osu_latency" ] || [ ! -x "$dir/osu_bw" ]; then
        nprdma_die "no osu_latency and osu_bw in $dir: configure found no" \
            "MPI? See build/configure.log"
    fi
    echo "$dir"
}

# measure SERIES BENCH [ARGUMENT...]: one run; the output goes to stdout
measure() {
    local series=$1 bench=$2
    shift 2
    local -a command=(mpirun --mca pml ucx --mca osc ucx
        --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any)
    local -a environment=("UCX_ALLOC_PRIO=mmap,heap" OMPI_ALLOW_RUN_AS_ROOT=1
        OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1)
    case $series in
    ob1)
        command=(mpirun --mca pml ob1 --mca btl "$(nprdma_ob1_btl)")
        ;;
    mpich) command=(mpirun.mpich) ;;
    nprdma | off)
        command=("$nprdma_top/build/install/bin/nprdma-run" mpirun)
        [ "$series" = nprdma ] || environment+=("UCX_NPRDMA_PREPARE=off")
        ;;
    tcp) environment+=("UCX_TLS=tcp,self") ;;
    *) environment+=("UCX_TLS=posix,cma,self") ;;
    esac
    if [ "$fresh" = yes ] && [ "$bench" = bw ]; then
        set -- "$@" -W 8 # twice 128 MiB at most
    fi
    if [ "$series" = mpich ]; then
        command+=("${binding_mpich[@]}" -n 2 "$mpich/osu_$bench")
    else
        command+=("${binding[@]}" -x UCX_ALLOC_PRIO -n 2 "$osu/osu_$bench")
    fi
    if ! env "${environment[@]}" timeout -k 5 120 "${command[@]}" "$@" \
        2>"$out/error.log" </dev/null; then
        echo >&2
        tail -n 15 "$out/error.log" >&2
        nprdma_die "osu_$bench over $series failed: see above"
    fi
}

# The wrong answer fast is no result
check_data() {
    local bench
    for bench in "${benches[@]}"; do
        measure nprdma "$bench" -c "${checked[@]}" >"$out/checked"
        if ! grep -q Pass "$out/checked" || grep -q Fail "$out/checked"; then
            nprdma_die "osu_$bench -c over nprdma found wrong data: see" \
                "$out/checked"
        fi
    done
    rm -f "$out/checked"
}

# run_round NUMBER: every series once, posix twice
run_round() {
    local round=$1 bench series
    local -a arguments
    for bench in "${benches[@]}"; do
        for series in "${others[@]}" "$third" again; do
            arguments=("${common[@]}")
            if [ "$series" = tcp ]; then
                # Slow, and not what the ratios are made of
                [ "$round" -le "$tcp_rounds" ] || continue
                arguments=(-i 20 -x 2)
            fi
            printf '.'
            near_run "$out/run" measure "$series" "$bench" "${arguments[@]}"
            awk -v key="$bench $series" '/^[0-9]/ { print key, $1, $2 }' \
                "$out/run" >>"$out/runs"
        done
    done
}

# Rows that noise has spoilt, by themselves, if they are few
measure_again() {
    local bench size round series
    awk "$noise"' is_noisy() { print $1, $2 }' "$out/medians" >"$out/noisy"
    if [ ! -s "$out/noisy" ] || [ "$(wc -l <"$out/noisy")" -gt "$again_rows" ]
    then
        rm "$out/noisy"
        return
    fi
    printf '%-32s ' "again, spoilt by noise: $(wc -l <"$out/noisy")"
    awk 'NR == FNR { noisy[$1, $2]; next }
         !(($1, $3) in noisy) || $2 == "tcp" || $2 == "off"' \
        "$out/noisy" "$out/runs" >"$out/kept"
    mv "$out/kept" "$out/runs"
    while read -r bench size; do
        for ((round = 0; round < done_rounds; ++round)); do
            for series in "${others[@]}" again; do
                near_run "$out/run" measure "$series" "$bench" \
                    "${common[@]}" -m "$size:$size"
                awk -v key="$bench $series" -v size="$size" \
                    '$1 == size { print key, $1, $2 }' "$out/run" >>"$out/runs"
            done
        done
        printf '.'
    done <"$out/noisy"
    rm "$out/noisy"
    echo " $((SECONDS - start)) s"
    find_medians
}

find_medians() {
    sed -n 's/ posix / both /p; s/ again / both /p' "$out/runs" >"$out/both"
    reduce "$out/both" >"$out/medians"
    rm -f "$out/both"
}

# Medians: lines "BENCH SIZE NPRDMA POSIX OB1 TCP RATIO SELF MPICH". POSIX is of
# all its runs, RATIO to the best of POSIX, OB1 and MPICH (0: not there), SELF
# posix's first against its second run of each round.
reduce() {
    sort -k1,1 -k2,2 -k3,3n -k4,4g "$out/runs" "$1" | awk '
        function flush() { if (n) median[key] = (v[int((n + 1) / 2)] + \
                                                 v[int((n + 2) / 2)]) / 2 }
        { if ($2 == "off") $2 = "tcp" # the third series
          now = $1 " " $2 " " $3
          if (now != key) { flush(); key = now; n = 0 }
          v[++n] = $4; sizes[$3]; benches[$1] }
        function ratio(a, b) { return b > 0 ? a / b : 0 }
        function better(b, x, y) {
            if (x == 0 || y == 0) return x + y
            return (b == "latency") == (x < y) ? x : y }
        END {
            flush()
            for (b in benches) for (s in sizes) {
                both = median[b " both " s]
                ob1 = median[b " ob1 " s]
                mpich = median[b " mpich " s]
                best = better(b, better(b, both, ob1), mpich)
                printf "%s %d %.4f %.4f %.4f %.4f %.2f %.2f %.4f\n", b, s,
                       median[b " nprdma " s], both, ob1, median[b " tcp " s],
                       ratio(median[b " nprdma " s], best),
                       ratio(median[b " again " s], median[b " posix " s]),
                       mpich
            }
        }' | sort -k1,1 -k2,2n
}

# Where, when and of what the figures are
describe() {
    local commit=
    commit=$(git -C "$nprdma_top" describe --always --dirty 2>/dev/null) || true
    echo "soft0, $(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo)," \
        "$(date -I), commit ${commit:-unknown}, $(count "$done_rounds" round)"
}

# count NUMBER NOUN
count() {
    echo "$1 $2$([ "$1" -eq 1 ] || echo s)"
}

# How many rows tell nothing, of how many
noisy() {
    awk "$noise"' { bad += is_noisy() }
        END { print bad + 0, "of the", NR, "rows" }' "$out/medians"
}

print_table() {
    local columns
    columns=$(printf '  nprdma   posix     ob1 %s%7s  ratio   self ' \
        "${mpich:+  mpich }" "$third")
    echo
    describe
    printf '\n%9s %-*s%s\n' "" ${#columns} "  osu_latency (us)" \
        "  osu_bw (MB/s)"
    printf '%9s %s%s\n' size "$columns" "${columns% }"
    awk -v has_mpich="${mpich:+1}" "$noise"'
         function value(v) {
             return v <= 0 ? "-" : sprintf(v < 1000 ? "%.2f" : "%.0f", v) }
         { row[$1, $2] = sprintf("%8s%8s%8s%s%8s%7.2f%7.2f%s", value($3),
                                 value($4), value($5),
                                 has_mpich ? sprintf("%8s", value($9)) : "",
                                 value($6), $7, $8, is_noisy() ? "*" : " ") }
         $1 == "latency" { size[++n] = $2 }
         END { for (i = 1; i <= n; ++i)
                   printf "%9d %s%s\n", size[i], row["latency", size[i]],
                          row["bw", size[i]] }' "$out/medians" | sed 's/ *$//'
    echo
    cat <<END
Medians of $(count "$done_rounds" round). posix: UCX_TLS=posix,cma,self.
ob1: --mca pml ob1 --mca btl $(nprdma_ob1_btl).${mpich:+ mpich: by itself.}
ratio: nprdma to the best of these; less is better for latency, more for
bandwidth. self: posix to itself, which is what noise does.
END
    near_report
    if [[ $(noisy) != "0 "* ]]; then
        cat <<END
*: self is off by more than 10 %, so that the row tells nothing: $(noisy).
Is the machine busy? More rounds help: --rounds, --seconds.
END
    fi
    if [ "$fresh" = yes ]; then
        cat <<END
Buffers are new for each message; the data check before the first round has
touched as much memory, and freed it. off: nprdma with UCX_NPRDMA_PREPARE=off.
END
    fi
}

make_plots() {
    local bench
    for bench in "${benches[@]}"; do
        {
            echo "# size nprdma posix,cma ob1 $third${mpich:+ mpich}"
            awk -v bench="$bench" -v has_mpich="${mpich:+1}" '$1 == bench {
                print $2, $3, $4, $5, $6 (has_mpich ? " " $9 : "") }' \
                "$out/medians"
        } >"$out/$bench.txt"
    done
    if ! command -v gnuplot >/dev/null; then
        echo "no plot: gnuplot is missing (package gnuplot-nox)"
        return
    fi
    "$nprdma_top/osu-bench/plot.sh" -t "$(describe)" "$out/latency.txt" \
        "$out/bw.txt" "$out/osu"
    echo "plot: $out/osu.svg $out/osu.png"
}

# The same read twice: what osu_* never shows, since it touches all it sends
show_page_faults() {
    local install=$nprdma_top/build/install
    echo
    echo "8 bytes read from the other rank, nothing pinned, 1000 pages of:"
    env UCX_TLS=nprdma timeout -k 5 30 "$install/bin/nprdma-run" \
        "$own/bench/paging" -d 2>"$out/error.log" || {
        tail -n 5 "$out/error.log" >&2
        nprdma_die "the page faults could not be shown: see above"
    }
    echo "More of this: contrib/bench-paging.sh"
}

nprdma_own "$nprdma_top/build"
lock_tree
nprdma_prepare build all
osu=$(find_osu)
binding=(--map-by core --bind-to core)
binding_mpich=(-bind-to core)
if [ "$(nproc)" -lt 2 ]; then
    echo "only one core: both ranks share it, the figures say little"
    binding=(--oversubscribe --bind-to none)
    binding_mpich=()
elif [ -x "$own/bench/line" ]; then
    nprdma_find_cpus
    near_begin "$own/bench/line" "$near_seconds"
fi
# Two digits are 10 % of what 8 bytes take
if [ "$osu" = "$own/osu" ]; then
    common+=(--digits 4)
fi
mkdir -p "$out"
rm -f "$out/runs"
if [ "$osu" = "$own/osu" ] && nprdma_osu_for_mpich "$out/osu-mpich"; then
    mpich=$out/osu-mpich
    others+=(mpich)
fi

printf '%-32s ' "check data over nprdma"
check_data
echo ok
start=$SECONDS
done_rounds=0
while [ "$done_rounds" -lt "$rounds" ] &&
    { [ "$done_rounds" -eq 0 ] || [ $((SECONDS - start)) -lt "$budget" ]; }; do
    printf 'round %d of at most %-14d ' $((done_rounds + 1)) "$rounds"
    run_round $((done_rounds + 1))
    done_rounds=$((done_rounds + 1))
    echo " $((SECONDS - start)) s"
done

find_medians
measure_again
keep_results
print_table | tee "$out/table.txt"
make_plots
rm -f "$out/run"
[ "$fresh" = yes ] || show_page_faults
