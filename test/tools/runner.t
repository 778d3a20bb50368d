#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# test/run-tests.sh, in a small tree.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

tree=$TAP_DIR/tree
build=$tree/build
log=$build/test-logs/small-good.t.log
runner=$tree/test/run-tests.sh
# Of the tests that run this one
unset NPRDMA_PREFIX GTEST_FILTER

# says PATTERN
says() {
    grep -qE -e "$1" "$TAP_OUT"
}

one_line() {
    tap_check "in one line" test "$(wc -l <"$TAP_OUT")" -eq 1
}

# program FILE: from standard input
program() {
    mkdir -p "${1%/*}"
    cat >"$1"
    chmod +x "$1"
}

mkdir -p "$build" "$tree/test"
cp "$NPRDMA_SRC/test/run-tests.sh" "$tree/test/"
touch "$build/Makefile"
program "$build/install/bin/nprdma-run" <<'END'
#!/bin/bash
exec "$@"
END
program "$tree/test/small/good.t" <<'END'
#!/bin/bash
echo "ok 1 - good"
echo "1..1"
END
program "$build/gtest_none" <<'END'
#!/bin/bash
echo "[  PASSED  ] 0 tests."
END
chmod -R a+rX "$TAP_DIR"

run 60 "$runner" --only 'small/*' "$build"
tap_check "a script runs" says '^small/good.t +1 passed, 0 failed'
tap_check "its output is where it is said" grep -q '^ok 1 - good' "$log"

# Nothing runs: the one cause, with what was asked for
run 60 "$runner" --only 'nosuch/*' "$build"
tap_expect_error "a name that nothing has" \
    "nothing ran: no name matches --only 'nosuch/\*'"
tap_check "has not to do with what is built" \
    test "$(grep -c check-programs "$TAP_OUT")" -eq 0
run 60 "$runner" --only 'gtest_none' "$build"
tap_expect_error "a program without a test" "what was started has no test"
rm "$build/gtest_none"
run 60 "$runner" --only 'gtest_*' "$build"
tap_expect_error "programs that are not built" \
    "none yet: make -C $build check-programs"

# What stays behind is a failure; what is skipped for one reason is one line
left=nprdma-runner-$$
program "$tree/test/small/bad.t" <<END
#!/bin/bash
echo left >/dev/shm/$left
sleep 60 >/dev/null 2>&1 &
echo "ok 1 - one: of two # SKIP no reason: none"
echo "ok 2 - two: of two # SKIP no reason: none"
echo "not ok 3 - third: of three"
echo "1..4"
END
run 60 "$runner" --only 'small/bad.t' "$build"
rm -f "/dev/shm/$left"
tap_check "a file that stays in /dev/shm is found" says "^    .*/dev/shm/$left"
tap_check "and a process" says 'process [0-9]+: sleep 60'
tap_check "which are a failure" says '^0 passed, 3 failed, 2 skipped'
tap_check "two skips with one reason are one line" \
    says 'small/bad.t: one: of two: no reason: none \(and 1 more\)$'
# The end alone says what failed
sed -i '1,/^failed:$/d' "$TAP_OUT"
tap_check "what failed is named at the end" \
    says '^    small/bad.t: third: of three$'
tap_check "and why a runner failed" says '^    small/bad.t: planned 4, ran 3$'
rm "$tree/test/small/bad.t"

# Commands: each has its name and its log, whatever is in them
program "$tree/say" <<'END'
#!/bin/bash
echo "$1 1 - number $2"
echo "1..1"
END
run 60 "$runner" --only '*say*' --tap "$tree/say 'not ok' 'a|b\1&'" \
    --tap "$tree/say ok two" "$build"
tap_check "both commands count" says '^2 passed, 1 failed, 0 skipped'
tap_check "and are named" \
    says "^    say 'not ok' 'a\|b.1&': number a\|b.1&\$"
tap_check "the log of the first is its own" grep -qF "not ok 1 - number a|b" \
    "$(sed -n 's/^ *whole output: //p' "$TAP_OUT")"

# Of another user: nothing of the run before is taken for this one's
as_other=()
if [ "$(id -u)" -eq 0 ]; then
    as_other=(setpriv --reuid "$(id -u nobody)" --regid "$(id -g nobody)"
        --clear-groups)
else
    chmod a-w "$build/test-logs"
fi
run 60 "${as_other[@]}" "$runner" --only 'small/*' "$build"
tap_expect_error "another user's build directory" \
    "^run-tests.sh: cannot write to $build/test-logs, .* $(id -un)'s \(you are "
one_line
if [ "$(id -u)" -eq 0 ]; then
    chmod a+w "$build/test-logs"
    run 60 "${as_other[@]}" "$runner" --only 'small/*' "$build"
    tap_check "one that all may write to, with a log of another user" \
        says '^small/good.t +1 passed, 0 failed'
    tap_check "which is replaced" test "$(stat -c %U "$log")" = nobody
else
    tap_skip "a directory that all may write to" "needs root"
    tap_skip "a log that is replaced" "needs root"
fi
chmod u+w "$build/test-logs"

tap_done
