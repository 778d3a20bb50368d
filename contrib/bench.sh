#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures nprdma against UCX's own shared memory (posix,cma,self), Open MPI's
# (ob1) and MPICH's, where that is installed, alternately and with UCX's a
# second time, and says which of its goals it reaches.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=contrib/bench/cases.sh
. "$nprdma_top/contrib/bench/cases.sh"
# shellcheck source=contrib/bench/near.sh
. "$nprdma_top/contrib/bench/near.sh"

rounds=
quick=0
only='*'
prefix=
against=
osu=
mpich=
out=$nprdma_top/build/bench
again_rounds=3 # rows that noise has spoilt: so often as many rounds more
again_cases=20 # and only if they are so few
near_seconds=180 # that runs with the cores apart may cost

usage() {
    sed -n '3,5s/^# //p' "$0"
    cat <<END

Usage: bench.sh [OPTION...]
  --rounds N      rounds of nprdma, stock (UCX's shared memory), stock again,
                  ob1 and MPICH (default: 15, some 25 min); rows that noise has
                  spoilt are measured again, if there are few
  --quick         5 rounds, fewer messages: to see that it works
  --only PATTERN  only cases whose name matches (a shell pattern)
  --list          show the cases, and end
  --prefix DIR    what is measured (default: set up, build, and measure
                  build/install)
  --against DIR   compare with the nprdma that is installed there, instead of
                  UCX's own: was anything made slower?
  --osu DIR       osu_latency, osu_bw and so on from DIR instead of our own;
                  what is not there is not measured
  --out DIR       where samples.tsv, table.tsv and osu.svg go (default:
                  build/bench)
END
}

die() {
    if [ -t 2 ]; then
        echo >&2
    fi
    nprdma_die "$@"
}

while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --only | --prefix | --against | --osu | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: bench.sh --help"
        case $1 in
        --rounds)
            [[ $2 =~ ^[1-9][0-9]*$ ]] ||
                nprdma_die "--rounds needs a number from 1 up, not '$2'"
            rounds=$2
            ;;
        --only) only=$2 ;;
        --prefix) prefix=$(realpath -m "$2") ;;
        --against) against=$(realpath -m "$2") ;;
        --osu) osu=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    --quick) quick=1 ;;
    --list)
        bench_cases | sed 's/ .*//'
        exit 0
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    *) nprdma_die "unknown argument '$1': bench.sh --help shows them all" ;;
    esac
    shift
done
rounds=${rounds:-$((quick ? 5 : 15))}

# A program is there, or a line says how to get it
need() {
    [ -x "$1" ] || nprdma_die "no $1: $2"
}

# need_own NAME: one of our own benchmarks
need_own() {
    need "$prefix/libexec/nprdma/bench/$1" "make install first"
}

