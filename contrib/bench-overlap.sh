#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures what overlapped preparation gains: one large message at a time, under
# soft0's timing model of memory that has not been registered before, and
# without it of memory whose pages the OS has taken.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=
quick=0
slowdown=16
prefix=
out=$nprdma_top/build/overlap

# What a registration costs: NAME, once, and the rate (MB/s of 2^20 bytes). The
# first is what UCX assumes of RNICs (16 us + 0.06 ns/B), the second what FRRWP
# was computed with (7.42 us + 0.77 us a page).
costs=("ucx 16 15895" "frrwp 7.42 5073")

usage() {
    sed -n '3,5s/^# //p' "$0"
    cat <<END

Usage: bench-overlap.sh [OPTION...]
  --rounds N    messages of each size and order (default: 15)
  --quick       5 messages, and 4 sizes: to see that it works
  --slowdown N  how much slower than a real link the model runs, so that this
                host's own work counts less (default: $slowdown)
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where samples.tsv, table.txt and overlap-*.svg, .png go
                (default: build/overlap)
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --slowdown | --prefix | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: bench-overlap.sh --help"
        case $1 in
        --rounds | --slowdown)
            [[ $2 =~ ^[1-9][0-9]{0,2}$ ]] ||
                nprdma_die "$1 needs a number from 1 to 999, not '$2'"
            if [ "$1" = --rounds ]; then rounds=$2; else slowdown=$2; fi
            ;;
        --prefix) prefix=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    --quick) quick=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        nprdma_die "unknown argument '$1': bench-overlap.sh --help shows them" \
            "all"
        ;;
    esac
    shift
done
rounds=${rounds:-$((quick ? 5 : 15))}

nprdma_find_cpus
nprdma_find_prefix
program=$prefix/libexec/nprdma/bench/overlap
[ -x "$program" ] || nprdma_die "no $program: make install first"

sizes=()
for ((size = 65536; size <= 67108864; size *= quick ? 8 : 2)); do
    sizes+=("$size")
done

# measure COST ORDER NAME [ARGUMENT...]: a line for each size
measure() {
    local cost=$1 order=$2 name=$3 reg rate
    shift 3
    read -r _ reg rate <<<"$cost"
    echo "${cost%% *}: $name" >&2
    env UCX_TLS=nprdma UCX_NPRDMA_SOFT_MODEL="$order" \
        UCX_NPRDMA_SOFT_MODEL_SLOWDOWN="$slowdown" \
        UCX_NPRDMA_SOFT_MODEL_REG="${reg}us" \
        UCX_NPRDMA_SOFT_MODEL_REG_RATE="${rate}MBs" \
        "$@" >"$out/run" || nprdma_die "overlap failed: see above"
    sed "s/^/${cost// / } $slowdown $name /" "$out/run" >>"$out/samples"
}

mkdir -p "$out"
unset "${!UCX_TLS@}" "${!UCX_NPRDMA@}"
: >"$out/samples"
run=(timeout -k 5 600 "$prefix/bin/nprdma-run" "$program" -r "$rounds"
    -c "${cpus[0]},${cpus[1]}")
for cost in "${costs[@]}"; do
    measure "$cost" sequential sequential "${run[@]}" "${sizes[@]}"
    measure "$cost" overlap overlapped "${run[@]}" "${sizes[@]}"
    measure "$cost" overlap unannounced \
        env UCX_NPRDMA_PREPARE=off "${run[@]}" "${sizes[@]}"
    measure "$cost" cached cached "${run[@]}" -w "${sizes[@]}"
    measure "$cost" overlap warm "${run[@]}" -w "${sizes[@]}"
done

for name in sequential overlapped unannounced; do
    options=(-o)
    prepare=both
    case $name in
    sequential) options=(-o -s) ;;
    unannounced) prepare=off ;;
    esac
    echo "not modelled: $name" >&2
    UCX_TLS=nprdma UCX_NPRDMA_PREPARE=$prepare "${run[@]}" "${options[@]}" \
        "${sizes[@]}" >"$out/run" || nprdma_die "overlap failed: see above"
    sed "s/^/none 0 0 1 $name /" "$out/run" >>"$out/samples"
done

code=0
awk -v plot="$out/overlap" -f "$nprdma_top/contrib/bench/overlap.awk" \
    "$out/samples" >"$out/table.txt" || code=$?
cat "$out/table.txt"
cat <<END
Soft0. Modelled: at 1/$slowdown of its model's speed, times divided by that. All:
medians of $rounds messages. $(date -I), load $(cut -d ' ' -f 1 /proc/loadavg).
END
if command -v gnuplot >/dev/null; then
    for cost in "${costs[@]}"; do
        cost=${cost%% *}
        "$nprdma_top/osu-bench/plot.sh" \
            -t "Memory that is registered for each message (modelled, $cost)" \
            "$out/overlap-$cost.latency" "$out/overlap-$cost.bandwidth" \
            "$out/overlap-$cost"
    done
else
    echo "no plot: gnuplot is missing (package gnuplot-nox)"
fi
exit "$code"
