#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Plots what the lab's job verbs-buffers has left: resident and pinned memory of
# one side by the number of buffers used, as SVG and PNG.
set -euo pipefail

die() {
    echo "plot-buffers.sh: $*" >&2
    exit 2
}

[ $# -eq 2 ] ||
    die "wanted: plot-buffers.sh BUFFERS PREFIX; writes PREFIX.svg, PREFIX.png"
[ -r "$1" ] || die "cannot read $1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# A file for each world: buffers, resident and pinned MiB; and one for its last
# line if it did not get to the end. Logarithmic axes have no room for 0.
awk -v work="$work" '
    function mib(kib) { return (kib < 1024) ? 1 : kib / 1024 }
    /^== / { file = work "/" $2 }
    /^0 / { line = $2 " " mib($3) " " mib($4); print line >file }
    /^# ended/ && !/ all / { print line >(file ".end") }
' "$1"

# curve WORLD COLUMN STYLE TITLE: if it is there
curve() {
    local file=$work/$1
    [ -s "$file" ] || return 0
    printf '%s "%s" using 1:%d with lines lw 3 %s title "%s"' "$separator" \
        "$file" "$2" "$3" "$4"
    separator=,
    if [ -s "$file.end" ]; then
        printf ', "%s" using 1:%d with points pt 2 ps 1.5 lw 3 %s title "%s"' \
            "$file.end" "$2" "$3" "killed: out of memory"
    fi
}

# curves TITLE COLUMN: one half of the picture
curves() {
    echo "set title \"$1\""
    separator=plot
    curve stock "$2" 'lc rgb "#d62728"' "stock rc_verbs, registration cache"
    curve kmod "$2" 'lc rgb "#1f77b4"' "nprdma, verbs, nprdma.ko"
    curve user "$2" 'lc rgb "#ff7f0e" dt 2' "nprdma, verbs"
    curve soft0 "$2" 'lc rgb "#9467bd"' "nprdma, soft0"
    curve alone "$2" 'lc rgb "#7f7f7f" dt 3' "no communication"
    [ "$separator" = , ] || die "there is no table in the file"
    echo
}

{
    cat <<'END'
set logscale xy
set yrange [1:2000]
set xtics (100, 200, 500, 1000, 2000, 5000, 10000)
set ytics ("up to 1" 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000)
set xlabel "buffers used, of 1 MiB each"
set ylabel "MiB of one of both processes"
set grid xtics ytics lc rgb "#d0d0d0"
set key at graph 0.99, 0.72 noenhanced samplen 3
set multiplot layout 1,2
END
    curves "Resident memory" 2
    curves "Pinned memory" 3
    echo "unset multiplot"
} >"$work/commands"
"$(dirname "$0")/../../osu-bench/plot.sh" -g "$work/commands" "$2"
