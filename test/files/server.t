#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 300 s
# nprdma-filed and nprdma-file: what they copy is compared at the files
# themselves; clients and server are killed, cut off, lied to.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

# shellcheck source-path=SCRIPTDIR source=lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

random() { # FILE BYTES
    head -c "$2" /dev/urandom >"$1"
}

run 10 "$NPRDMA_PREFIX/bin/nprdma-file" ls :
tap_expect_error "without a server it says how to start one" \
    "no server runs here: start one with 'nprdma-filed DIRECTORY'"
run 10 "$NPRDMA_PREFIX/bin/nprdma-filed" "$TAP_DIR/none"
tap_expect_error "a directory that is not there" \
    "'$TAP_DIR/none' cannot be shared: No such file or directory"
server_start "$SHARE"
tap_check "a server starts" kill -0 "$SERVER"

# Copies
for size in 0 1 8 100 4095 4096 4097 65536 1000000 20000001 70000003; do
    random "$TAP_DIR/in" "$size"
    file put "$TAP_DIR/in" ":/f$size" >"$TAP_OUT" 2>&1 || true
    file get ":/f$size" "$TAP_DIR/out" >>"$TAP_OUT" 2>&1 || true
    file cat ":/f$size" >"$TAP_DIR/piped" 2>>"$TAP_OUT" || true
    tap_check "$size bytes are put" cmp "$TAP_DIR/in" "$SHARE/f$size"
    tap_check "and got" cmp "$TAP_DIR/in" "$TAP_DIR/out"
    tap_check "and written to a pipe" cmp "$TAP_DIR/in" "$TAP_DIR/piped"
done
file put - :/stdin <"$TAP_DIR/in"
tap_check "standard input is put" cmp "$TAP_DIR/in" "$SHARE/stdin"
random "$TAP_DIR/in" 1234
file put "$TAP_DIR/in" :/stdin
tap_check "a shorter one replaces it" cmp "$TAP_DIR/in" "$SHARE/stdin"
file --durable put "$TAP_DIR/in" :/durable
tap_check "one that is to be on the disk" cmp "$TAP_DIR/in" "$SHARE/durable"
truncate -s 1T "$SHARE/sparse"
try -j stat :/sparse
says "a sparse file of 1 TiB" '"size": 1099511627776'
rm "$SHARE/sparse"

cp "$SHARE/f4097" "$TAP_DIR/kept"
try get :/f4097 "$SHARE/f4097"
tap_expect_error "a file is not got in place of itself" "it is the same file"
try put "$SHARE/f4097" :/f4097
tap_expect_error "nor put" "it is the same file"
tap_check "and is as it was" cmp "$TAP_DIR/kept" "$SHARE/f4097"
file put /proc/version :/version
tap_check "a file that says that it is empty" cmp /proc/version "$SHARE/version"
printf 'one\ntwo\nthree\n' >"$TAP_DIR/three"
{
    read -r
    file put - :/rest
} <"$TAP_DIR/three"
tap_check "what is left of standard input" \
    test "$(cat "$SHARE/rest")" = $'two\nthree'

# Names
file mkdir :/dir
file put "$TAP_DIR/in" :/dir
tap_check "a copy goes into a directory" cmp "$TAP_DIR/in" "$SHARE/dir/in"
file mv :/dir/in :/dir/other
try ls :/dir
says "it is renamed" '^other$'
tap_check "and has no other name" test "$(ls "$SHARE/dir")" = other
(cd "$TAP_DIR" && file get :/dir/other)
tap_check "it is got by its own name" cmp "$TAP_DIR/in" "$TAP_DIR/other"
try rm -d :/dir
tap_expect_error "a directory that is not empty stays" "Directory not empty"
file rm :/dir/other
file rm -d :/dir
tap_check "an empty one goes" test ! -e "$SHARE/dir"
mkdir "$SHARE/many"
(cd "$SHARE/many" && seq 1 5000 | xargs touch)
tap_check "5000 names are listed" \
    test "$(file ls :/many | sort -n | md5sum)" = "$(seq 1 5000 | md5sum)"
try -l ls :/
says "a list tells sizes" ' 70000003 .* f70000003$'

# Appends: four at once, each line once, and whole
clients=()
for i in 1 2 3 4; do
    seq -f "client $i line %.0f of 500" 1 500 >"$TAP_DIR/lines$i"
    file --lines append "$TAP_DIR/lines$i" :/log >"$TAP_DIR/at$i" \
        2>"$TAP_DIR/why$i" &
    clients+=($!)
