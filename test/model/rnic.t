#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The protocol as an RNIC runs it, with a queue pair that fails at any moment,
# searched exhaustively by spin (docs/design/model.md): what must hold in every
# run, and deliberate faults that the search must find.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=search.sh
. "$(dirname "${BASH_SOURCE[0]}")/search.sh"

model=$NPRDMA_SRC/test/model/rnic.pml

# Two small puts of the same place
small="-DKIND0=SMALL -DKIND1=SMALL"
# Two messages
words="-DKIND0=WORD -DKIND1=WORD"
# One transfer whose local page is taken as well
paged="-DTRANSFERS=1 -DLOCAL_PAGE"
# The queue pair fails once; twice, and the page is taken once
broken="-DFAILURES=1"
twice="-DFAILURES=2 -DSWAPS=1"

# Statements that a search must have executed, or it has shown little
BYTES='sq?5,x'
FETCH='sq?8,x'
ATOMIC='sq?10,x'
ANSWER='sq?11,x'
LEASE='by_key = key[x]'
LEASE_OF_GET='answers?what,x,_,_'
RENEW='link_down = 1'

# What must hold
holds "put, put" "$broken" "$RENEW" "$LEASE"
holds "put, put, two failures" "$twice" "$RENEW" "$LEASE"
holds "put, put, by messages" "$broken -DBY_MESSAGES" "$RENEW" "$BYTES"
holds "put, get" "$broken -DKIND1=GET" "$RENEW" "$LEASE" "$LEASE_OF_GET"
holds "get, put" "$broken -DKIND0=GET" "$RENEW" "$LEASE" "$LEASE_OF_GET"
holds "get, put, by messages" "$broken -DKIND0=GET -DBY_MESSAGES" \
    "$RENEW" "$BYTES" "$FETCH"
holds "a put passes a get of another word" \
    "$broken -DKIND0=GET -DBASE1=1 -DSWAPS=1 -DTOUCHES=0" \
    "$RENEW" "$LEASE" "$LEASE_OF_GET"
holds "small puts of one place" "$broken $small" "$RENEW" "$BYTES"
holds "the same, two failures" "$twice $small" "$RENEW" "$BYTES"
holds "small puts of two places" "$broken $small -DBASE1=1 -DSWAPS=1" \
    "$RENEW" "$BYTES"
holds "small put, put" "$broken -DKIND0=SMALL" "$RENEW" "$BYTES" "$LEASE"
holds "atomic, put" "$broken -DKIND0=ATOMIC" "$RENEW" "$ATOMIC" "$ANSWER"
holds "put, atomic" "$broken -DKIND1=ATOMIC" "$RENEW" "$ATOMIC" "$ANSWER"
holds "atomic, atomic, two failures" "$twice -DKIND0=ATOMIC -DKIND1=ATOMIC" \
    "$RENEW" "$ATOMIC" "$ANSWER"
holds "leases alone: put, put, two failures" "$twice -DNO_VIEWS" \
    "$RENEW" "$LEASE"
holds "leases alone: get, put, two failures" "$twice -DNO_VIEWS -DKIND0=GET" \
    "$RENEW" "$LEASE" "$LEASE_OF_GET"
holds "put, fence, message" "$broken -DKIND1=AM -DFENCE" "$RENEW" "$LEASE"
holds "small put, fence, message" "$broken -DKIND0=SMALL -DKIND1=AM -DFENCE" \
    "$RENEW" "$BYTES"
holds "put by message, put" "$broken -DKIND0=WORD" "$RENEW" "$BYTES" "$LEASE"
holds "puts by message, two failures" "$twice $words" "$RENEW" "$BYTES"
holds "put by message, atomic" "$broken -DKIND0=WORD -DKIND1=ATOMIC" \
    "$RENEW" "$BYTES" "$ANSWER"
holds "put by message, put with a lease" "$broken -DKIND0=WORD -DNO_VIEWS" \
    "$RENEW" "$BYTES" "$LEASE"
holds "local page is taken, put" "$paged $broken -DSWAPS=1" "$RENEW" "$LEASE"
holds "local page is taken, get" "$paged $broken -DSWAPS=1 -DKIND0=GET" \
    "$RENEW" "$LEASE_OF_GET"

ends "put, put" "$broken -DSWAPS=1"
ends "small puts of one place" "$broken $small -DSWAPS=1"
ends "leases alone: get, put" "$broken -DSWAPS=1 -DNO_VIEWS -DKIND0=GET"

# What must not hold. Names as in src/nprdma/pause.h, where it has the fault,
# too.
breaks right "confirmed by the bit, without the count" "-DCOUNT_NOT_BUMPED"
breaks right "unmap: the translation before the entry" \
    "-DUNMAP_TRANSLATION_FIRST"
breaks right "map: the entry before the flush" "-DMAP_ENTRY_FIRST"
breaks right "a put counts whatever the entry says" "-DWRITE_UNCONFIRMED"
breaks right "so does a small put" "$small -DWRITE_UNCONFIRMED"
breaks value "the signature is taken for data" "-DKIND1=GET -DREAD_UNCHECKED"
breaks right "local entries not compared, put" "$paged -DLOCAL_UNCHECKED"
breaks value "local entries not compared, get" \
    "$paged -DKIND0=GET -DLOCAL_UNCHECKED"
breaks right "a small put that a later one has replaced counts as there" \
    "$small -DBATCH_COUNTS_OLDER"
breaks right "it ends when that one goes again, not when it is there" \
    "$small -DBEHIND_ENDS_EARLY"
breaks older "overlapping puts pass each other" "-DORDER_IGNORED"
breaks value "a put passes a get of the same word" \
    "-DKIND0=GET -DORDER_IGNORED"
breaks older "a put passes one that is a message" \
    "-DKIND0=WORD -DMESSAGE_OVERTAKEN"
breaks fence "a fence lets pass" "-DKIND1=AM -DFENCE -DFENCE_LETS_PASS"
breaks once "a message of the old queue pair is taken" \
    "$broken $words -DANSWER_OF_ANOTHER"
breaks left "an answer of the old queue pair is taken" \
    "$broken -DNO_VIEWS -DANSWER_OF_ANOTHER"
breaks lease "a key of the old queue pair is taken" \
    "$broken -DNO_VIEWS -DKEY_OF_ANOTHER"
breaks lease "a lease is given back before its write is done" \
    "-DKIND0=GET -DNO_VIEWS -DLEASE_TOO_EARLY"
breaks lease "a lease is given back before the queue pair is destroyed" \
    "$broken -DNO_VIEWS -DLEASE_OUTLIVES"
breaks lease "the old queue pair is not drained: leases" \
    "$broken -DNO_VIEWS -DQP_NOT_DRAINED"
breaks older "the old queue pair is not drained: views" \
    "$broken $small -DQP_NOT_DRAINED"
breaks once "what was taken goes again" "$broken $words -DREPLAY_TAKEN"
breaks once "what was not taken does not go again: a put is said to be there" \
    "$broken $words -DREPLAY_LOSES"
breaks stuck "the same: a put is never answered" \
    "$broken -DKIND0=WORD -DREPLAY_LOSES"
breaks once "an atomic that was taken is executed again" \
    "$broken -DKIND0=ATOMIC -DTRANSFERS=1 -DATOMIC_AGAIN"

tap_done
