#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 300 s
# nprdma-filed and nprdma-file by MUNGE: daemons of our own say who a client is,
# with one key and with another, with clocks that differ, and not at all.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

PATH=$PATH:/usr/sbin
MUNGE=$TAP_DIR/munge
declare -A MUNGED=()
port=$((20000 + ($$ % 20000)))
at=127.0.0.1
listen=(--listen "$at:$port")
token=$HOME/.config/nprdma/token
mkdir "$MUNGE"
trap 'kill -9 ${SERVER:+"$SERVER"} "${MUNGED[@]}" 2>/dev/null || true
    rm -rf "$TAP_DIR"' EXIT

# munged_start NAME KEY [VARIABLE...]: it listens on MUNGE/NAME
munged_start() {
    local name=$1 key=$MUNGE/key.$2
    shift 2
    [ -e "$key" ] || (umask 077 && head -c 128 /dev/urandom >"$key")
    env "$@" munged --foreground --num-threads 1 --origin "$at" \
        --key-file "$key" --socket "$MUNGE/$name" \
        --pid-file "$MUNGE/$name.pid" --log-file "$MUNGE/$name.log" \
        --seed-file "$MUNGE/$name.seed" >"$MUNGE/$name.out" 2>&1 &
    MUNGED[$name]=$!
    disown # it is killed at the end, of which nobody need hear
    wait_until 30 test -S "$MUNGE/$name" || cat "$MUNGE/$name.out" >&2
}

by() { # by NAME ARGUMENT...: as try, by that munged, and by no other way
    local name=$1
    shift
    try --port "$port" --auth munge --munge-socket "$MUNGE/$name" "$@"
}

filed() { # one that does not start
    run 30 "$NPRDMA_PREFIX/bin/nprdma-filed" "$@"
}

