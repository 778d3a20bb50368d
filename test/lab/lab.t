#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 2400 s (on a new machine it makes the guests' root and kernels)
# The lab itself, and its jobs; prints TAP.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
lab=$here/lab
self=$here/selftest
# Run directories are ours alone, so that we see what is left
export TMPDIR=$TAP_DIR
export NPRDMA_LAB_UP=$TAP_DIR/up
results=$NPRDMA_BUILD/test-logs/lab
mkdir -p "$results"

# mistake NAME PATTERN ARGUMENT...: one line, exit code 2
mistake() {
    local name=$1 pattern=$2
    shift 2
    run 30 "$lab" "$@"
    if [ "$RC" -eq 2 ] && [ "$(wc -l <"$TAP_OUT")" -eq 1 ] &&
        grep -qE -e "$pattern" "$TAP_OUT"; then
        tap_ok "a mistake is one line: $name"
    else
        echo "exit code $RC" >>"$TAP_OUT"
        tap_not_ok "a mistake is one line: $name" "$TAP_OUT"
    fi
}

# jobs SECONDS ARGUMENT...: of lab run --tap; its lines become ours
jobs() {
    local line
    run "$1" "$lab" run --tap --out "$results" "${@:2}"
    grep -E '^(ok|not ok|#) ' "$TAP_OUT" >"$TAP_DIR/lines" || true
    while read -r line; do
        case $line in
        ok*) TAP_COUNT=$((TAP_COUNT + 1)) ;;
        not*)
            TAP_COUNT=$((TAP_COUNT + 1))
            TAP_FAILED=$((TAP_FAILED + 1))
            ;;
        esac
        sed -E "s/^(ok|not ok) [0-9]+/\\1 $TAP_COUNT/" <<<"$line"
    done <"$TAP_DIR/lines"
    if ! grep -q '^1\.\.' "$TAP_OUT"; then
        tap_not_ok "jobs ran to the end: ${*:2}" "$TAP_OUT"
    fi
}

# code NAME WANTED TEXT: the exit code that a job of the self-test had
code() {
    local is
    is=$(cat "$results/$1/code" 2>/dev/null || echo none)
    tap_check "$3 (exit code $2)" test "$is" = "$2"
}

# guests: the processes of guests that were started from here
guests() {
    grep -alsF "$TAP_DIR/nplab." /proc/[0-9]*/cmdline |
        while read -r file; do
            if [[ $(readlink "${file%/cmdline}/exe") == *qemu* ]]; then
                echo "$file"
            fi
        done
}

# until_true TENTHS COMMAND...
until_true() {
    local tries=$1
    shift
    while ! "$@"; do
        tries=$((tries - 1))
        [ "$tries" -gt 0 ] || return 1
        sleep 0.1
    done
}

no_guests() {
    [ -z "$(guests)" ]
}

nothing_left() {
    no_guests && ! compgen -G "$TAP_DIR/nplab.*" >/dev/null
}

is_up() {
    compgen -G "$TAP_DIR/nplab.*/share/g1/out/job-*" >/dev/null
}

is_booting() {
    [ -n "$(guests)" ]
}