done
for i in 0 1 2 3; do
    wait "${clients[i]}" || sed "s/^/# client $((i + 1)), $?: /" \
        "$TAP_DIR/why$((i + 1))"
done
sort "$TAP_DIR"/lines? >"$TAP_DIR/wanted"
sort "$SHARE/log" >"$TAP_DIR/found"
tap_check "4 clients append 2000 lines" cmp "$TAP_DIR/wanted" "$TAP_DIR/found"
# each offset that was told is where a line begins, and none is told twice
sort -n "$TAP_DIR"/at? >"$TAP_DIR/at"
LC_ALL=C awk '{ print at + 0; at += length($0) + 1 }' "$SHARE/log" \
    >"$TAP_DIR/begins"
tap_check "and know where they are" cmp "$TAP_DIR/begins" "$TAP_DIR/at"
random "$TAP_DIR/in" 10000000
cp "$SHARE/log" "$TAP_DIR/wanted"
cat "$TAP_DIR/in" >>"$TAP_DIR/wanted"
file -q append "$TAP_DIR/in" :/log
tap_check "10 MB are appended at once" cmp "$TAP_DIR/wanted" "$SHARE/log"
head -c $((64 * 1048576 + 1)) /dev/zero >"$TAP_DIR/in"
try append "$TAP_DIR/in" :/log
tap_expect_error "more than 64 MiB are not" "more than 64 MiB"
tap_check "and nothing of it is" cmp "$TAP_DIR/wanted" "$SHARE/log"

# Out of the directory
echo secret >"$TAP_DIR/secret"
ln -s "$TAP_DIR/secret" "$SHARE/absolute"
ln -s ../secret "$SHARE/relative"
ln -s log "$SHARE/inside"
for path in /../secret /many/../../secret /absolute /relative; do
    try cat ":$path"
    tap_expect_error "$path leads nowhere" "leads out of the server's directory"
done
try put "$TAP_DIR/lines1" :/relative
tap_expect_error "nor is it written" "leads out of the server's directory"
tap_check "it is as it was" test "$(cat "$TAP_DIR/secret")" = secret
file get :/inside "$TAP_DIR/out"
tap_check "a link to the inside is followed" cmp "$SHARE/log" "$TAP_DIR/out"
mkfifo "$SHARE/pipe"
try cat :/pipe
tap_expect_error "a pipe is no file" "it is no file"

# Mistakes
try ls here
tap_expect_error "a path without a colon" "has a colon before it, as in ':here"
try put :/f1 :/f2
tap_expect_error "two of the server" "a file of this host is wanted"
try mv :/f1 other:/f2
tap_expect_error "of two servers" "both paths must be of one server"
try get :/f1 a b
tap_expect_error "too many" "one path too many: b"
try frobnicate :/
tap_expect_error "no such command" "there is no such command: frobnicate"
try cat :/none
tap_expect_error "no such file" "cannot read '/none': No such file"
try get :/many "$TAP_DIR/out"
tap_expect_error "a directory is not copied" "Is a directory"
try --wait soon ls :
tap_expect_error "no number" "a number of seconds is needed"
tap_check "wrong usage ends with 2" test "$RC" = 2
try --port 99999 ls x:
tap_expect_error "no port" "a port from 1 to 65535 is needed"
ln -s /nowhere "$SHARE/dangling"
try -l ls :
tap_expect_error "what cannot be shown is an error" "cannot look at"
rm "$SHARE/dangling"
name=$'a\xff\e"b'
touch "$SHARE/$name"
file --json ls : >"$TAP_DIR/json" 2>/dev/null || true # two links lead out
tap_check "any name is JSON" grep -qF '"a\udcff\u001b\"b"' "$TAP_DIR/json"
rm "$SHARE/$name"
run 10 "$NPRDMA_PREFIX/bin/nprdma-filed" "$SHARE"
tap_expect_error "a second server at the same socket" "is listened on already"
run 10 "$NPRDMA_PREFIX/bin/nprdma-filed" --listen 70000 "$SHARE"
tap_expect_error "no port of a server" "a port from 1 to 65535 is needed"
run 10 "$NPRDMA_PREFIX/bin/nprdma-filed" --clients 0 "$SHARE"
tap_expect_error "no clients" "a number from 1 to"
run 10 "$NPRDMA_PREFIX/bin/nprdma-filed"
tap_expect_error "no directory" "name the directory to share"

# Clients that lie, and clients that die
run 120 "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/files_liar" \
    "$XDG_RUNTIME_DIR/nprdma-filed.sock"
