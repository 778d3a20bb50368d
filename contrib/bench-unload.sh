#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Shows when it pays to leave small puts to the target's CPU, as UNLOAD says: by
# a model of a device with a translation cache; by soft0, where the cache alone
# is modelled; and, where there is an RDMA device and nprdma.ko is loaded, as it
# is here.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

puts=
turns=
quick=0
device=
model=1
soft=1
prefix=
out=$nprdma_top/build/unload
sizes=(8 64 256 1024)

usage() {
    sed -n '3,6s/^# //p' "$0"
    cat <<END

Usage: bench-unload.sh [OPTION...]
  --device DEV  an RDMA device and port, such as mlx5_0:1 (default: the first
                active one, if nprdma.ko is loaded); none: only the models
  --no-model    only the device
  --no-soft     not soft0
  --puts N      puts of each stream of the model, from 16 on (default:
                16777216, some minutes)
  --turns N     times that each policy is measured on soft0 and on the device
                (default: 3)
  --quick       a sixteenth of the model's puts, a tenth and a quarter of the
                others, one turn: to see that it works, not to decide by it
  --prefix DIR  what is measured (default: set up, build, and measure
                build/install)
  --out DIR     where model.tsv, soft.tsv, device.tsv, table.txt and unload.svg,
                .png go (default: build/unload)
END
}

while [ $# -gt 0 ]; do
    case $1 in
    --device | --puts | --turns | --prefix | --out)
        [ -n "${2-}" ] || nprdma_die "$1 needs a value: bench-unload.sh --help"
        case $1 in
        --puts | --turns)
            [[ $2 =~ ^[1-9][0-9]{0,9}$ ]] ||
                nprdma_die "$1 needs a number from 1 to 9999999999, not '$2'"
            if [ "$1" = --puts ]; then puts=$2; else turns=$2; fi
            ;;
        --device) device=$2 ;;
        --prefix) prefix=$(realpath -m "$2") ;;
        --out) out=$(realpath -m "$2") ;;
        esac
        shift
        ;;
    --no-model) model=0 soft=0 ;;
    --no-soft) soft=0 ;;
    --quick) quick=1 ;;
    -h | --help)
        usage
        exit 0
        ;;
    *)
        nprdma_die "unknown argument '$1': bench-unload.sh --help shows them" \
            "all"
        ;;
    esac
    shift
done
puts=${puts:-$((quick ? 1 << 20 : 1 << 24))}
turns=${turns:-$((quick ? 1 : 3))}
[ "$puts" -ge 16 ] || nprdma_die "--puts needs a number from 16 on, not '$puts'"
[ "$model" -eq 1 ] || [ "$device" != none ] ||
    nprdma_die "--no-model and --device none: nothing is left to measure"

# The first port that is active, as UCX names it
find_device() {
    local port

    [ -e /sys/module/nprdma ] || return 0
    for port in /sys/class/infiniband/*/ports/*; do
        if grep -qs ACTIVE "$port/state"; then
            port=${port#/sys/class/infiniband/}
            echo "${port%%/*}:${port##*/}"
            return 0
        fi
    done
}

nprdma_find_prefix
bench=$prefix/libexec/nprdma/bench
[ -x "$bench/unload" ] || nprdma_die "no $bench/unload: make install first"
if [ -z "$device" ]; then
    device=$(find_device)
    if [ -z "$device" ]; then
        why="no port in /sys/class/infiniband is active"
        [ -e /sys/module/nprdma ] || why="nprdma.ko is not loaded"
        [ "$model" -eq 1 ] ||
            nprdma_die "$why, and --no-model leaves nothing else to measure"
        echo "$why: only the models" >&2
        device=none
    fi
fi
if [ "$device" != none ]; then
    [ -e "/sys/class/infiniband/${device%%:*}/ports/${device#*:}" ] ||
        nprdma_die "there is no RDMA device and port '$device':" \
            "ls -d /sys/class/infiniband/*/ports/*"
    [ -e /sys/module/nprdma ] ||
        nprdma_die "nprdma.ko is not loaded: over '$device' all small puts go" \
            "by the target's CPU"
fi

if [ "$soft" -eq 1 ] || [ "$device" != none ]; then
    nprdma_find_cpus
fi
mkdir -p "$out"
quickly=
[ "$quick" -eq 0 ] || quickly=" (--quick: not to decide by)"
unset "${!UCX_TLS@}" "${!UCX_NPRDMA@}"
: >"$out/table.txt"

# What the seed's Figure 3 says, in us, where its text has a number
seed_says() {
    case $1 in
    1) echo "2.6 3.4 2.6" ;;
    1048576) echo "5.1 3.5 -" ;;
    *) echo "- - -" ;;
    esac
}