# Settings without effect
for program in "file ls $at:/" "filed ${listen[*]} $SHARE"; do
    # shellcheck disable=SC2086
    set -- ${program#* }
    run 10 "$NPRDMA_PREFIX/bin/nprdma-${program%% *}" --auth password "$@"
    tap_expect_error "${program%% *}: no such way" "token or munge is needed"
    tap_check "is wrong usage" test "$RC" = 2
done
try --auth token ls :
tap_expect_error "on this host the kernel says who it is" \
    "--auth needs a host before the colon"
filed --auth token "$SHARE"
tap_expect_error "and the server is told of no other" "--auth needs --listen"
try --munge-socket /none ls :
tap_expect_error "munged has no part in it" \
    "--munge-socket needs a host before the colon"
filed --munge-socket /none "$SHARE"
tap_expect_error "at the server as well" "--munge-socket needs --listen"
filed "${listen[@]}" --auth munge "$SHARE"
if grep -q 'was built without MUNGE' "$TAP_OUT"; then
    tap_expect_error "MUNGE is not built in" "--auth munge: this nprdma was"
    try --auth munge ls "$at:/"
    tap_expect_error "nor in the client" "--auth munge: this nprdma was built"
    try --munge-socket /none ls "$at:/"
    tap_expect_error "nor has it use for munged" "--munge-socket: this nprdma"
    server_start "${listen[@]}" "$SHARE"
    rm "$token"
    try --port "$port" ls "$at:/"
    tap_expect_error "a client without a token says so" \
        "nor from MUNGE: this nprdma was built without it"
    server_stop "it ends"
    tap_skip "MUNGE" "built without libmunge (package libmunge-dev)"
    tap_done
    exit
fi
try --auth munge --token /none ls "$at:/"
tap_expect_error "a token is of no use" "leave one of them out"
filed "${listen[@]}" --auth munge --token /none "$SHARE"
tap_expect_error "at the server as well" "leave one of them out"
try --auth token --munge-socket /none ls "$at:/"
tap_expect_error "munged is of no use" "leave one of them out"

for program in file filed; do
    # shellcheck disable=SC2016
    run 20 env PATH="$NPRDMA_PREFIX/bin:$PATH" bash -c '
        . "$0"
        COMP_WORDS=("nprdma-$1" --auth m) COMP_CWORD=2
        "_nprdma_$1"
        printf "<%s>\n" "${COMPREPLY[@]}"' \
        "$NPRDMA_PREFIX/share/bash-completion/completions/nprdma-file" \
        "$program"
    says "nprdma-$program: ways are completed" '^<munge>$'
done

# No munged
filed "${listen[@]}" --auth munge --munge-socket "$MUNGE/none" "$SHARE"
tap_expect_error "a server by MUNGE needs munged" \
    "--auth munge: Failed to access \"$MUNGE/none\""
echo here >"$SHARE/f"
server_start "${listen[@]}" --munge-socket "$MUNGE/none" "$SHARE"
tap_check "one by either does not, and names the token alone" \
    grep -q "clients with the token come to $at:$port" "$SERVER_OUT"
by none ls "$at:/"
tap_expect_error "a client by MUNGE needs it" \
    "no credential from MUNGE: Failed to access \"$MUNGE/none\""
try --port "$port" --munge-socket "$MUNGE/none" cat "$at:/f"
says "one that has the token does not" '^here$'
mv "$token" "$TAP_DIR/token"
try --port "$port" --munge-socket "$MUNGE/none" cat "$at:/f"
tap_expect_error "without both it hears of both" \
    "no token from '$token': .*; nor from MUNGE: Failed to access"
if ! command -v munged >/dev/null; then
    server_stop "the server ends"
    tap_skip "MUNGE" "munged is not installed (package munge)"
    tap_done
    exit
fi
munged_start here one
by here ls "$at:/"
tap_expect_error "the server's does not answer" \
    "munged on its host does not answer"
server_stop "it ends"

# With MUNGE
cp -p "$TAP_DIR/token" "$token"
server_start "${listen[@]}" --munge-socket "$MUNGE/here" "$SHARE"
tap_check "the server says that it takes both" \
    grep -q "the token, or a credential of MUNGE, come to" "$SERVER_OUT"
by here cat "$at:/f"
says "a client is let in by MUNGE" '^here$'
rm "$token"
try --port "$port" --munge-socket "$MUNGE/here" cat "$at:/f"
says "by itself, if it has no token" '^here$'
printf '%064d\n' 0 | install -m 600 /dev/stdin "$token"
try --port "$port" --munge-socket "$MUNGE/here" cat "$at:/f"
tap_expect_error "with one it takes that" "it has another token"
by here cat "$at:/f"
says "unless it is told" '^here$'
try --port "$port" --token "$TAP_DIR/none" --munge-socket "$MUNGE/here" \
    cat "$at:/f"
tap_expect_error "a token that is named must be there" \
    "no token from '$TAP_DIR/none': No such file"
try --port "$port" --auth token --token "$TAP_DIR/token" cat "$at:/f"
says "the token is good still" '^here$'
rm "$token"
try --port "$port" --auth token cat "$at:/f"
tap_expect_error "and is missed if it is asked for" "Copy the server's to there"
tap_check "without a word of MUNGE" test "$(grep -c MUNGE "$TAP_OUT")" = 0

# Credentials that are not good
munged_start other two
by other ls "$at:/"
tap_expect_error "a munged with another key" "its munged has another key"
shim=$(shim_path libfiles_clock)
munged_start later one LD_PRELOAD="$shim"
by later ls "$at:/"
tap_expect_error "one with a clock that is ahead" \
    "our credential of MUNGE is of its future"
run 60 "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/files_munge" "$port" \
    "$XDG_RUNTIME_DIR/nprdma-filed.sock" "$MUNGE/here"
sed 's/^/# /' "$TAP_OUT"
says "credentials for something else, and such as have been used" '^1\.\.'

# A server that is another one, and passes on what a client shows
python3 -c '
import socket, sys, threading
def pump(source, sink):
    try:
        while data := source.recv(4096):
            sink.sendall(data)
    finally:
        sink.shutdown(socket.SHUT_WR)
door = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
client = door.accept()[0]
server = socket.create_connection(("127.0.0.1", int(sys.argv[2])))
threading.Thread(target=pump, args=(client, server)).start()
pump(server, client)' $((port + 1)) "$port" >"$TAP_DIR/relay" 2>&1 &
relay=$!
wait_until 30 grep -qs ready "$TAP_DIR/relay"
try --port $((port + 1)) --auth munge --munge-socket "$MUNGE/here" ls "$at:/"
tap_expect_error "what is passed on is of no use" \
    "our credential of MUNGE is for another address"
kill "$relay" 2>/dev/null || true
wait "$relay" 2>/dev/null || true

# munged does not answer: nobody else waits for it
munged_start twin one
kill -STOP "${MUNGED[here]}"
"$NPRDMA_PREFIX/bin/nprdma-file" --port "$port" --auth munge \
    --munge-socket "$MUNGE/twin" cat "$at:/f" >"$TAP_DIR/late" 2>&1 &
client=$!
try --port "$port" --token "$TAP_DIR/token" cat "$at:/f"
says "one with a token comes in meanwhile" '^here$'
try cat :/f
says "and one of this host" '^here$'
kill -CONT "${MUNGED[here]}"
tap_check "and who has waited for munged" wait "$client"
tap_check "is served" grep -qx here "$TAP_DIR/late"
kill -STOP "${MUNGED[here]}"
by twin cat "$at:/f"
tap_expect_error "who has waited for too long is not" "timed out"
kill -CONT "${MUNGED[here]}"
by twin cat "$at:/f"
says "but later" '^here$'
kill -STOP "${MUNGED[here]}"
run 60 "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/files_munge" "$port" \
    "$XDG_RUNTIME_DIR/nprdma-filed.sock"
grep -v '^ok' "$TAP_OUT" | sed 's/^/# /'
says "more than may wait" '^1\.\.'
server_stop "the server ends, though munged does not answer"
kill -CONT "${MUNGED[here]}"

# A server that goes: its client shows itself anew
server_start "${listen[@]}" --munge-socket "$MUNGE/here" "$SHARE"
head -c 200000000 /dev/urandom >"$TAP_DIR/in"
file --port "$port" --auth munge --munge-socket "$MUNGE/here" \
    put "$TAP_DIR/in" "$at:/again" >"$TAP_DIR/client.out" 2>&1 &
client=$!
wait_until 30 test -s "$SHARE/again"
kill -9 "$SERVER"
wait "$SERVER" 2>/dev/null || true
server_start "${listen[@]}" --munge-socket "$MUNGE/here" "$SHARE"
tap_check "a client waits for a server that was killed" wait "$client"
sed 's/^/# /' "$TAP_DIR/client.out"
tap_check "and its copy is whole" cmp "$TAP_DIR/in" "$SHARE/again"
server_stop "it ends"

# One way alone
rm -f "$token"
server_start "${listen[@]}" --auth munge --munge-socket "$MUNGE/later" "$SHARE"
tap_check "a server by MUNGE alone says so" \
    grep -q "clients with a credential of MUNGE come to" "$SERVER_OUT"
tap_check "and makes no token" test ! -e "$token"
try --port "$port" --token "$TAP_DIR/token" ls "$at:/"
tap_expect_error "nor takes one" "it takes MUNGE alone"
by here ls "$at:/"
tap_expect_error "a clock that is behind" "MUNGE was too old when it came"
by later cat "$at:/f"
says "the same clock" '^here$'
server_stop "it ends"
server_start "${listen[@]}" --auth token --token "$TAP_DIR/token" "$SHARE"
by here ls "$at:/"
tap_expect_error "a server by tokens alone" "it takes no MUNGE, but its token"
try --port "$port" --token "$TAP_DIR/token" cat "$at:/f"
says "takes them" '^here$'
server_stop "it ends"

# Another user's server, and client
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    mkdir "$TAP_DIR/theirs"
    chown 65534 "$TAP_DIR/theirs"
    rm -f "$SERVER_OUT"
    setpriv --reuid 65534 --regid 65534 --clear-groups \
        "$NPRDMA_PREFIX/bin/nprdma-filed" "${listen[@]}" --auth munge \
        --munge-socket "$MUNGE/here" --socket "$TAP_DIR/theirs/socket" \
        "$TAP_DIR/theirs" >"$SERVER_OUT" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$SERVER_OUT"
    by here ls "$at:/"
    tap_expect_error "another user's server" \
        "it is user $(id -nu 65534) \(65534\), and serves nobody else"
    server_stop "it ends"
    server_start "${listen[@]}" --munge-socket "$MUNGE/here" "$SHARE"
    cp "$NPRDMA_BUILD/files_munge" "$TAP_DIR"
    run 60 setpriv --reuid 65534 --regid 65534 --clear-groups \
        "${RUN_PREFIX[@]}" "$TAP_DIR/files_munge" "$port" \
        "$XDG_RUNTIME_DIR/nprdma-filed.sock" "$MUNGE/here"
    sed 's/^/# /' "$TAP_OUT"
    says "another user is not let in" '^1\.\.1$'
    server_stop "it ends"
else
    tap_skip "another user's server, and client" "needs root and setpriv"
fi
tap_done
