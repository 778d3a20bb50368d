# SPDX-License-Identifier: BSD-3-Clause
# Runs combinations with two transports and compares what was seen.
# shellcheck shell=bash

CONTROL_DIR=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CONTROL_ACCEPTED=$CONTROL_DIR/accepted

# control_compare FOLDER OPTION...: the arrays CONTROL_STOCK and CONTROL_OURS
# are what comes before the program, the options are the program's. Differences
# are tried twice more: what depends on the moment shows itself. Leaves in
# FOLDER stock and ours, what was seen, and result, as compare.awk writes it.
control_compare() {
    local folder=$1 round
    local -a names
    shift

    rm -f "$folder"/stock* "$folder"/ours*
    for round in 1 2 3; do
        "${CONTROL_STOCK[@]}" "$NPRDMA_BUILD/control" "$@" \
            >"$folder/stock$round"
        "${CONTROL_OURS[@]}" "$NPRDMA_BUILD/control" "$@" \
            >"$folder/ours$round"
        awk -f "$CONTROL_DIR/compare.awk" "$CONTROL_ACCEPTED" \
            "$folder"/stock? "$folder"/ours? | sort >"$folder/result"
        # through a file: the lab's guests have no /dev/fd
        awk '$1 == "differs" { print $2 }' "$folder/result" | sort -u |
            head -n 60 >"$folder/names"
        mapfile -t names <"$folder/names"
        if [ "${#names[@]}" -eq 0 ]; then
            return 0
        fi
        while [[ ${1-} == -s ]]; do
            shift 2
        done
        while [ $# -gt 0 ] && [[ ${!#} == */* ]]; do
            set -- "${@:1:$#-1}"
        done
        set -- "$@" "${names[@]}"
    done
    return 1
}

# control_count KIND FOLDER: lines of the result; or combinations that ran
control_count() {
    case $1 in
    ran) wc -l <"$2/ours1" ;;
    *) awk -v kind="$1" '$1 == kind' "$2/result" | wc -l ;;
    esac
}
