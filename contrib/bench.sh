#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures nprdma against UCX's own shared memory (posix,cma,self), alternately
# and with stock a second time, and says which of its goals it reaches.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=contrib/bench/cases.sh
. "$nprdma_top/contrib/bench/cases.sh"

rounds=
quick=0
only='*'
prefix=
against=
osu=
out=$nprdma_top/build/bench
sides=(nprdma stock again)

usage() {
    sed -n '3,4s/^# //p' "$0"
    cat <<END

Usage: bench.sh [OPTION...]
  --rounds N      rounds of nprdma, stock, stock again (default: 15)
  --quick         5 rounds, fewer messages: to see that it works
  --only PATTERN  only cases whose name matches (a shell pattern)
  --list          show the cases, and end
  --prefix DIR    what is measured (default: set up, build, and measure
                  build/install)
  --against DIR   compare with the nprdma that is installed there, instead of
                  UCX's own: was anything made slower?
  --osu DIR       osu_latency and osu_bw from DIR instead of our own
  --out DIR       where samples.tsv and table.tsv go (default: build/bench)
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

find_programs() {
    local name
    if [ -z "$prefix" ]; then
        nprdma_prepare build all >&2
        prefix=$nprdma_top/build/install
    fi
    osu=${osu:-$prefix/libexec/nprdma/osu}
    need "$prefix/bin/nprdma-run" "make install first, or give --prefix"
    if [ -n "$against" ]; then
        need "$against/bin/nprdma-run" "--against needs an installed nprdma"
    fi
    command -v ucx_perftest >/dev/null ||
        nprdma_die "no ucx_perftest: install ucx-utils"
    for name in "${cases[@]}"; do
        case $name in
        osu_*) need "$osu/$name" "was MPI there at configure? Or give --osu" ;;
        dirty | reg)
            need "$prefix/libexec/nprdma/bench/${name/dirty/dirty_bw}" \
                "make install first"
            ;;
        esac
    done
}

# sample ROUND SIDE CASE: one run, kept
sample() {
    local name size value
    # Not in a pipe, where die would end only its own part
    bench_run "$2" "$3" >"$work/run"
    while read -r name size value; do
        printf '%d\t%s\t%s\t%s\t%s\n' "$1" "$2" "$name" "$size" "$value"
    done <"$work/run" >>"$out/samples.tsv"
}

progress() {
    local left=$(((SECONDS - started) * (runs - finished) / finished)) text
    # The first runs say little about the others
    if [ "$finished" -lt $((${#cases[@]} * 3)) ]; then
        left=$((expected * (runs - finished) / runs))
    fi
    text=$(printf 'round %d of %d: %s, about %d:%02d left' "$1" "$rounds" \
        "$2" $((left / 60)) $((left % 60)))
    if [ -t 2 ]; then
        printf '\r%-70s' "$text" >&2
    elif [ "$2" = "${cases[-1]}" ]; then
        echo "$text" >&2
    fi
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
: >"$out/samples.tsv"

runs=$((${#cases[@]} * rounds * 3))
expected=$(printf '%s\n' "${seconds[@]}" |
    awk -v n=$((rounds * 3)) '{ sum += $1 } END { print int(sum * n) + 1 }')
finished=0
echo "${#cases[@]} cases, $rounds rounds, CPUs ${cpus[0]} and ${cpus[1]}:" \
    "about $((expected / 60 + 1)) min" >&2
started=$SECONDS
for ((round = 1; round <= rounds; ++round)); do
    for name in "${cases[@]}"; do
        for ((i = 0; i < 3; ++i)); do
            # Nobody is always the first
            sample "$round" "${sides[(i + round) % 3]}" "$name"
            finished=$((finished + 1))
        done
        progress "$round" "$name"
    done
done
if [ -t 2 ]; then
    printf '\r%-70s\r' '' >&2
fi

compared=${against:+other}
compared=${compared:-stock}
report() {
    awk -v against="$against" "$@" -f "$nprdma_top/contrib/bench/report.awk" \
        "$out/samples.tsv"
}
report -v tsv=1 >"$out/table.tsv"
report
cat <<END
Medians of $rounds rounds: of ucx_perftest's 50th percentile for its latencies,
of its overall value for the rest; self is $compared against $compared again.
UCX $(ucx_info -v | sed -n '1s/.*[ =]//p'), $(nproc) CPUs, $(
    sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo), $(date -I), took $((
    SECONDS - started)) s, load at the end $(cut -d ' ' -f 1 /proc/loadavg).
END
