#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the seeds of a fuzz target into a directory: what an honest peer does,
# for the fuzzer to spoil. Usage: seeds.sh target|initiator DIRECTORY
set -euo pipefail

# Little endian, BYTES of NUMBER
number() {
    local i

    for ((i = 0; i < $1; ++i)); do
        # shellcheck disable=SC2059
        printf "\\x$(printf %02x $((($2 >> (8 * i)) & 255)))"
    done
}

# record OP A B C D, as in fuzz.h
record() {
    number 1 "$1"
    number 1 "$2"
    number 2 "$3"
    number 4 "$4"
    number 8 "$5"
}

# ours OFFSET, theirs OFFSET: as fuzz_address() takes them apart
ours() { echo $(($1 << 8)); }
theirs() { echo $((($1 << 8) | 3)); }

# Kinds of slots, as in wire.h
am=1 am_long=2 put=3 get=4 atomic=5 fault=6 share=7 segment=8

hello() {
    record 0 0 0 0 0  # a connection
    record 1 1 16 0 0 # CONNECT, with tables
    record 4 0 0 0 0  # progress
}

progress() { record 4 2 0 0 0; }

target_messages() {
    hello
    record 6 $am 8 0 0
    record 6 $am_long 64 128 0
    progress
    record 6 $put 100 0 "$(ours 4096)"
    record 6 $get 100 512 "$(ours 4196)"
    progress
    record 2 0 0 0 0
}

target_atomics() {
    local op

    hello
    for op in 0 1 2 3 4 5; do
        record 9 $atomic $op 0 "$(ours 64)"
        record $op 0 0 1 2
        record 9 $atomic $op 0 "$(ours 128)"
        record $op 0 5 1 2 # of 4 bytes, b is the size
    done
    progress
}

# target_fault FLAGS LENGTH
target_fault() {
    hello
    record 9 $fault 3 "$2" "$(ours 5000)"
    record 0 "$1" 0 0 "$(theirs 100)"
    progress
    record 3 1 1 0 0 # unmap a page of it
    record 9 $fault 4 "$2" "$(ours 5000)"
    record 0 "$1" 0 0 "$(theirs 100)"
    progress
}

target_share() {
    hello
    record 12 0 4096 32768 "$(ours 0)"
    record 0 0 $1 1 "$(theirs 0)"
    record 9 $share 0 0 0
    record 0 0 0 1 0
    progress
    record 9 $segment 0 0 1
    record 0 0 0 0 0
    progress
}

target_two() {
    hello
    record 16 0 0 0 0
    record 17 1 0 0 0
    progress
    record 22 $am 8 0 0
    record 29 0 0 64 255
    progress
}

initiator_connect() {
    record 4 1 0 0 0  # ACCEPT
    record 7 1 0 0 0  # progress
}

# initiator_ops KIND LENGTH: asked for, then answered
initiator_op() {
    record 0 "$1" 0 "$2" "$(ours 4096)"
    initiator_connect
    record 0 "$1" 1 "$2" "$(ours 8192)"
    record 7 0 0 0 0
    record 3 0 0 0 0 # all is read
    record 5 0 0 0 0 # of a slot: its status
    record 2 0 0 0 7 # an answer
    record 2 1 0 0 7
    record 7 3 0 0 0
    record 0 7 0 0 0 # flush
    record 7 3 0 0 0
}

# initiator_share KIND: all pages are there, and the target has done some chunks
initiator_share() {
    record 10 2 0 3 0
    record 0 6 0 8 0
    record 7 0 0 0 0
    initiator_connect
    record 0 "$1" 1 100000 "$(ours 4096)"
    record 6 4 0 2 0
    record 7 3 0 0 0
    record 10 2 0 0 0 # now none is there: chunks wait
    record 0 "$1" 1 100000 "$(ours 4096)"
    record 6 6 $((256 - 23)) 3 0 # it could not
    for i in 0 1 2 3 4; do
        record 2 $i 0 0 0
    done
    record 7 3 0 0 0
}

initiator_mapped() {
    record 10 2 0 3 0
    initiator_op "$1" 5000
    record 11 0 0 0 0
    initiator_op "$1" 300
}

initiator_key() {
    record 9 7 0 0 0
    record 4 2 0 0 0 # SEGMENT
    initiator_op 0 64
}

out=$2
mkdir -p "$out"
case $1 in
target)
    target_messages > "$out/messages"
    target_atomics > "$out/atomics"
    for flags in 0 1 2 3 4 5 11; do
        target_fault $flags 3000 > "$out/fault$flags"
    done
    target_fault 0 200000 > "$out/fault_long"
    target_share 0 > "$out/share_get"
    target_share 1 > "$out/share_put"
    target_two > "$out/two"
    ;;
initiator)
    for kind in 0 1 2 3 4 5 6; do
        initiator_op $kind 64 > "$out/op$kind"
        initiator_op $kind 9000 > "$out/long$kind"
    done
    initiator_share 0 > "$out/share0"
    initiator_share 1 > "$out/share1"
    for kind in 0 1 2 3 4 5; do
        initiator_mapped $kind > "$out/mapped$kind"
    done
    initiator_key > "$out/key"
    ;;
*)
    echo "seeds.sh: target or initiator wanted, not '$1'" >&2
    exit 2
    ;;
esac
