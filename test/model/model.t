#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The protocol of entries and checks, searched exhaustively by spin
# (docs/design/model.md): what must hold in every run, and deliberate faults
# that the search must find.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

cc=${CC:-cc}
command -v spin > /dev/null || tap_skip_all "no spin (package spin)"
command -v "${cc%% *}" > /dev/null || tap_skip_all "no C compiler ($cc)"

model=$NPRDMA_SRC/test/model/transfer.pml
mkdir "$TAP_DIR/pan"
cd "$TAP_DIR/pan"

# build MACROS COMPILER-FLAGS: pan, the search of the model with these macros
build() {
    local macro_list flag_list compiler

    read -ra macro_list <<< "$1"
    read -ra flag_list <<< "$2"
    read -ra compiler <<< "$cc"
    rm -f pan pan.? ./*.trail
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

# Statements that a search must have executed, or it has shown little
FAULT='ctl!x,0,epoch'
RETRY='ctl!x,1,epoch'
COPY='ctl!x,2,epoch'
ONCE='ctl!x,3,epoch'
AGAIN='rounds = (rounds+1)'
REPLACE='wanted = (epoch+1)'

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

# Two transfers of one endpoint, and somebody else who maps the page
one="-DORDERED -DOTHER"
# One transfer whose local page is taken as well
paged="-DTRANSFERS=1 -DLOCAL_PAGE"
# The queue pair fails once
broken="-DORDERED -DQP_ERROR"
# A put of a flag that a consumer polls
flag="-DTRANSFERS=1 -DUNITS=1 -DCONSUMER"

# What must hold
FAST=-O1
holds "write, write" "$one" "$FAULT" "$COPY" "$AGAIN"
holds "read, write" "$one -DREAD0" "$FAULT" "$COPY" "$AGAIN"
holds "two endpoints write the same words" "-DTOUCHES=0" \
    "$FAULT" "$COPY" "$AGAIN"
holds "one reads what another one writes" "-DTOUCHES=0 -DREAD0" \
    "$FAULT" "$COPY" "$AGAIN"
holds "two FAULTs are served at a time" "-DSWAPS=1 -DSERVERS=2" "$FAULT"
holds "several rounds, write" "$paged -DTOUCHES=0 -DLOCAL_SWAPS=2 -DROUNDS=2 \
-DSERVE_ROUNDS=2" "$FAULT" "$COPY" "$AGAIN"
holds "several rounds, read" "$paged -DREAD0 -DTOUCHES=0 -DLOCAL_SWAPS=2 \
-DROUNDS=2 -DSERVE_ROUNDS=2" "$FAULT" "$COPY" "$AGAIN"
holds "copy on write" "$one -DSWAPS=1 -DPROTECTS=1" "$FAULT"
holds "the queue pair fails, local page is taken, write" \
    "$paged -DQP_ERROR -DSWAPS=1" "$FAULT" "$REPLACE"
holds "the queue pair fails, local page is taken, read" \
    "$paged -DQP_ERROR -DSWAPS=1 -DREAD0" "$FAULT" "$REPLACE"
FAST=-O0
holds "two endpoints, one word in common" "-DSWAPS=1 -DBASE1=1" "$FAULT"
holds "two endpoints, no word in common" "-DSWAPS=1 -DBASE1=2" "$FAULT"
holds "data that is the signature is read" "-DSWAPS=1 -DREAD0 -DOLD=1" "$FAULT"
holds "local page is taken, write" "$paged -DATTEMPTS=2" \
    "$FAULT" "$COPY" "$AGAIN"
holds "local page is taken, read" "$paged -DATTEMPTS=2 -DREAD0" \
    "$FAULT" "$COPY" "$AGAIN"
holds "retry mode, write" "$paged -DRETRY_MODE" "$RETRY" "$COPY" "$AGAIN"
holds "retry mode, read" "$paged -DRETRY_MODE -DREAD0" \
    "$RETRY" "$COPY" "$AGAIN"
holds "the queue pair fails, write, write" "$broken" "$FAULT" "$REPLACE"
holds "the queue pair fails, read, write" "$broken -DREAD0" "$FAULT" "$REPLACE"
holds "fault-in takes another page, held, for room" "$paged -DRECLAIMS=1" \
    "$FAULT" "$COPY" "$AGAIN"
holds "a device that knows what it has written" \
    "-DORDERED -DLOCAL_PAGE -DATTRIBUTES" "$FAULT" "$COPY" "$AGAIN"
holds "a flag, by a message that is executed once" "$flag -DONCE0" "$ONCE"
holds "the same, and the queue pair fails" "$flag -DONCE0 -DQP_ERROR" \
    "$ONCE" "$REPLACE"
holds "a flag, by a device that knows what it has written" \
    "$flag -DATTRIBUTES" "$FAULT" "$COPY"
holds "the same, from a page that is taken" \
    "$flag -DATTRIBUTES -DSKIPS_ABSENT -DLOCAL_PAGE" "$FAULT" "$COPY" "$AGAIN"

ends "write, write" "$one -DSWAPS=1"
ends "one reads what another one writes" "-DSWAPS=1 -DTOUCHES=0 -DREAD0"
ends "local page is taken, write" "$paged"
ends "retry mode, data that is the signature" \
    "$paged -DRETRY_MODE -DREAD0 -DOLD=1"
ends "the queue pair fails" "$broken -DSWAPS=1"

# What must not hold, with one step left out or in another place
breaks lost "versions read in parallel with the write, unfenced" \
    "$one -DVERSIONS_IN_PARALLEL"
breaks lost "unmap: the translation before the entry" \
    "$one -DUNMAP_TRANSLATION_FIRST"
breaks lost "map: the entry before the flush" "$one -DMAP_ENTRY_FIRST"
breaks lost "map: no flush" "$one -DMAP_NO_FLUSH"
breaks lost "the check before the data" "$one -DCHECK_BEFORE_DATA"
breaks lost "the count is not bumped" "$one -DCOUNT_NOT_BUMPED"
breaks frame "swap-out returns before units in flight have landed" \
    "$one -DSWAP_OUT_NO_DRAIN"
breaks lost "unmap does not mark the page dirty" "$one -DNOT_MARKED_DIRTY"
breaks lost "FAULT before the attempt has returned" "$one -DFAULT_TOO_EARLY"
breaks lost "the target does not compare its entries" \
    "$one -DTARGET_NOT_COMPARED"
breaks lost "overlapping writes of one endpoint pass each other" \
    "-DTOUCHES=0 -DOVERLAP_PASSES"
breaks lost "copy on write leaves the entry" \
    "$one -DSWAPS=1 -DPROTECTS=1 -DPROTECT_KEEPS_ENTRY"
breaks read "no look for the signature" "$one -DREAD0 -DNO_SIGNATURE_CHECK"
breaks read "a look at the first unit alone" \
    "$one -DREAD0 -DSIGNATURE_OF_FIRST_UNIT"
breaks read "retry: entries read beside the data" \
    "$paged -DRETRY_MODE -DREAD0 -DCHECK_BEFORE_DATA"
breaks cycle "retry: judged by the signature, which the data is" \
    "$paged -DRETRY_MODE -DREAD0 -DOLD=1 -DRETRY_BY_SIGNATURE"
breaks lost "local entries not compared, write" "$paged -DLOCAL_NOT_COMPARED"
breaks read "local entries not compared, read" \
    "$paged -DREAD0 -DLOCAL_NOT_COMPARED"
breaks lost "local entries not compared from FAULT to DONE, write" \
    "$paged -DFAULT_LOCAL_NOT_COMPARED"
breaks read "local entries not compared from FAULT to DONE, read" \
    "$paged -DREAD0 -DFAULT_LOCAL_NOT_COMPARED"
breaks lost "local counts compared without the bits, write" \
    "$paged -DFAULT_LOCAL_COUNT_ONLY"
breaks read "local counts compared without the bits, read" \
    "$paged -DREAD0 -DFAULT_LOCAL_COUNT_ONLY"
breaks stuck "unmapping waits for holds" "$paged -DRECLAIMS=1 -DHOLDS_BLOCK"
breaks lost "the old queue pair is not drained" "$broken -DQP_NOT_DRAINED"
breaks lost "its reverse transfers are not drained" \
    "$broken -DQP_REVERSE_NOT_DRAINED"
breaks lost "epochs are not compared" "$broken -DEPOCH_NOT_COMPARED"
breaks lost "a flushed work request counts as done" "$broken -DFLUSHED_COUNTS"
breaks twice "a flag, by a write that is done again" "$flag"
breaks shown "a flag, straight from a page that is taken" \
    "$flag -DATTRIBUTES -DLOCAL_PAGE"
breaks twice "a flag, written again because its source has changed" \
    "$flag -DATTRIBUTES -DSKIPS_ABSENT -DLOCAL_PAGE -DALL_OF_IT_AGAIN"
breaks twice "a message sent again is executed again" \
    "$flag -DONCE0 -DQP_ERROR -DONCE_WITHOUT_NUMBER"

tap_done
