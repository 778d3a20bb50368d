#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Runs all tests of a build directory and adds up what they say.
set -euo pipefail

src=$(cd "$(dirname "$0")/.." && pwd)
only=
quick=no
try=no
sanitized=
build=
extra=()
passed=0 failed=0 skipped=0 matched=0
limit=${NPRDMA_TEST_TIMEOUT:-600}

usage() {
    cat <<'END'
Usage: run-tests.sh [OPTION...] BUILD
Runs the GoogleTest programs BUILD/gtest_* and the TAP scripts test/*/*.t.

  --only PATTERN    only runners whose name matches (a shell pattern), such as
                    'tools/*', '@(docs|tidy)/*', 'gtest_uc[pt]'
  --quick           leave out sanitizers, applications, the lab and kmod
  --sanitized DIR   also the GoogleTest programs and test_sim of this sanitizer
                    build
  --tap COMMAND     also this command, which prints TAP; its name is the
                    command without the directory of its program
  --try             look at the other options, and run nothing

NPRDMA_PREFIX is what is tested (default: BUILD/install), NPRDMA_TEST_TIMEOUT
bounds each runner, in seconds (default: 600; a script may have a line "# Time
limit: N s" instead). GTEST_FILTER works as usual. What each runner
printed stays in BUILD/test-logs.
END
}

die() {
    echo "run-tests.sh: $*" >&2
    exit 2
}

while [ $# -gt 0 ]; do
    case $1 in
    --only | --sanitized | --tap)
        [ $# -ge 2 ] || die "$1 needs a value: run-tests.sh --help"
        case $1 in
        --only) only=$2 ;;
        --sanitized) sanitized=$2 ;;
        --tap) extra+=("$2") ;;
        esac
        shift
        ;;
    --quick) quick=yes ;;
    --try) try=yes ;;
    -h | --help)
        usage
        exit 0
        ;;
    -*) die "unknown option '$1': run-tests.sh --help shows what there is" ;;
    *) build=$1 ;;
    esac
    shift
done

# tap_name COMMAND: of --tap
tap_name() {
    local program=${1%% *}
    echo "${program##*/}${1#"$program"}"
}

