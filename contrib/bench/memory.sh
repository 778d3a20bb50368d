#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures the memory of 2, 8 and 32 ranks on this host, over nprdma and over
# UCX's own shared memory, and derives what a peer costs.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/../lib.sh"

prefix=
messages=2048
out=$nprdma_top/build/bench
ranks=(2 8 32)

usage() {
    sed -n '3,4s/^# //p' "$0"
    cat <<END

Usage: memory.sh [--messages N] [--prefix DIR] [--out DIR] [RANKS...]
  --messages N  messages of 8 B and 1 KiB to each peer (default: $messages)
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where memory.tsv goes (default: build/bench)
  RANKS         numbers of ranks, at least two (default: ${ranks[*]})
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --messages | --prefix | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: memory.sh --help"
        case $1 in
        --messages) messages=$2 ;;
        --prefix) prefix=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) nprdma_die "unknown option '$1': memory.sh --help shows them all" ;;
    *) break ;;
    esac
    shift
done
if [ $# -gt 0 ]; then
    ranks=("$@")
fi
mapfile -t ranks < <(printf '%s\n' "${ranks[@]}" | sort -nu)
for n in "${ranks[@]}" "$messages"; do
    [[ $n =~ ^[1-9][0-9]*$ ]] ||
        nprdma_die "'$n': a number of ranks or messages from 1 up is wanted"
done
if [ ${#ranks[@]} -lt 2 ] || [ "${ranks[-1]}" -lt 4 ]; then
    nprdma_die "ranks ${ranks[*]}: two numbers are wanted, and one of 4 or" \
        "more, as in 2 8"
fi

nprdma_find_prefix
program=$prefix/libexec/nprdma/bench/memory
[ -x "$program" ] || nprdma_die "no $program: make install first"

unset "${!UCX_TLS@}"
mkdir -p "$out"
printf 'side\tranks\tstage\tpss_kb\tshmem_kb\tpte_kb\tsockets\tfiles\n' \
    >"$out/memory.tsv"
for n in "${ranks[@]}"; do
    for side in stock nprdma; do
        echo "$n ranks over $side ..." >&2
        if [ "$side" = nprdma ]; then
            command=(env UCX_TLS=nprdma "$prefix/bin/nprdma-run" "$program")
        else
            command=(env "UCX_TLS=posix,cma,self" "$program")
        fi
        # Into a file: in a pipe a failure would pass unseen
        timeout -k 5 300 "${command[@]}" "$n" "$messages" >"$out/memory.run" ||
            nprdma_die "memory $n failed over $side: see above"
        sed "s/^/$side /; s/ /\t/g" "$out/memory.run" >>"$out/memory.tsv"
    done
done
rm -f "$out/memory.run"

# What a peer costs that is talked to: the growth from one neighbour (one to
# send to, one to receive from) to all, in the largest run. What one costs that
# is not: the growth of what endpoints add, from the smallest to the largest
# run. A file counts 2 KiB of kernel memory, which no process is charged for: a
# guess from above for a socket or memfd with its inode.
awk -v file_kb=2 -v limit_kb=64 -v idle_limit_kb=1 '
    function total(side, n, stage) { return kb[side, n, stage] / n }
    function endpoints(side, n) {
        return total(side, n, "connected") - total(side, n, "alone")
    }
    NR == 1 { next }
    {
        kb[$1, $2, $3] = $4 + $6 + file_kb * $8
        if (!min || $2 + 0 < min) min = $2 + 0
        if ($2 + 0 > max) max = $2 + 0
        if (NR == 2)
            printf "%-7s %5s  %-10s %9s %9s %9s %8s %7s\n", "", "ranks",
                   "stage", "Pss kB", "shared kB", "tables kB", "sockets",
                   "files"
        printf "%-7s %5d  %-10s %9.1f %9.1f %9.1f %8.1f %7.1f\n", $1, $2, $3,
               $4 / $2, $5 / $2, $6 / $2, $7 / $2, $8 / $2
    }
    END {
        print "All per rank. Connected: endpoints to all, nothing sent."
        printf "\n%-7s %36s %26s\n", "", "kB a rank for each peer talked to",
               "and for one that was not"
        for (i = 1; i <= 2; ++i) {
            side = i == 1 ? "stock" : "nprdma"
            idle = (endpoints(side, max) - endpoints(side, min)) / (max - min)
            talked = (total(side, max, "all") - \
                      total(side, max, "neighbour")) / (max - 2)
            printf "%-7s %36.1f %26.1f\n", side, talked, idle
        }
        good = talked < limit_kb && idle < idle_limit_kb
        printf "%-7s %36s %26s  %s\n", "wanted", "< " limit_kb,
               "< " idle_limit_kb, good ? "ok" : "MISSED"
        exit !good
    }' "$out/memory.tsv"