measure_model() {
    local stream pages off always hint frequency auto seed

    "$bench/unload_model" --puts "$puts" zipf-0.5 | tee "$out/model.tsv" >&2
    {
        echo "Modelled$quickly: us a put of 16 bytes, Zipf 0.5, $puts puts;" \
            "in brackets"
        echo "what the paper uRDMA measured (Figure 3)."
        printf '%8s  %12s  %12s  %12s  %9s  %5s  %s\n' pages off always hint \
            frequency auto "auto/better"
        while read -r stream pages off always hint frequency auto; do
            [ "$stream" != stream ] || continue
            read -ra seed <<<"$(seed_says "$pages")"
            printf '%8s  %5.2f %6s  %5.2f %6s  %5.2f %6s  %9.2f  %5.2f  %s\n' \
                "$pages" "$off" "(${seed[0]})" "$always" "(${seed[1]})" \
                "$hint" "(${seed[2]})" "$frequency" "$auto" \
                "$(awk "BEGIN { b = $off < $always ? $off : $always
                    printf \"%.3f\", $auto / b }")"
        done <"$out/model.tsv"
    } >>"$out/table.txt"
    command -v gnuplot >/dev/null || {
        echo "no plot: gnuplot is missing (package gnuplot-nox)" >&2
        return 0
    }
    cat >"$out/plot.gp" <<END
set title "Small puts by policy (modelled: a device that keeps 4096 pages)"
set xlabel "pages that are put to, Zipf 0.5"
set ylabel "us a put of 16 bytes"
set logscale x 2
set format x "2^{%L}"
set yrange [2:5.5]
set key top left
plot "$out/model.tsv" every ::1 using 2:3 with linespoints title "off", \\
     "" every ::1 using 2:4 with linespoints title "always", \\
     "" every ::1 using 2:5 with linespoints title "hint", \\
     "" every ::1 using 2:6 with linespoints title "frequency", \\
     "" every ::1 using 2:7 with linespoints title "auto"
END
    "$nprdma_top/osu-bench/plot.sh" -g "$out/plot.gp" "$out/unload" >&2
}

# run_unload POLICY ARGUMENT...: sets us, a put, and share, that was unloaded.
# The settings of the device are in the environment.
run_unload() {
    local policy=$1

    shift
    UCX_TLS=nprdma UCX_NPRDMA_UNLOAD="$policy" \
        timeout -k 5 300 "$prefix/bin/nprdma-run" "$bench/unload" \
        -c "${cpus[0]},${cpus[1]}" "$@" >"$out/run" ||
        nprdma_die "unload failed: see above"
    read -r _ _ us _ _ share <"$out/run"
}

# The seed's times, twice as long: what our own software needs on this host,
# beside a message, then is what theirs did
measure_soft() {
    local turn pages policy us share

    : >"$out/soft.tsv"
    export UCX_NPRDMA_SOFT_TLB=page UCX_NPRDMA_SOFT_TLB_WIRE=5.2us
    export UCX_NPRDMA_SOFT_TLB_MISS=5us
    for ((turn = 1; turn <= turns; ++turn)); do
        for pages in 16 4096 16384 65536 262144; do
            echo "turn $turn of $turns: soft0, $pages pages" >&2
            for policy in off always hint frequency auto auto frequency hint \
                always off; do
                run_unload "$policy" -w -p "$pages" \
                    -n "$((quick ? 2000 : 20000))"
                printf 'soft0\t%s\t16\t%s\t%s\t%s\n' "$pages" "$policy" \
                    "$(awk "BEGIN { print $us / 2 }")" "$share" \
                    >>"$out/soft.tsv"
            done
        done
    done
    unset UCX_NPRDMA_SOFT_TLB UCX_NPRDMA_SOFT_TLB_WIRE UCX_NPRDMA_SOFT_TLB_MISS
    {
        echo
        echo "soft0, its cache modelled, between two processes$quickly: us a" \
            "put of 16"
        echo "bytes that is flushed, Zipf 0.5, in a world of half the speed," \
            "and so halved;"
        echo "medians of $((2 * turns)) runs, auto against the better of off" \
            "and always"
        awk -f "$nprdma_top/contrib/bench/unload.awk" "$out/soft.tsv"
    } >>"$out/table.txt"
}

# put POLICY SIZE PAGES TARGET
put() {
    local target=()

    [ "$4" != computes ] || target=(-t)
    UCX_NET_DEVICES=$device UCX_NPRDMA_INTRA_NODE=verbs \
        UCX_NPRDMA_MAPPER=kmod UCX_NPRDMA_PUT_ONCE=0 \
        UCX_NPRDMA_UNLOAD_MAX=1k run_unload "$1" -s "$2" -p "$3" \
        -n "$((quick ? 500 : 2000))" "${target[@]}"
}

measure_device() {
    local turn target pages size policy us share

    : >"$out/device.tsv"
    for ((turn = 1; turn <= turns; ++turn)); do
        for target in progresses computes; do
            for pages in 16 16384; do
                for size in "${sizes[@]}"; do
                    echo "turn $turn of $turns: $size bytes, $pages pages," \
                        "the target $target" >&2
                    # each once in one order, and once in the other
                    for policy in off always auto auto always off; do
                        put "$policy" "$size" "$pages" "$target"
                        printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$target" "$pages" \
                            "$size" "$policy" "$us" "$share" \
                            >>"$out/device.tsv"
                    done
                done
            done
        done
    done
    {
        echo
        echo "$device, measured$quickly: us a put that is flushed, on one" \
            "host, PUT_ONCE=0, UNLOAD_MAX=1k, medians of"
        echo "$((2 * turns)) runs; auto against the better of the others, and" \
            "off against itself, which is the noise."
        awk -f "$nprdma_top/contrib/bench/unload.awk" "$out/device.tsv"
    } >>"$out/table.txt"
}

[ "$model" -eq 0 ] || measure_model
[ "$soft" -eq 0 ] || measure_soft
[ "$device" = none ] || measure_device
cat "$out/table.txt"
echo "$(date -I), load $(cut -d ' ' -f 1 /proc/loadavg); all of it in $out"