# What --only may match, whatever is built; one name a line
known_names() {
    local script command
    sed -n 's|^check_PROGRAMS += \(gtest_.*\)|\1|p' \
        "$src/test/gtest/Makefile.inc" | tr ' ' '\n' | sed 'p; s|^|sanitized/|'
    echo sanitized/test_sim
    for script in "$src"/test/*/*.t; do
        echo "${script#"$src"/test/}"
    done
    for command in "${extra[@]}"; do
        tap_name "$command"
    done
}

if [ "$try" = yes ]; then
    while read -r name; do
        # shellcheck disable=SC2053
        [[ $name != ${only:-*} ]] || exit 0
    done < <(known_names)
    die "no name matches --only '$only': names are those of test/*/*.t" \
        "without test/, such as tools/info.t, gtest_uct, gtest_ucp, and what" \
        "--tap has"
fi
[ -n "$build" ] || die "no build directory: run-tests.sh [OPTION...] BUILD"
[ -f "$build/Makefile" ] || die "$build is no build directory: configure first"

build=$(cd "$build" && pwd)
logs=$build/test-logs
mkdir -p "$logs" 2>/dev/null || true
dir=$logs
[ -e "$dir" ] || dir=$build
[ -w "$dir" ] ||
    die "cannot write to $dir, which is $(stat -c %U "$dir")'s (you are" \
        "$(id -un)): run the tests as that user, or in a build directory of" \
        "your own"
work=$(mktemp -d)
touch "$work/skips" "$work/failures"
runner=
trap 'rm -rf "$work"' EXIT
# timeout(1) hands the signal on to all of its runner
trap '[ -z "$runner" ] || kill "$runner"; exit 143' INT TERM HUP

export NPRDMA_BUILD=$build NPRDMA_SRC=$src
export NPRDMA_PREFIX=${NPRDMA_PREFIX:-$build/install}
# Tells our processes from those of others, afterwards
export NPRDMA_TEST_RUN=$$-$RANDOM

# UCX built with a file system has a thread for it from the moment it is
# loaded. A child that is forked while that maps memory waits for ever.
export UCX_VFS_ENABLE=n

[ -x "$NPRDMA_PREFIX/bin/nprdma-run" ] ||
    die "$NPRDMA_PREFIX/bin/nprdma-run is missing: make install first"

# Both parsers print "PASSED FAILED SKIPPED" and then one line for each skip,
# failure and problem, with a tab between the parts: "skip NAME REASON",
# "bad NAME", "fail TEXT".
parse_gtest() {
    awk -v code="$1" '
        function number(   i) {
            for (i = 1; i <= NF; ++i) if ($i ~ /^[0-9]+$/) return $i
            return 0
        }
        / Skipped$/                        { getline reason; next }
        /^\[ RUN      \]/                  { ++started; reason = "" }
        /^\[       OK \]/                  { ++ok }
        /^\[  SKIPPED \] .*ms\)$/ {
            ++skipped
            text = text "skip\t" $4 "\t" \
                   (reason == "" ? "no reason given" : reason) "\n"
        }
        /^\[  FAILED  \] .*ms\)$/ {
            ++failed
            name = substr($0, 14); sub(/ \([0-9]+ ms\)$/, "", name)
            text = text "bad\t" name "\n"
        }
        /^\[  PASSED  \] [0-9]+ test/      { summary = 1; total = number() }
        END {
            if (!summary) {
                ++failed
                text = text "fail\tdied without a summary\n"
            } else if (total != ok) {
                ++failed
                text = text "fail\tthe summary counts " total \
                       " passed, the lines " ok + 0 "\n"
            }
            if (code != 0 && !failed) {
                ++failed
                text = text "fail\texit code " code "\n"
            }
            printf "%d %d %d\n%s", ok, failed, skipped, text
        }' "$2"
}

