# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
# Searches with spin, for the tests of the models (docs/design/model.md): what
# must hold in every run, and deliberate faults that the search must find.
# Sourced; "model" is the model's path.

# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

cc=${CC:-cc}
command -v spin > /dev/null || tap_skip_all "no spin (package spin)"
command -v "${cc%% *}" > /dev/null || tap_skip_all "no C compiler ($cc)"

mkdir "$TAP_DIR/pan"
cd "$TAP_DIR/pan" || exit 1

# build MACROS COMPILER-FLAGS: pan, the search of the model with these macros
build() {
    local macro_list flag_list compiler

    read -ra macro_list <<< "$1"
    read -ra flag_list <<< "$2"
    read -ra compiler <<< "$cc"
    rm -f pan pan.? ./*.trail
    # shellcheck disable=SC2154 # the test that sources this sets it
    run 60 spin -a "${macro_list[@]}" "$model"
    if [ "$RC" -eq 0 ]; then
        run 120 "${compiler[@]}" -w "${flag_list[@]}" -DCOLLAPSE \
            -DMEMLIM=4000 -o pan pan.c
    fi
    [ "$RC" -eq 0 ]
}

states() {
    awk '/ states, stored/ { print $1; exit }' "$TAP_OUT"
}

# Was all of it searched, and nothing found?
is_complete() {
    [ "$RC" -eq 0 ] && grep -q '^Full statespace search' "$TAP_OUT" &&
        grep -qE 'State-vector .* errors: 0$' "$TAP_OUT" &&
        ! grep -qiE 'not completed|too small|truncat|memory (limit|exceed)' \
            "$TAP_OUT"
}

# Was one of these statements never executed?
is_missing() {
    local statement

    for statement in "$@"; do
        if sed -n '/^unreached/,$p' "$TAP_OUT" |
            grep -F "\"$statement\"" > /dev/null; then
            echo "never executed: $statement" >> "$TAP_OUT"
            return 0
        fi
    done
    return 1
}

# For large searches; small ones take less time than the optimizer
FAST=-O0

# fail NAME WHY: with what matters of the output
fail() {
    {
        grep -iE '^(pan|error|warning|state-vector)|error:|never executed' \
            "$TAP_OUT" | cut -c 1-160 || true
        echo "exit code $RC; $2"
    } > "$TAP_DIR/why"
    tap_not_ok "$1" "$TAP_DIR/why"
}

# holds NAME MACROS STATEMENT...: no error and no deadlock in any run; and each
# STATEMENT was executed
holds() {
    local name=$1 macros=$2

    shift 2
    if build "$macros" "$FAST -DSAFETY"; then
        run 200 ./pan -m20000 -w22
        if is_complete && ! is_missing "$@"; then
            tap_ok "$name ($(states) states: $macros)"
            return 0
        fi
    fi
    fail "$name" "macros: $macros"
}

# ends NAME MACROS: no run goes on for ever
ends() {
    if build "$2" "$FAST -DNP"; then
        run 200 ./pan -l -m20000 -w22
        if is_complete && grep -q 'non-progress cycles' "$TAP_OUT"; then
            tap_ok "every run ends: $1 ($(states) states: $2)"
            return 0
        fi
    fi
    fail "every run ends: $1" "macros: $2"
}

# breaks KIND NAME MACROS: the search finds an error of this kind
breaks() {
    local how="-O0 -DSAFETY" pattern options=(-m20000 -w20)

    case $1 in
    lost)  pattern='assertion violated .*pg\[0\]\.mem\[[0-9]\]!=' ;;
    read)  pattern='assertion violated \(had\[' ;;
    frame) pattern='assertion violated \(\(tr\[i\]==0\)' ;;
    twice) pattern='assertion violated \(consumed==0\)' ;;
    shown) pattern='assertion violated \(pg\[0\]\.mem\[0\]==' ;;
    stuck) pattern='invalid end state' ;;
    right) pattern='assertion violated word_is_right' ;;
    older) pattern='assertion violated is_not_older' ;;
    value) pattern='assertion violated value_is_right' ;;
    once)  pattern='assertion violated was_executed_once' ;;
    lease) pattern='assertion violated lease_is_held' ;;
    left)  pattern='assertion violated nothing_is_left' ;;
    fence) pattern='assertion violated fence_has_held' ;;
    cycle)
        pattern='non-progress cycle'
        how="-O0 -DNP"
        options+=(-l)
        ;;
    esac
    if build "$3" "$how"; then
        run 200 ./pan "${options[@]}"
        if [ "$RC" -eq 0 ] && grep -qE "^pan:1: $pattern" "$TAP_OUT" &&
            grep -q 'errors: 1$' "$TAP_OUT"; then
            tap_ok "found ($1): $2 ($(states) states: $3)"
            return 0
        fi
    fi
    fail "found ($1): $2" "wanted: $pattern; macros: $3"
}