grep '^not ok\|^#' "$TAP_OUT" | sed 's/^/# /' || true
says "a client that lies gets nothing" "^1\.\."
find "$SHARE" -mindepth 1 -name 'r*' -not -name relative -delete
fds() { find "/proc/$SERVER/fd" -mindepth 1 | wc -l; }
few() { [ "$(fds)" -lt 200 ]; }
tap_check "nothing of it is left" wait_until 20 few
before=$(fds)
truncate -s 4G "$SHARE/large"
for i in $(seq 20); do
    "$NPRDMA_PREFIX/bin/nprdma-file" cat :/large >/dev/null 2>&1 &
    victim=$!
    sleep 0.$((RANDOM % 3))$((RANDOM % 10))
    kill -9 "$victim" 2>/dev/null || true
    wait "$victim" 2>/dev/null || true
done
# what is left of the last ones goes with the next
no_more() { [ "$(fds)" -le "$((before + 16))" ]; }
tap_check "nothing is left of 20 clients that were killed" \
    wait_until 30 no_more
echo "# $before descriptors before, $(fds) after"
rm "$SHARE/large"
tap_check "and the others are served" file ls :
rss=$(awk '/VmRSS/ { print $2 }' "/proc/$SERVER/status")
tap_check "the server has not grown ($rss KiB)" test "$rss" -lt 100000

# The server goes in the middle
random "$TAP_DIR/in" 300000000
file put "$TAP_DIR/in" :/again >"$TAP_DIR/client.out" 2>&1 &
client=$!
wait_until 30 test -s "$SHARE/again"
kill -9 "$SERVER"
wait "$SERVER" 2>/dev/null || true
sleep 0.5
server_start "$SHARE"
tap_check "a client waits for a server that was killed" wait "$client"
sed 's/^/# /' "$TAP_DIR/client.out"
tap_check "and its copy is whole" cmp "$TAP_DIR/in" "$SHARE/again"
rm "$TAP_DIR/out"
file get :/again "$TAP_DIR/out" >"$TAP_DIR/client.out" 2>&1 &
client=$!
wait_until 30 test -s "$TAP_DIR/out"
kill -9 "$SERVER"
wait "$SERVER" 2>/dev/null || true
rm "$SHARE/again"
echo another >"$SHARE/again"
server_start "$SHARE"
if wait "$client"; then
    tap_check "it was through before" cmp "$TAP_DIR/in" "$TAP_DIR/out"
else
    cp "$TAP_DIR/client.out" "$TAP_OUT"
    tap_check "another file of this name is not taken for it" \
        grep 'has another file of this name now' "$TAP_DIR/client.out"
fi
server_stop "a server that is stopped says nothing"
tap_check "its socket goes with it" \
    test ! -e "$XDG_RUNTIME_DIR/nprdma-filed.sock"

# Completion: names are nobody's commands
# shellcheck disable=SC2016
name='$(touch pwned)'
touch "$SHARE/with space" "$SHARE/$name"
server_start "$SHARE"
# shellcheck disable=SC2016
run 20 env -C "$TAP_DIR" PATH="$NPRDMA_PREFIX/bin:$PATH" bash -c '
    . "$0"
    COMP_LINE="nprdma-file get :/" COMP_WORDS=(nprdma-file get : /)
    COMP_CWORD=3
    _nprdma_file
    printf "<%s>\n" "${COMPREPLY[@]}"' \
    "$NPRDMA_PREFIX/share/bash-completion/completions/nprdma-file"
says "names of the server are completed" '^</with space>$'
tap_check "and none is run" test ! -e "$TAP_DIR/pwned"
rm "$SHARE/with space" "$SHARE/$name"
server_stop "it ends as well"

# As many clients as it may have, and other transports
server_start --threads 1 --clients 1 "$SHARE"
mkfifo "$TAP_DIR/lines"
file --lines append "$TAP_DIR/lines" :/held &
client=$!
exec 9>"$TAP_DIR/lines"
echo first >&9
wait_until 30 grep -qs first "$SHARE/held"
tap_check "lines are appended as they come" cmp <(echo first) "$SHARE/held"
try ls :
tap_expect_error "one more client" "it has as many clients as it may have"
exec 9>&-
wait "$client"
tap_check "then there is room" wait_until 30 file ls :
server_stop "it ends as well"
run 10 env UCX_TLS=tcp "$NPRDMA_PREFIX/bin/nprdma-filed" "$SHARE"
tap_expect_error "not over tcp" "UCX_TLS is 'tcp'"

