#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Plots result tables, latency and bandwidth side by side, as SVG and PNG.
set -euo pipefail

usage() {
    cat <<'END'
Usage: plot.sh [-t TITLE] LATENCY-TABLE BANDWIDTH-TABLE PREFIX
       plot.sh -g COMMANDS PREFIX
Writes PREFIX.svg and PREFIX.png; of a file of gnuplot's commands with -g.

A table has a header line and a line per message size; '#' may start the
header, columns are separated by blanks, and '-' or 0 stands for no value:
    # size  nprdma  posix,cma,self  tcp,self
    1       0.21    0.25            8.10
END
}

die() {
    echo "plot.sh: $*" >&2
    exit 2
}

title=
commands=
while getopts :t:g:h option; do
    case $option in
    t) title=$OPTARG ;;
    g) commands=$OPTARG ;;
    h) usage; exit 0 ;;
    :) die "option -$OPTARG needs a value; see plot.sh -h" ;;
    *) die "unknown option -$OPTARG; see plot.sh -h" ;;
    esac
done
shift $((OPTIND - 1))
command -v gnuplot >/dev/null ||
    die "gnuplot not found: install gnuplot-nox (Debian) to get the plots"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# clean TABLE COPY: header without '#', every line with as many columns, every
# value a number or '-', also for 0, which a logarithmic axis has no room for
clean() {
    [ -r "$1" ] || die "cannot read the table $1"
    awk -v file="$1" '
        function bad(why) {
            printf "plot.sh: %s, line %d: %s\n", file, NR, why >"/dev/stderr"
            failed = 1
            exit 2
        }
        { sub(/\r$/, "") }
        NF == 0 { next }
        !columns {
            sub(/^#[ \t]*/, "")
            $0 = $0
            columns = NF
            if (columns < 2) bad("header has no column after the size")
            $1 = $1
            print
            next
        }
        /^#/ { next }
        {
            if (NF != columns) bad("wanted " columns " columns, found " NF)
            for (i = 1; i <= NF; i++) {
                if (i > 1 && $i == "-") continue
                if ($i !~ /^[0-9]*\.?[0-9]+([eE][-+]?[0-9]+)?$/)
                    bad("wanted a number, found " $i)
                if ($i == 0 && i == 1) bad("wanted a size, found " $i)
                if ($i == 0) $i = "-"
            }
            $1 = $1
            print
            rows++
        }
        END { if (columns && !rows && !failed) bad("no rows after the header") }
        ' "$1" >"$2" || exit 2
    [ -s "$2" ] || die "the table $1 is empty"
}

# axes TABLE TITLE LABEL KEY-PLACE: one half of the picture
axes() {
    local columns
    columns=$(head -n 1 "$1" | wc -w)
    cat <<END
set title "$2"
set ylabel "$3"
set key $4
plot for [i=2:$columns] "$1" using 1:i with linespoints lw 2 pt (i+3) ps 0.7 \\
    title columnheader(i)
END
}

# tables TITLE LATENCY-TABLE BANDWIDTH-TABLE: the commands that plot them
tables() {
    cat <<'END'
set datafile missing "-"
set logscale x 2
set logscale y 10
set format x "%.0b%B"
set format y "%g"
set xlabel "message size (bytes)"
set xtics rotate by -45
set grid xtics ytics mytics lc rgb "#d0d0d0"
set key noenhanced samplen 2
set title noenhanced
END
    # Quotes would end gnuplot's string
    printf 'set multiplot layout 1,2 title "%s" noenhanced\n' \
        "$(tr -d '"\\`' <<<"$1")"
    clean "$2" "$work/latency"
    axes "$work/latency" "Latency" "microseconds" "left top"
    clean "$3" "$work/bandwidth"
    axes "$work/bandwidth" "Bandwidth" "MB/s" "right bottom"
    echo "unset multiplot"
}

if [ -n "$commands" ]; then
    [ $# = 1 ] || die "wanted a prefix, found $# arguments; see plot.sh -h"
    [ -r "$commands" ] || die "cannot read the commands $commands"
    cp "$commands" "$work/body"
else
    [ $# = 3 ] ||
        die "wanted two tables and a prefix, found $# arguments; see plot.sh -h"
    tables "$title" "$1" "$2" >"$work/body"
    shift 2
fi
prefix=$1

for format in svg png; do
    case $format in
    svg) terminal="svg size 1200,480 dynamic background '#ffffff'" ;;
    png) terminal="pngcairo size 1200,480 background '#ffffff'" ;;
    esac
    {
        echo "set terminal $terminal"
        echo "set output '$work/plot.$format'"
        cat "$work/body"
        echo "set output"
    } >"$work/script"
    gnuplot "$work/script" 2>"$work/err" || {
        sed 's/^/plot.sh: gnuplot: /' "$work/err" >&2
        exit 1
    }
    cp "$work/plot.$format" "$prefix.$format"
    echo "wrote $prefix.$format"
done
