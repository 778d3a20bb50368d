#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures transfers to memory that is absent, present, swapped out or hardly
# used, against UCX's cma and posix on touched memory and against the OS.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

rounds=
quick=0
mib=128
swap=1
prefix=
out=$nprdma_top/build/paging

usage() {
    sed -n '3,4s/^# //p' "$0"
    cat <<END

Usage: bench-paging.sh [OPTION...]
  --rounds N    how often everything is measured (default: 15)
  --quick       one round with fewer transfers: to see that it works
  --sparse MIB  how much of a region of 64 GiB is used (default: $mib)
  --no-swap     no major faults; else a zram device of 512 MiB is added for
                them, and removed, if there is no swap and we are root
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where samples.tsv, table.txt and paging.svg, .png go (default:
                build/paging)
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --rounds | --sparse | --prefix | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: bench-paging.sh --help"
        case $1 in
        --rounds | --sparse)
            [[ $2 =~ ^[1-9][0-9]{0,3}$ ]] ||
                nprdma_die "$1 needs a number from 1 to 9999, not '$2'"
            if [ "$1" = --rounds ]; then rounds=$2; else mib=$2; fi
            ;;
        --prefix) prefix=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    --quick) quick=1 ;;
    --no-swap) swap=0 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        nprdma_die "unknown argument '$1': bench-paging.sh --help shows them" \
            "all"
        ;;
    esac
    shift
done
rounds=${rounds:-$((quick ? 1 : 15))}

nprdma_find_cpus

nprdma_find_prefix
program=$prefix/libexec/nprdma/bench/paging
[ -x "$program" ] || nprdma_die "no $program: make install first"

# A swap device of our own, in memory
zram=
remove_zram() {
    if [ -n "$zram" ]; then
        swapoff "/dev/zram$zram" 2>/dev/null || true
        echo 1 >"/sys/block/zram$zram/reset" || true
        echo "$zram" >/sys/class/zram-control/hot_remove || true
    fi
}
trap remove_zram EXIT

add_zram() {
    if [ -n "$(sed 1d /proc/swaps)" ] || [ "$(id -u)" -ne 0 ]; then
        return
    fi
    modprobe zram 2>/dev/null || true
    if ! zram=$(cat /sys/class/zram-control/hot_add 2>/dev/null); then
        zram=
        return
    fi
    { echo 512M >"/sys/block/zram$zram/disksize" &&
        mkswap "/dev/zram$zram" && swapon "/dev/zram$zram"; } >/dev/null 2>&1 ||
        echo "no swap in zram here, so no major faults" >&2
}
[ "$swap" = 0 ] || add_zram

mkdir -p "$out"
unset "${!UCX_TLS@}" "${!UCX_NPRDMA@}"
options=(-c "${cpus[0]},${cpus[1]}" -r "$rounds" -s "$mib")
[ "$quick" = 0 ] || options+=(-q)
started=$SECONDS
# With both ranks copying, two cores would be compared with one
env UCX_TLS=nprdma UCX_NPRDMA_SHARE_MIN=inf timeout -k 5 1800 \
    "$prefix/bin/nprdma-run" "$program" "${options[@]}" >"$out/samples.tsv" ||
    nprdma_die "paging failed: see above"

awk -v plot="$out/paging" -f "$nprdma_top/contrib/bench/paging.awk" \
    "$out/samples.tsv" >"$out/table.txt"
cat "$out/table.txt"
cat <<END
Medians of $rounds rounds; compared: UCX's cma (kernel copies) and posix
(mapped directly) on touched memory, or the OS; self: that against itself.
CPUs $(nproc), $(sed -n '/^model name/{s/.*: //p;q}' /proc/cpuinfo), $(
    date -I), took $((SECONDS - started)) s, load $(
    cut -d ' ' -f 1 /proc/loadavg).
END
if command -v gnuplot >/dev/null; then
    "$nprdma_top/osu-bench/plot.sh" \
        -t "Remote reads of memory that is not pinned (kernel copies)" \
        "$out/paging.latency" "$out/paging.bandwidth" "$out/paging"
else
    echo "no plot: gnuplot is missing (package gnuplot-nox)"
fi
