#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The protocol of entries and checks, searched exhaustively by spin
# (docs/design/model.md): what must hold in every run, and deliberate faults
# that the search must find.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=search.sh
. "$(dirname "${BASH_SOURCE[0]}")/search.sh"

model=$NPRDMA_SRC/test/model/transfer.pml

# Statements that a search must have executed, or it has shown little
FAULT='ctl!x,0,epoch'
RETRY='ctl!x,1,epoch'
COPY='ctl!x,2,epoch'
ONCE='ctl!x,3,epoch'
AGAIN='rounds = (rounds+1)'
REPLACE='wanted = (epoch+1)'

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
