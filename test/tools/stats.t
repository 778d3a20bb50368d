#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# nprdma_info --stats: the counters of a process, seen from outside.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
[ -x "$NPRDMA_BUILD/api_stats" ] ||
    tap_skip_all "no api_stats: make check-programs"

info=$NPRDMA_PREFIX/bin/nprdma_info

# expect NAME CODE PATTERN: the run ended with CODE and printed PATTERN
expect() {
    if [ "$RC" -eq "$2" ] && grep -qE -e "$3" "$TAP_OUT"; then
        tap_ok "$1"
    else
        echo "exit code $RC; wanted $2 and a line like: $3" >>"$TAP_OUT"
        tap_not_ok "$1" "$TAP_OUT"
    fi
}

# expect_error NAME CODE PATTERN: and that is the only line
expect_error() {
    expect "$@"
    tap_check "and no more" test "$(wc -l <"$TAP_OUT")" -eq 1
}

# wait_for COMMAND...: until it says yes, 10 s at most
wait_for() {
    local end=$((SECONDS + 10))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.02
    done
}

# server COMMAND...: started, tells its process id and perhaps a count. Ends
# with its input.
server() {
    coproc SERVER { exec "$@" 2>/dev/null; }
    exec {server_in}>&"${SERVER[1]}" {server_out}<&"${SERVER[0]}"
    eval "exec ${SERVER[0]}<&- ${SERVER[1]}>&-"
    read -r -t 30 pid count <&"$server_out"
}

server_end() {
    exec {server_in}>&- {server_out}<&-
    wait_for process_is_gone "$1"
}

process_is_gone() {
    ! kill -0 "$1" 2>/dev/null
}

# A process that counts
server "$NPRDMA_BUILD/api_stats" serve
run 20 "$info" --stats "$pid"
expect "the counters of a process" 0 \
    "^swap_outs +$count  notifications of pages that go away\$"
# awk's fields
# shellcheck disable=SC2016
tap_check "each in a line, aligned, with its text" \
    awk '!/^[a-z_]+ *[0-9]+  [^ ]/ || substr($0, 37, 3) !~ /^  [^ ]/ { bad = 1 }
         END { exit bad || NR < 20 }' "$TAP_OUT"
before=$count
echo >&"$server_in"
read -r -t 30 pid count <&"$server_out"
run 20 "$info" --stats "$pid"
expect "are those of the moment" 0 "^swap_outs +$((before + 1))  "
run 20 "$info" --stats
expect "it is in the list, with its command" 0 "^ *$pid api_stats\$"
tap_check "in which a process without nprdma is not" \
    test "$(grep -cE "^ *$$ " "$TAP_OUT")" -eq 0

# Again and again
rounds() {
    [ "$(grep -c '^swap_outs ' "$TAP_DIR/watch")" -ge "$1" ]
}
timeout 60 "$info" --stats "$pid" --watch 0.05 >"$TAP_DIR/watch" 2>&1 &
watch=$!
tap_check "--watch shows them again" wait_for rounds 3
echo >&"$server_in"
read -r -t 30 pid count <&"$server_out"
tap_check "and changes, for each second" wait_for grep -qE \
    "^swap_outs +$count +[1-9][0-9]*\.[0-9]/s  notif" "$TAP_DIR/watch"
tap_check "which are 0 where nothing changes" wait_for grep -qE \
    "^swap_outs +$count +0\.0/s  notif" "$TAP_DIR/watch"
tap_check "the process ends when it should" server_end "$pid"
if wait "$watch"; then
    tap_ok "--watch ends with the process"
else
    tap_not_ok "--watch ends with the process" "$TAP_DIR/watch"
fi
tap_check "and says so" \
    test "$(tail -n 1 "$TAP_DIR/watch")" = "process $pid has ended"
run 20 "$info" --stats "$pid"
expect_error "a process that has ended" 1 \
    "^nprdma_info: there is no process $pid\$"