# For reading
server_start --read-only "$SHARE"
file get :/f4097 "$TAP_DIR/out"
tap_check "a server for reading is read" cmp "$SHARE/f4097" "$TAP_DIR/out"
for command in "put $TAP_DIR/lines1 :/f1" "append $TAP_DIR/lines1 :/log" \
    "mkdir :/d" "rm :/f1" "mv :/f1 :/f2"; do
    # shellcheck disable=SC2086
    try $command
    tap_expect_error "and not changed: ${command%% *}" "shares it for reading"
done
server_stop "it ends as well"

# By a port, with a token
port=$((20000 + ($$ % 20000)))
server_start --listen "127.0.0.1:$port" "$SHARE"
token=$HOME/.config/nprdma/token
tap_check "a server makes a token" test -s "$token"
tap_check "that its user alone reads" test "$(stat -c %a "$token")" = 600
file -p "$port" get 127.0.0.1:/f20000001 "$TAP_DIR/out"
tap_check "a client that has it is served" \
    cmp "$SHARE/f20000001" "$TAP_DIR/out"
printf '%064d\n' 0 >"$TAP_DIR/wrong"
chmod 600 "$TAP_DIR/wrong"
try -p "$port" -t "$TAP_DIR/wrong" ls 127.0.0.1:/
tap_expect_error "one with another token is not" "it has another token"
cp "$token" "$TAP_DIR/open"
chmod 644 "$TAP_DIR/open"
try -p "$port" -t "$TAP_DIR/open" ls 127.0.0.1:/
tap_expect_error "nor one that lets others read it" "nobody else may read it"
try -p "$port" -t "$TAP_DIR/none" ls 127.0.0.1:/
tap_expect_error "nor one without" "no token from"
try -p 1 ls 127.0.0.1:/
tap_expect_error "nobody listens there" "no server listens there"
server_stop "it ends as well"

# A disk that is full
if [ "$(id -u)" -eq 0 ] && mkdir "$TAP_DIR/small" &&
    mount -t tmpfs -o size=4m small "$TAP_DIR/small" 2>/dev/null; then
    trap 'umount -l "$TAP_DIR/small"; [ -z "$SERVER" ] || kill -9 "$SERVER"
        rm -rf "$TAP_DIR"' EXIT
    server_start "$TAP_DIR/small"
    random "$TAP_DIR/in" 5000000
    try put "$TAP_DIR/in" :/large
    tap_expect_error "a file that is too large" "No space left on device"
    file rm :/large
    file -q append "$TAP_DIR/lines1" :/log
    try append "$TAP_DIR/in" :/log
    tap_expect_error "and an append" "No space left on device"
    tap_check "nothing of it is there" cmp "$TAP_DIR/lines1" \
        "$TAP_DIR/small/log"
    i=0
    head -c 300000 "$TAP_DIR/in" >"$TAP_DIR/part"
    while [ "$i" -lt 50 ] && file -q append "$TAP_DIR/part" :/parts \
        2>"$TAP_DIR/why"; do
        i=$((i + 1))
    done
    tap_check "appends go on until it is full" \
        grep -q 'No space left' "$TAP_DIR/why"
    tap_check "and each is whole ($i)" test "$(stat -c %s \
        "$TAP_DIR/small/parts")" = $((i * 300000))
    server_stop "the server lives on"
else
    tap_skip "a full disk" "needs root, to mount one"
fi

# Another user's
if [ "$(id -u)" -eq 0 ] && command -v setpriv >/dev/null; then
    as_nobody=(setpriv --reuid 65534 --regid 65534 --clear-groups)
    mkdir "$TAP_DIR/theirs"
    chmod 755 "$TAP_DIR"
    chown 65534 "$TAP_DIR/theirs"
    echo mine >"$TAP_DIR/theirs/root"
    chmod 600 "$TAP_DIR/theirs/root"
    rm -f "$SERVER_OUT"
    "${as_nobody[@]}" "$NPRDMA_PREFIX/bin/nprdma-filed" \
        --socket "$TAP_DIR/theirs/socket" "$TAP_DIR/theirs" \
        >"$SERVER_OUT" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$SERVER_OUT"
    try -s "$TAP_DIR/theirs/socket" ls :
    tap_expect_error "another user's server" "it is another user's"
    run 60 "${as_nobody[@]}" "$NPRDMA_PREFIX/bin/nprdma-file" \
        -s "$TAP_DIR/theirs/socket" cat :/root
    tap_expect_error "it reads what its user may" "Permission denied"
    server_stop "it ends as well"
else
    tap_skip "another user's server" "needs root and setpriv"
fi
tap_done
