#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Shows what files that peers reach by offset cost on this machine: to make a
# key, and to read and write, beside the same of memory, and beside the system
# calls of a process that has the file itself.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

quick=0
prefix=
out=$nprdma_top/build/files

usage() {
    sed -n '3,5s/^# //p' "$0"
    cat <<END

Usage: bench-files.sh [OPTION...]
  --quick       a quarter of the bytes: to see that it works, not to decide by
                it
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where files.txt and table.txt go (default: build/files)
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --prefix | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: bench-files.sh --help"
        case $1 in
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
    *) nprdma_die "unknown option '$1': bench-files.sh --help" ;;
    esac
    shift
done

nprdma_find_prefix
bench=$prefix/libexec/nprdma/bench/files
[ -x "$bench" ] || nprdma_die "no $bench: make install first"
nprdma_find_cpus
mkdir -p "$out"
unset "${!UCX_TLS@}" "${!UCX_NPRDMA@}"

mib=16
[ "$quick" -eq 0 ] || mib=4
echo "measuring: some 20 s" >&2
UCX_TLS=nprdma timeout -k 5 300 "$prefix/bin/nprdma-run" "$bench" -n "$mib" \
    -c "${cpus[0]},${cpus[1]}" >"$out/files.txt" ||
    nprdma_die "'$bench' failed: see above"

{
    echo "soft0, measured; us, medians of rounds in turn. self: the file" \
        "against itself"
    awk '
        $1 == "key" {
            printf "a key of a file of %6d MiB: %.1f us (%.1f to %.1f), no " \
                   "page touched\n", $2, $3, $4, $5
            next
        }
        !header++ {
            printf "%4s %8s %9s %9s %9s %12s %10s %5s\n", "", "bytes",
                   "memory", "file", "call", "file/memory", "file/call",
                   "self"
        }
        { printf "%4s %8d %9.3f %9.3f %9.3f %12.2f %10.2f %5.2f\n", $1, $2,
                 $3, $4, $5, $6, $7, $8 }' "$out/files.txt"
    echo "$(date +%F), load $(cut -d ' ' -f 1 /proc/loadavg); all of it in $out"
} | tee "$out/table.txt"
