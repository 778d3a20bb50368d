#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Shows what files that peers reach by offset cost on this machine: to make a
# key, and to read and write, beside the same of memory, and beside the system
# calls of a process that has the file itself; and what nprdma-filed's clients
# wait for, beside cp, and where they are installed libpmemlog and NFS (fio).
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"
# shellcheck source=contrib/bench/nfs.sh
. "$nprdma_top/contrib/bench/nfs.sh"

quick=0
prefix=
out=$nprdma_top/build/files

usage() {
    sed -n '3,6s/^# //p' "$0"
    cat <<END

Usage: bench-files.sh [OPTION...]
  --quick       a quarter of the bytes: to see that it works, not to decide by
                it
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where files.txt, calls.txt, copies.txt and table.txt go
                (default: build/files)
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

# The server's files are in memory, so that no disk is measured
share=$(mktemp -d /dev/shm/nprdma-bench.XXXXXX)
server=
end() {
    nfs_stop
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$share"
}
trap end EXIT
mkdir "$share/files"
echo "measuring the server: some 20 s" >&2
taskset -c "${cpus[0]}" "$prefix/bin/nprdma-filed" --threads 1 \
    --socket "$share/socket" "$share/files" 2>"$out/server.txt" &
server=$!
for ((i = 0; i < 300; ++i)); do
    ! grep -q 'is shared' "$out/server.txt" || break
    kill -0 "$server" 2>/dev/null || nprdma_die "$(tail -n 1 "$out/server.txt")"
    sleep 0.05
done
client=(taskset -c "${cpus[1]}" timeout -k 5 120 "$prefix/bin/nprdma-file"
    --socket "$share/socket")
"${client[@]}" bench :/bench "$share/files/bench" >"$out/calls.txt" ||
    nprdma_die "nprdma-file bench failed: see above"

# seconds COMMAND...: that it takes
seconds() {
    local begin=${EPOCHREALTIME/./}

    "$@"
    echo "$((${EPOCHREALTIME/./} - begin))e-6"
}

# copy NAME COMMAND...: what nprdma-file says that it took
copy() {
    "${client[@]}" --json "$@" | sed 's/.*"seconds": \(.*\)}/\1/'
}

# median COLUMN: of the copies; the first round is not taken
median() {
    tail -n +2 "$out/copies.txt" | cut -f "$1" | sort -g |
        sed -n "$(((rounds + 1) / 2))p"
}

head -c $((mib * 8))M /dev/urandom >"$share/source"
rounds=9
: >"$out/copies.txt"
for ((i = 0; i <= rounds; ++i)); do
    {
        seconds taskset -c "${cpus[1]}" cp "$share/source" "$share/files/a"
        copy put "$share/source" :/b
        seconds taskset -c "${cpus[1]}" cp "$share/files/b" "$share/c"
        copy get :/b "$share/d"
    } | paste -s >>"$out/copies.txt"
    cmp "$share/source" "$share/d" || nprdma_die "what was copied differs"
    rm "$share"/files/* "$share"/[cd]
done
missing=$(nfs_missing)
if [ -z "$missing" ]; then
    echo "measuring fio, and NFS: some $((quick ? 25 : 90)) s" >&2
    nfs_measure $((quick ? 1 : 5)) 1 >"$out/nfs.txt" ||
        nprdma_die "fio, or its engine of NFS, failed: see above"
else
    echo "not measured, for what is missing:$missing" >"$out/nfs.txt"
fi
end
server=

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
    echo
    echo "nprdma-filed's client, us a call; medians of rounds in turn:"
    cat "$out/calls.txt"
    to_cp=$(median 1) to=$(median 2) from_cp=$(median 3) from=$(median 4)
    awk -v mib=$((mib * 8)) "BEGIN {
        text = \"a copy of %d MiB %-15s %.3f s, cp %.3f s; cp/copy %.2f\\n\"
        printf text, mib, \"to the server:\", $to, $to_cp, $to_cp / $to
        printf text, mib, \"from it:\", $from, $from_cp, $from_cp / $from
    }"
    echo
    echo "fio, 1024 bytes at random places, operations a second, medians of" \
        "rounds in turn:"
    awk '/^not/ { print; next }
        !header++ { printf "%-10s %5s %9s %9s %6s %5s\n", "", "depth",
            "nprdma", "NFS", "ratio", "self" }
        { printf "%-10s %5d %9d %9d %6.1f %5.2f\n", $2, $1, $3, $4, $3 / $4,
            $5 / $3 }' "$out/nfs.txt"
    echo "$(date +%F), load $(cut -d ' ' -f 1 /proc/loadavg); all of it in $out"
} | tee "$out/table.txt"