parse_tap() {
    awk -v code="$1" '
        /^1\.\.0/ {
            sub(/^1\.\.0[ #]*(SKIP|skip)? */, "")
            plan = 0; planned = 1; ++skipped
            text = text "skip\tall\t" ($0 == "" ? "no reason given" : $0) "\n"
            next
        }
        /^1\.\.[0-9]+/                     { planned = 1; plan = substr($1, 4) }
        /^not ok/ {
            ++seen; ++failed
            name = $0; sub(/^not ok *[0-9]* *-? */, "", name)
            text = text "bad\t" name "\n"
            next
        }
        /^ok.*# *(SKIP|skip)/ {
            ++seen; ++skipped
            name = $0; sub(/^ok *[0-9]* *-? */, "", name)
            reason = name; sub(/ *#.*/, "", name)
            sub(/.*# *(SKIP|skip) */, "", reason)
            text = text "skip\t" name "\t" \
                   (reason == "" ? "no reason given" : reason) "\n"
            next
        }
        /^ok/                              { ++seen; ++ok }
        END {
            if (!planned) {
                ++failed
                text = text "fail\tdied without a plan\n"
            } else if (plan + 0 != seen + 0) {
                ++failed
                text = text "fail\tplanned " plan ", ran " seen + 0 "\n"
            }
            if (code != 0 && !failed) {
                ++failed
                text = text "fail\texit code " code "\n"
            }
            printf "%d %d %d\n%s", ok, failed, skipped, text
        }' "$2"
}

# What failed, with the lines that belong to it
show_failures() {
    local kind=$1 log=$2
    if [ "$kind" = gtest ]; then
        awk '/^\[ RUN      \]/ { block = "" }
             { block = block $0 "\n" }
             /^\[  FAILED  \] .*ms\)$/ { printf "%s", block; block = "" }
             /^\[       OK \]|^\[  SKIPPED \]/ { block = "" }' "$log"
    else
        awk '/^not ok/ { show = 1 } /^ok/ { show = 0 } show' "$log"
    fi | head -n 200 | sed 's/^/    | /'
}

# run KIND NAME COMMAND...
run() {
    local kind=$1 name=$2 log code=0 start=$SECONDS ok bad skip
    shift 2
    # shellcheck disable=SC2053
    if [ -n "$only" ] && [[ $name != $only ]]; then
        return 0
    fi
    matched=$((matched + 1))
    log=$logs/${name//[\/ ]/-}.log
    # Nothing of an earlier run may be taken for this one's
    rm -f "$log"
    : >"$log" || die "cannot write $log"
    printf '%-28s ' "$name"
    timeout -k 10 "$limit" "$@" >"$log" 2>&1 </dev/null &
    runner=$!
    wait "$runner" || code=$?
    runner=
    "parse_$kind" "$code" "$log" >"$work/result"
    read -r ok bad skip <"$work/result"
    if [ "$code" -eq 124 ] || [ "$code" -eq 137 ]; then
        bad=$((bad > 0 ? bad : 1))
        printf 'fail\tended after %d s (limit %d s)\n' \
            $((SECONDS - start)) "$limit" >>"$work/result"
    fi
    echo "$ok passed, $bad failed, $skip skipped ($((SECONDS - start)) s)"
    passed=$((passed + ok))
    failed=$((failed + bad))
    skipped=$((skipped + skip))
    # The name goes by the environment, which awk takes as it is
    name=$name awk -F '\t' -v OFS='\t' '
        $1 == "skip" { $1 = ENVIRON["name"]; print }
    ' "$work/result" >>"$work/skips"
    name=$name awk -F '\t' '
        $1 == "bad" || $1 == "fail" {
            print "    " ENVIRON["name"] ": " substr($0, length($1) + 2)
        }' "$work/result" >>"$work/failures"
    if [ "$bad" -gt 0 ]; then
        sed -n 's/^fail\t/    /p' "$work/result"
        show_failures "$kind" "$log"
        if grep -q '^fail' "$work/result"; then
            tail -n 30 "$log" | sed 's/^/    > /'
        fi
        echo "    whole output: $log"
    fi
}

# gtest_of DIRECTORY LABEL PREFIX
run_gtests() {
    local dir=$1 label=$2 prefix=$3 program
    for program in "$dir"/gtest_*; do
        if [ -f "$program" ] && [ -x "$program" ]; then
            run gtest "$label${program##*/}" "$prefix/bin/nprdma-run" "$program"
        fi
    done
}

# LeakSanitizer fails every program where it may not trace
find_leaks() {
    local program
    for program in "$sanitized"/gtest_*; do
        timeout 60 "$program" --gtest_list_tests || return 1
    done
}

run_all() {
    local script command own
    run_gtests "$build" "" "$NPRDMA_PREFIX"
    for script in "$src"/test/*/*.t; do
        if [ ! -x "$script" ] ||
            { [ "$quick" = yes ] &&
                [[ $script == */test/apps/* || $script == */test/lab/* ||
                    $script == */test/kmod/* ]]; }; then
            continue
        fi
        own=$(sed -n '/^#/!q; s/^# Time limit: \([0-9]*\) s.*/\1/p' "$script")
        limit=${own:-$limit} run tap "${script#"$src"/test/}" "$script"
    done
    for command in "${extra[@]}"; do
        run tap "$(tap_name "$command")" bash -c "cd '$src' && $command"
    done
    if [ -n "$sanitized" ] && [ "$quick" = no ]; then
        # The stub that nprdma-run preloads comes before the sanitizer, and
        # needs nothing of it
        export ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=1
        export UBSAN_OPTIONS=print_stacktrace=1
        if ! find_leaks >/dev/null 2>&1; then
            echo "leaks are not looked for: no ptrace permission here"
            ASAN_OPTIONS=verify_asan_link_order=0:detect_leaks=0
        fi
        run_gtests "$sanitized" sanitized/ "$sanitized/install"
        if [ -x "$sanitized/test_sim" ]; then # built with libibverbs
            run tap sanitized/test_sim "$sanitized/test_sim" --seconds 8
        fi
    fi
}

# Processes of this run that still live
our_processes() {
    local file pid
    for file in $(grep -slzxF "NPRDMA_TEST_RUN=$NPRDMA_TEST_RUN" \
        /proc/[0-9]*/environ 2>/dev/null || true); do
        pid=${file#/proc/}
        pid=${pid%/environ}
        # That grep itself is in the list, and gone
        if [ -e "/proc/$pid/exe" ]; then
            echo "$pid"
        fi
    done
}

# New files that no process uses: others may work on this machine meanwhile.
# Open MPI 5 leaves its own (sm_segment) where a rank was killed.
our_shm_files() {
    local file
    find /dev/shm -type f ! -name 'sm_segment.*' | sort |
        comm -13 "$work/shm" - |
        while read -r file; do
            if ! grep -sqF " $file" /proc/[0-9]*/maps &&
                ! find /proc/[0-9]*/fd -lname "$file" 2>/dev/null |
                grep -q .; then
                echo "$file"
            fi
        done
}

check_leftovers() {
    local tries pids='' files='' pid
    for ((tries = 0; tries < 50; ++tries)); do
        pids=$(our_processes)
        files=$(our_shm_files)
        if [ -z "$pids$files" ]; then
            echo "1..1"
            echo "ok 1 - no process and no file in /dev/shm is left"
            return 0
        fi
        sleep 0.1
    done
    echo "1..1"
    echo "not ok 1 - left over:"
    for pid in $pids; do
        echo "# process $pid: $(tr '\0' ' ' <"/proc/$pid/cmdline" || true)"
        kill -KILL "$pid" 2>/dev/null || true
    done
    for file in $files; do
        echo "# $file"
    done
    return 1
}

# One line, with the one cause
why_nothing() {
    local made=
    if [ "$matched" -gt 0 ]; then
        echo "run-tests.sh: nothing ran: what was started has no test" \
            "(GTEST_FILTER='${GTEST_FILTER-}')"
        return
    fi
    compgen -G "$build/gtest_*" >/dev/null ||
        made=", and has none yet: make -C $build check-programs"
    echo "run-tests.sh: nothing ran: no name matches --only '$only'; names" \
        "are those of test/*/*.t without test/, such as tools/info.t," \
        "gtest_* of $build$made, and what --tap has"
}

find /dev/shm -type f | sort >"$work/shm"
run_all
ran=$((passed + failed + skipped))
if [ "$ran" -gt 0 ]; then
    only=
    check_leftovers >"$work/leftovers" || true
    run tap leftovers cat "$work/leftovers"
fi

# Lines of runner, name and reason: those of a runner with one reason are one
show_skips() {
    awk -F '\t' '
        {
            key = $1 FS $3
            if (++count[key] == 1) {
                order[++keys] = key
                first[key] = "    " $1 ": " $2 ": " $3
            }
        }
        END {
            for (i = 1; i <= keys; ++i) {
                key = order[i]
                print first[key] (count[key] > 1 ? " (and " count[key] - 1 \
                      " more)" : "")
            }
        }' "$work/skips"
}

if [ -s "$work/skips" ]; then
    echo "skipped:"
    show_skips
fi
# Last, beside the line that counts: who sees but the end sees what it is about
if [ -s "$work/failures" ]; then
    echo "failed:"
    awk 'NR <= 50 { print }
         END { if (NR > 50) print "    and " NR - 50 " more" }' \
        "$work/failures"
fi
if [ "$ran" -eq 0 ]; then
    why_nothing >&2
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ] && [ "$ran" -gt 0 ]