mistakes() {
    mistake "an unknown command" "unknown command 'fly': lab --help" fly
    mistake "an unknown job" "no job 'nosuch'.*--list" run nosuch
    mistake "no job" "which job" run
    mistake "an unknown option" "unknown option '--wings'" run --wings x
    mistake "a value that is missing" "needs a value" run --guests
    mistake "a number that is none" "guests is a number" \
        exec --guests two true
    mistake "an unknown kernel" "no kernel '2.4'" exec --kernel 2.4 true
    mistake "no such build tree" "no build directory /nonexistent" \
        run --build /nonexistent soft0-mpi
    mistake "a build tree without an installation" "make install" \
        run --build "$TAP_DIR" soft0-mpi
    mistake "no guests up" "no guests are up" exec --up true

    mkdir "$TAP_DIR/bin" "$TAP_DIR/empty"
    printf '#!/bin/sh\nprintf "%%s\\n" "F 1M U A" "x 9 9 9 9%% /"\n' \
        >"$TAP_DIR/bin/df"
    chmod 755 "$TAP_DIR/bin/df"
    run 30 env PATH="$TAP_DIR/bin:$PATH" NPRDMA_LAB_CACHE="$TAP_DIR/empty" \
        "$lab" prepare
    tap_check "a disk that is full is one line" \
        grep -qxE 'lab: no room for root: .* needs [0-9]+ MB: .*' "$TAP_OUT"
    mkdir "$TAP_DIR/without"
    ln -s /usr/bin/* "$TAP_DIR/without/"
    rm -f "$TAP_DIR/without/qemu-system-x86_64"
    run 30 env PATH="$TAP_DIR/without" "$lab" prepare
    tap_check "no QEMU is one line" grep -qx \
        'lab: qemu-system-x86_64 is missing: .*' "$TAP_OUT"
    run 30 env NPRDMA_LAB_CACHE="$TAP_DIR/empty" "$lab" clean
    tap_check "clean removes the cache" test ! -e "$TAP_DIR/empty"
    run 30 "$lab" run --list
    tap_check "run --list names all jobs" test \
        "$(grep -c '^[a-z0-9-]* *[^ ]' "$TAP_OUT")" -eq \
        "$(find "$here/jobs" -type f | wc -l)"
}

# Each way to end: its code, and that those after it have their turn
verdicts() {
    run 300 "$lab" run --quiet --out "$results" --env "SETTING=a b" \
        "$self"/{fail,pass,warning,expected,missing,hang} \
        -- one "two words"
    tap_check "several jobs end with the first code that is not 0" \
        test "$RC" -eq 7
    code fail 7 "a job's exit code comes back"
    code pass 0 "a job that is well passes"
    tap_check "a job's arguments reach it" \
        grep -qxF "arguments: one two words" "$results/pass/output"
    tap_check "a job's environment and results come and go" \
        grep -qxF "a b" "$results/pass/setting"
    tap_check "what a job writes into the tree stays in its guest" \
        test ! -e "$self/scribble"
    code warning 97 "a warning in the kernel's log fails a job"
    code expected 0 "one that is expected does not"
    code missing 97 "an expected line that does not come fails a job"
    code hang 124 "a job that hangs is stopped at its time limit"
    tap_check "what it was doing then is kept" \
        grep -q 'sleep 1000' "$results/hang/processes.1"

    run 200 "$lab" run --quiet --out "$results" "$self/peer-dies"
    tap_check "a guest that dies ends the job at once (exit code 98)" \
        test "$RC" -eq 98
    tap_check "its panic is in the kernel's log" \
        grep -q 'Kernel panic' "$results/peer-dies/kernel.2"
    tap_check "nothing is left" until_true 50 nothing_left
}

# ending NAME SIGNAL CONDITION LEFT: lab gets a signal when the condition
# holds. SIGINT is not ignored, as it is for a shell's background commands.
ending() {
    local name=$1 pid
    env --default-signal=INT setsid "$lab" exec --quiet -- sleep 1000 \
        >"$TAP_OUT" 2>&1 </dev/null &
    pid=$!
    tap_check "$name: a guest runs" until_true 1200 "$3"
    kill "-$2" "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    tap_check "$name: nothing is left" until_true 100 "$4"
}

making() {
    pgrep -f "mmdebstrap .*$TAP_DIR/half/"
}

not_making() {
    ! making && ! compgen -G "$TAP_DIR/half/.new-*"
}

# An interrupt while the root is made
making_ends() {
    local pid
    NPRDMA_LAB_CACHE=$TAP_DIR/half env --default-signal=INT setsid \
        "$lab" prepare >"$TAP_OUT" 2>&1 </dev/null &
    pid=$!
    tap_check "a root is being made" until_true 600 making
    kill -INT "$pid" 2>/dev/null || true
    wait "$pid" 2>/dev/null || true
    tap_check "an interrupt then: nothing is left" until_true 100 not_making
}

# Guests that stay, while others come and go on the same machine
together() {
    printf '#!/bin/sh\n[ -e "%s" ] && exec %s "$@"\n: >"%s"\n' \
        "$TAP_DIR/tried" "$(command -v qemu-system-x86_64)" \
        "$TAP_DIR/tried" >"$TAP_DIR/bin/qemu-system-x86_64"
    chmod 755 "$TAP_DIR/bin/qemu-system-x86_64"
    rm "$TAP_DIR/bin/df"
    run 200 env PATH="$TAP_DIR/bin:$PATH" "$lab" up
    tap_expect_success "guests come up and stay"
    tap_check "a guest that dies at once was tried again" \
        grep -q 'guest 1 died before it was up' "$TAP_OUT"
    "$lab" exec --quiet --out "$TAP_DIR/other" -- \
        bash -c 'echo >/root/other; ls /root' >"$TAP_DIR/other.out" 2>&1 &
    local other=$!
    run 60 "$lab" exec --up --quiet -- bash -c 'touch /root/first'
    tap_expect_success "a command in guests that are up"
    run 60 "$lab" exec --up --quiet -- ls /root
    tap_check "they are the same guests" grep -qx first "$TAP_OUT"
    wait "$other" || true
    tap_check "others beside them have a guest of their own" \
        diff <(echo other) "$TAP_DIR/other.out"
    run 60 "$lab" run --up --quiet --out "$results" "$self/fail"
    tap_check "a job in guests that are up" test "$RC" -eq 7
    run 30 "$lab" down
    tap_check "down stops them: nothing is left" until_true 50 nothing_left
}

mistakes
run 900 "$lab" prepare
if [ "$RC" -eq 77 ]; then
    tap_skip "guests" "$(tail -n 1 "$TAP_OUT")"
    tap_done
    exit
fi
tap_expect_success "root and kernel are made"
making_ends
verdicts
ending "an interrupt" INT is_up nothing_left
ending "an end by SIGKILL" KILL is_booting no_guests
together

# SHORT=yes: shares of the suites, and of what others of these have as well; all
# of a job: lab run JOB
jobs 1300 --env SHORT=yes rxe-pingpong ucx-one soft0-mpi verbs-engine zram \
    memory-limit verbs-uct verbs-ucp
# Other scenes of the last: lab run verbs-faults-two
jobs 1100 --env SHORT=yes --env "SCENES=loss beyond kill" \
    rxe-two ucx-two mpi-two verbs-soft0 verbs-files verbs-faults-two
jobs 500 verbs-swap
jobs 600 --env SHORT=yes rxe-dmabuf verbs-kmod
jobs 500 --env SHORT=yes iommu-on iommu-pt verbs-iommu
jobs 300 verbs-path -- tag-8 tags-8 am-8
run 300 "$lab" prepare --kernel 6.12
if [ "$RC" -eq 77 ]; then
    tap_skip "kernel 6.12" "$(tail -n 1 "$TAP_OUT")"
else
    tap_expect_success "kernel 6.12 is made"
    jobs 500 --kernel 6.12 rxe-pingpong zram
fi
tap_check "nothing is left" until_true 50 nothing_left
tap_done
