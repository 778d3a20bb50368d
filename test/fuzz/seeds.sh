#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the seeds of a fuzz target into a directory: what an honest peer does,
# for the fuzzer to spoil.
# Usage: seeds.sh target|initiator|verbs|verbs-gets|descriptors|log DIRECTORY
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
am=1 am_long=2 put=3 get=4 atomic=5 fault=6 share=7 segment=8 wide=10

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
    record 0 0 "$1" 1 "$(theirs 0)"
    record 9 $share 0 0 0
    record 0 0 0 1 0
    progress
    record 9 $segment 0 0 1
    record 0 0 0 0 0
    progress
}

# All of the payload area, and what lies beyond its first part
target_wide() {
    hello
    record 6 $am_long 64 128 0
    progress
    record 9 $wide 0 0 0
    record 0 0 0 0 0
    progress
    record 6 $am_long 64 8192 0
    record 6 $put 100 4096 "$(ours 4096)"
    record 6 $get 100 12288 "$(ours 4196)"
    progress
    record 9 $wide 0 0 0 # once more
    record 0 0 0 0 0
    record 6 $am_long 64 128 0
    progress
}

# A row of requests of what is lent: some in their slots, one refused
target_lent() {
    local lent=$((1 << 24))

    hello
    record 6 $put 8 $lent "$(ours 64)"
    record 6 $get 8 $lent "$(ours 64)"
    record 6 $put 100 $((lent + 256)) "$(ours 4000)"
    record 6 $get 4000 $lent "$(ours 0)"
    progress
    record 6 $get 8 $lent "$(ours 64)"
    record 6 $put 8 $lent "$(theirs 64)"
    record 6 $get 8 $lent "$(ours 64)"
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

# Kinds of messages, as in vwire.h
v_am=0 v_put=1 v_read=2 v_write=3 v_ready=4 v_data=5 v_done=6 v_atomic=7
v_result=8 v_ack=9 v_bye=10 v_views=11

# verbs_say KIND BYTES NAME,LENGTH ADDRESS [VALUE]: to whom a link would say it
verbs_say() {
    record 11 "$1" "$2" "$3" "$4"
    record 0 0 0 0 "${5-0}"
}

# verbs_hear KIND BYTES NAME [STATUS]: what a link of ours is answered
verbs_hear() {
    record 14 "$1" "$2" "$3" 0
    record 0 0 $((${4-0} ? 1024 : 0)) "${4-0}" 0
}

verbs_served() {
    record 0 0 0 0 0 # a connection
    verbs_say $v_am 100 0 0
    verbs_say $v_put 64 0 "$(ours 4096)"
    verbs_say $v_atomic 0 1 "$(ours 64)" 5
    verbs_say $v_read 0 $((3 | (16384 << 8))) "$(ours 8192)"
    verbs_say $v_ready 0 $((3 | (16384 << 8))) "$(theirs 0)"
    verbs_say $v_write 0 $((4 | (16384 << 8))) "$(ours 8192)"
    record 10 0 0 4 0
    verbs_say $v_data 1000 4 0
    verbs_say $v_done 0 3 0
    verbs_say $v_views 0 0 "$(ours 0)"
    verbs_say $v_ack 0 0 0
    record 7 0 0 0 0   # its queue pair fails
    record 0 0 256 0 0 # another one
    verbs_say $v_bye 0 0 0
    record 4 3 0 0 0
}

# verbs_link KIND LENGTH ANSWER BYTES [STATUS]
verbs_link() {
    record 2 0 0 0 0 # a link
    record 0 1 0 0 0 # REPLY
    record 4 0 0 0 0
    record 6 "$1" 0 "$2" 4096
    verbs_hear "$3" "$4" 0
    verbs_hear $v_views 0 0
    verbs_hear $v_done 0 0
    verbs_hear $v_ack 0 0
    record 6 "$1" 0 "$2" 4096
    verbs_hear $v_done 0 0 "${5-255}"
    record 7 1 0 0 0
    record 0 1 0 0 0
    record 4 3 0 0 0
    record 2 1 0 0 0
}

# A status of a peer of which nothing is left in one byte
no_status=$((0xffffff00))

# verbs_answer KIND [WRONG VALUE]: of the handshake, which a link of ours hears
# first
verbs_answer() {
    record 2 0 0 0 0
    record 0 "$1" "${2-0}" 0 "${3-0}"
    record 6 0 0 0 0
    record 4 3 0 0 0
    record 6 0 0 0 0
}

# Gets of different lengths, answered in order
verbs_gets() {
    local len

    record 2 0 0 0 0
    record 0 1 0 0 0
    record 4 0 0 0 0
    for len in "$@"; do
        record 6 4 0 "$len" 4096
    done
    for len in "$@"; do
        verbs_hear $v_data $((len + 1)) 0
    done
    for len in "$@"; do
        record 6 4 0 "$len" 4096
        verbs_hear $v_data $((len + 1)) 0
    done
}

verbs_all_gets() {
    verbs_gets 1 64 300 > "$out/gets"
    verbs_module verbs_gets 400 8 16 > "$out/gets_module"
}

# sent OP TYPE COUNT KIND WRONG: descriptors of one kind. WRONG: of what the
# message says, as in fuzz_descriptors.c; 8 is more of them.
sent() {
    record "$1" "$2" $((($3 << 5) | ($5 & 7) | (($5 & 8) << 8))) \
        $(($4 * 0x01010101)) 0
}

# sent_kind KIND: in each message, to each end
sent_kind() {
    record 0 0 0 0 0      # an initiator, without the cookie
    sent 9 1 3 "$1" 2
    record 4 0 0 0 0
    record 0 0 0 0 0      # with it
    sent 9 1 3 "$1" 8
    record 4 0 0 0 0
    record 0 0 0 0 0      # a peer
    sent 9 $((1 | 0xe0)) 3 0 0
    record 4 0 0 0 0
    sent 9 4 1 "$1" 0
    record 6 0 0 0 0
    record 4 0 0 0 0
    record 17 0 0 0 0     # a target
    sent 25 2 2 "$1" 0
    record 4 0 0 0 0
    record 17 0 0 0 0
    sent 25 $((2 | 0xc0)) 2 0 0
    record 4 0 0 0 0
    sent 25 3 1 "$1" 0
    record 4 0 0 0 0
    record 33 0 0 0 0     # one that is left
    sent 41 2 2 "$1" 0
    record 35 0 0 0 0
    record 8 0 0 0 0      # a port that closes
    sent 0 1 3 "$1" 0
    record 6 0 0 0 0
}

# log_step OP A B TEXT: as in fuzz_log.c
log_step() {
    number 1 "$1"
    number 1 "$2"
    number 1 "$3"
    printf %s "$4"
}

# Records, one of them torn so that LACKS bytes are not written, and what comes
# after it
log_torn() {
    log_step 0 5 0 first
    log_step 1 9 "$1" $'torn \xf9log'
    log_step 0 5 0 later
    log_step 2 6 0 $'\xf9log\xf9l'
    log_step 0 4 0 last
}

log_copies() {
    log_step 0 5 0 first
    log_step 4 0 0 ""   # a record of nothing
    log_step 4 0 25 ""  # one of the log so far, or of a part
    log_step 4 7 60 ""
    log_step 3 0 40 ""  # a part of it once more
    log_step 5 3 1 ""   # a bit is changed
    log_step 3 30 90 ""
}

# the last byte says whether there is the kernel module
verbs_module() {
    "$@"
    number 1 1
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
    target_wide > "$out/wide"
    target_lent > "$out/lent"
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
verbs)
    verbs_served > "$out/served"
    verbs_module verbs_served > "$out/served_module"
    verbs_all_gets
    for kind in 0 1 2 3 4 5; do
        verbs_answer $kind > "$out/answer$kind"
        verbs_answer $kind 4 $no_status > "$out/no_status$kind"
    done
    for kind in 0 1 2 3 4 5 6 7 8; do
        verbs_link $kind 64 $v_data 65 > "$out/data$kind"
        verbs_link $kind 64 $v_result 0 > "$out/result$kind"
        verbs_link $kind 30000 $v_ready 0 > "$out/ready$kind"
        verbs_module verbs_link $kind 3000 $v_done 0 > "$out/module$kind"
        verbs_link $kind 30000 $v_ack 0 $no_status > "$out/status$kind"
    done
    ;;
verbs-gets)
    verbs_all_gets
    ;;
descriptors)
    for kind in $(seq 0 22); do # as in foreign.h, and one that has stopped
        sent_kind "$kind" > "$out/kind$kind"
    done
    ;;
log)
    for lacks in 0 1 2 3 7 9 12 20; do
        log_torn $lacks > "$out/torn$lacks"
    done
    log_copies > "$out/copies"
    ;;
*)
    echo "seeds.sh: target, initiator, verbs, verbs-gets, descriptors or log" \
        "wanted, not '$1'" >&2
    exit 2
    ;;
esac