server "$NPRDMA_BUILD/api_stats" serve
kill -KILL "$pid"
tap_check "a process is killed" server_end "$pid"
run 20 "$info" --stats "$pid"
expect_error "a process that was killed" 1 \
    "^nprdma_info: there is no process $pid\$"

# A zombie: the shell that would wait for it has become another program
# shellcheck disable=SC2016
server bash -c 'until [ "$(</proc/$$/comm)" = cat ]; do :; done & echo $!
                exec cat'
# Invoked by wait_for
# shellcheck disable=SC2317
is_zombie() {
    grep -qs ') Z ' "/proc/$1/stat"
}
tap_check "a process has ended, and nobody waits for it" \
    wait_for is_zombie "$pid"
run 20 "$info" --stats "$pid"
expect_error "it does not run either" 1 \
    "^nprdma_info: there is no process $pid\$"
server_end "$pid"

# Other processes
run 20 "$info" --stats "$$"
expect_error "a process without nprdma" 1 \
    "^nprdma_info: process $$ \(stats\.t\) does not use nprdma.*nprdma-run"

if [ "$(id -u)" -eq 0 ]; then
    # shellcheck disable=SC2119
    all=$(copy_for_all_users)
    run 20 setpriv --reuid "$(id -u nobody)" --regid "$(id -g nobody)" \
        --clear-groups "$all/prefix/bin/nprdma_info" --stats "$$"
    other=$$
else
    run 20 "$info" --stats 1
    other=1
fi
expect_error "a process of another user" 1 \
    "^nprdma_info: not permitted to look at process $other .*root.*uid 0"
if [ "$(id -u)" -eq 0 ]; then
    run 20 setpriv --inh-caps=-all --bounding-set=-all "$info" --stats "$$"
    expect_error "one of this user that the kernel protects" 1 \
        "^nprdma_info: not permitted to look at process $$ .*CAP_SYS_PTRACE"
else
    tap_skip "a process that the kernel protects" "needs root"
    tap_skip "and no more" "needs root"
fi

server "$NPRDMA_BUILD/api_stats" serve_same
run 20 "$info" --stats "$pid"
expect "a page as it should be" 0 '^reads +0  '
server_end "$pid"
for name in version fields; do
    server "$NPRDMA_BUILD/api_stats" "serve_$name"
    run 20 "$info" --stats "$pid"
    expect_error "a page of another version ($name)" 1 \
        "^nprdma_info: process $pid has version [0-9]+ .*use the nprdma_info"
    server_end "$pid"
done
for name in magic unsealed; do
    server "$NPRDMA_BUILD/api_stats" "serve_$name"
    run 20 "$info" --stats "$pid"
    expect_error "a page that is something else ($name)" 1 \
        "^nprdma_info: what process $pid shows .* is something else"
    server_end "$pid"
done

# Mistakes
for value in abc 12x 0 99999999999; do
    run 20 "$info" --stats "$value"
    expect_error "--stats $value" 2 \
        "^nprdma_info: --stats takes the number of a process, not '$value'"
done
run 20 "$info" --stats 2147483647
expect_error "a number that no process has" 1 "there is no process 2147483647"
for value in 0 -1 abc 1x nan ''; do
    run 20 "$info" --stats "$$" --watch "$value"
    expect_error "--watch '$value'" 2 \
        "^nprdma_info: --watch takes seconds, .* not '$value'"
done
run 20 "$info" --stats "$$" --watch
expect_error "--watch without a number" 2 "seconds is missing after '--watch'"
run 20 "$info" --watch 1
expect_error "--watch without a process" 2 "--stats PID is missing"
run 20 "$info" --stats --watch 1
expect_error "--stats without a process, with --watch" 2 \
    "--stats PID is missing"
run 20 "$info" --stats "$$" --check
expect_error "--stats with --check" 2 "--stats does not go with '--check'"

tap_done