find_programs() {
    local name given=$osu
    local -a found=()
    nprdma_find_prefix
    osu=${osu:-$prefix/libexec/nprdma/osu}
    need "$prefix/bin/nprdma-run" "make install first, or give --prefix"
    if [ -n "$against" ]; then
        need "$against/bin/nprdma-run" "--against needs an installed nprdma"
    fi
    command -v ucx_perftest >/dev/null ||
        nprdma_die "no ucx_perftest: install ucx-utils"
    for name in "${cases[@]}"; do
        case $name in
        osu_*)
            if [ -n "$given" ] && [ ! -x "$osu/$name" ]; then
                echo "no $name in $osu: not measured" >&2
                continue
            fi
            need "$osu/$name" "was MPI there at configure? Or give --osu"
            ;;
        dirty) need_own dirty_bw ;;
        idle | core) need_own one_sided ;;
        reg) need_own reg ;;
        esac
        found+=("$name")
    done
    [ ${#found[@]} -gt 0 ] || nprdma_die "nothing is left to measure"
    if [ -z "$against$given" ] &&
        [[ " ${found[*]} " == *" osu_"@(latency|bw|bibw)" "* ]] &&
        nprdma_osu_for_mpich "$out/osu-mpich"; then
        mpich=$out/osu-mpich
    fi
    need_own line
    cases=("${found[@]}")
}

# sample ROUND SIDE CASE: one run, kept
sample() {
    local name size value
    near_run "$work/run" bench_run "$2" "$3"
    while read -r name size value; do
        printf '%d\t%s\t%s\t%s\t%s\n' "$1" "$2" "$name" "$size" "$value"
    done <"$work/run" >>"$samples"
}

# measure_round ROUND CASE...: each over all sides, in an order that turns:
# nobody is always the first
measure_round() {
    local round=$1 name i
    local -a sides
    shift
    for name in "$@"; do
        mapfile -t sides < <(bench_sides "$name")
        for ((i = 0; i < ${#sides[@]}; ++i)); do
            sample "$round" "${sides[(i + round) % ${#sides[@]}]}" "$name"
        done
        finished=$((finished + 1))
        progress "$round" "$name"
    done
}

# measure_rounds SECONDS CASE...: all rounds; SECONDS is what they may take
measure_rounds() {
    local round
    expected=$1
    shift
    cases=("$@")
    runs=$((${#cases[@]} * rounds)) finished=0 started=$SECONDS
    for ((round = 1; round <= rounds; ++round)); do
        measure_round "$round" "${cases[@]}"
    done
}

progress() {
    local left=$(((SECONDS - started) * (runs - finished) / finished)) text
    # The first runs say little about the others
    if [ "$finished" -lt ${#cases[@]} ]; then
        left=$((expected * (runs - finished) / runs))
    fi
    text=$(printf 'round %d of %d: %s, about %d:%02d left' "$1" "$rounds" \
        "$2" $((left / 60)) $((left % 60)))
    if [ -t 2 ]; then
        printf '\r%-70s' "$text" >&2
    elif [ "$((finished % ${#cases[@]}))" -eq 0 ]; then
        echo "$text" >&2
    fi
}

report() {
    awk -v against="$against" "$@" -f "$nprdma_top/contrib/bench/report.awk" \
        "$out/samples.tsv"
}

# Rows of which self is off by more than 10 % tell nothing: they are measured
# again by themselves. All of their samples are new then.
measure_again() {
    local try name size
    local -a spoilt
    for ((try = 1; try <= again_rounds; ++try)); do
        report -v noisy=1 >"$work/noisy"
        mapfile -t spoilt < <(while read -r name size; do
            bench_case_of "$name" "$size"
        done <"$work/noisy" | sort -u)
        if [ ${#spoilt[@]} -eq 0 ]; then
            return
        elif [ ${#spoilt[@]} -gt $again_cases ]; then
            echo "noise has spoilt too much to measure it again: is the" \
                "machine busy?" >&2
            return
        fi
        echo "again, as noise has spoilt them: ${spoilt[*]}" >&2
        samples=$work/again
        : >"$samples"
        measure_rounds $((4 * rounds * ${#spoilt[@]})) "${spoilt[@]}"
        awk -F '\t' 'FILENAME == ARGV[1] { split($0, f, " ")
                                           drop[f[1], f[2]]; next }
             FILENAME == ARGV[2] { if (!(($3, $4) in drop)) print; next }
             ($3, $4) in drop' \
            "$work/noisy" "$out/samples.tsv" "$samples" >"$work/merged"
        mv "$work/merged" "$out/samples.tsv"
    done
}

# osu_latency and osu_bw beside the others', if both were measured
make_plots() {
    local name other=${against:+other}
    rm -f "$out"/osu.{svg,png} "$out"/osu_{latency,bw}.txt
    for name in osu_latency osu_bw; do
        awk -F '\t' -v name="$name" -v mpich="$mpich" -v against="$against" \
            -v other="${other:-posix,cma}" '
            function value(x) { return x == "" ? "-" : x }
            BEGIN { print "# size nprdma", other (against ? "" : " ob1") \
                          (mpich ? " mpich" : "") }
            $1 == name { print $2, value($9), value($4) \
                               (against ? "" : " " value($7)) \
                               (mpich ? " " value($8) : "") }
            $1 == name { ++rows } END { exit !rows }' "$out/table.tsv" \
            >"$out/$name.txt" || return 0
    done
    if ! command -v gnuplot >/dev/null; then
        echo "no plot: gnuplot is missing (package gnuplot-nox)"
        return
    fi
    "$nprdma_top/osu-bench/plot.sh" "$out/osu_latency.txt" "$out/osu_bw.txt" \
        "$out/osu"
    echo "plot: $out/osu.svg $out/osu.png"
}

cases=()
seconds=()
while read -r name time; do
    # shellcheck disable=SC2053
    if [[ $name == $only ]]; then
        cases+=("$name")
        seconds+=("$time")
    fi
done < <(bench_cases)
[ ${#cases[@]} -gt 0 ] ||
    nprdma_die "no case matches '$only': bench.sh --list shows them"

nprdma_find_cpus
find_programs
# What the caller's environment says must not differ from what is said here
unset "${!UCX_TLS@}" "${!UCX_ALLOC_PRIO@}" "${!UCX_NET_DEVICES@}"
mkdir -p "$out"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
samples=$out/samples.tsv
: >"$samples"

expected=$(printf '%s\n' "${seconds[@]}" |
    awk -v n=$((rounds * 3)) '{ sum += $1 } END { print int(sum * n) + 1 }')
echo "${#cases[@]} cases, $rounds rounds, CPUs ${cpus[0]} and ${cpus[1]}:" \
    "about $((expected / 60 + 1)) min" >&2
began=$SECONDS
near_begin "$prefix/libexec/nprdma/bench/line" \
    $((quick ? near_seconds / 20 : near_seconds))
measure_rounds "$expected" "${cases[@]}"
measure_again
if [ -t 2 ]; then
    printf '\r%-70s\r' '' >&2
fi

compared=${against:+other}
compared=${compared:-stock}
report -v tsv=1 >"$out/table.tsv"
report
cat <<END
Medians of $rounds rounds: of ucx_perftest's 50th percentile for its latencies,
of its overall value for the rest; self is $compared against $compared again.
*: self is off by more than 10 %, so that the row tells nothing.
$(near_report)
UCX $(ucx_info -v | sed -n '1s/.*[ =]//p'), $(nproc) CPUs, $(
    sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo), $(date -I), took $((
    SECONDS - began)) s, load at the end $(cut -d ' ' -f 1 /proc/loadavg).
END
make_plots
