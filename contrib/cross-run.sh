#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# For cross.sh, in its root: builds for arm64, and runs what qemu-user can run.
# Usage: cross-run.sh UCX-SOURCE [PROGRAM...]
# shellcheck source-path=SCRIPTDIR
set -euo pipefail
# shellcheck source=lib.sh
. "$(dirname "$0")/lib.sh"

source=$1
shift
wanted=("$@")
build=$nprdma_top/build
list=$nprdma_top/test/engine/emulated.txt
emulator=qemu-aarch64-static
count=0
failed=0

# tap RESULT NAME
tap() {
    count=$((count + 1))
    echo "$1 $count - $2"
    [ "$1" = ok ] || failed=$((failed + 1))
}

# ucx_info is a program of arm64: where no kernel is told to run those by an
# emulator, somebody else has to
wrap_ucx_info() {
    mkdir -p "$build/tools"
    printf '#!/bin/sh\nexec %s /usr/bin/ucx_info "$@" 2>/dev/null\n' \
        "$emulator" >"$build/tools/ucx_info"
    chmod 755 "$build/tools/ucx_info"
    PATH=$build/tools:$PATH
}

# The GoogleTest programs are not run: what the compiler says of them is wanted
compile() {
    wrap_ucx_info
    nprdma_configure "$build" --host=aarch64-linux-gnu --enable-werror \
        --with-verbs=yes --with-mpi=no --with-ucx-source="$source" \
        CFLAGS=-O2 CXXFLAGS=-O0
    nprdma_install "$build" all check-programs
}

# judge PROGRAM CODE LOG: its TAP as part of ours. A test that the list names
# may fail, which is a skip then; if none of a line of the list has failed, the
# line is wrong.
judge() {
    awk -v program="$1" -v code="$2" -v count="$count" '
        function put(result, text) {
            print result " " ++count " - " program ": " text
            failures += result != "ok"
        }
        FNR == NR {
            if ($0 !~ /^(#|$)/ && split($0, part, "\t") == 3 &&
                part[1] == program) {
                names[++rules] = part[2]
                reasons[rules] = part[3]
            }
            next
        }
        /^1\.\.0/ {
            sub(/^1\.\.0[ #]*SKIP */, "")
            put("ok", "all # SKIP " $0)
            planned = 1
            next
        }
        /^1\.\.[0-9]+$/ { planned = 1; plan = substr($1, 4); next }
        /^(not )?ok [0-9]+/ {
            is_ok = /^ok/
            ++seen
            sub(/^(not )?ok [0-9]+ *-? */, "")
            for (i = 1; !is_ok && i <= rules; ++i) {
                if ($0 ~ names[i]) {
                    ++used[i]
                    $0 = $0 " # SKIP " reasons[i]
                    is_ok = 1
                    ++excused
                }
            }
            bad += !is_ok
            put(is_ok ? "ok" : "not ok", $0)
            next
        }
        { print "# " $0 }
        END {
            for (i = 1; i <= rules; ++i)
                if (!used[i] && reasons[i] !~ /^sometimes /)
                    put("not ok", "emulated.txt: nothing fails as " names[i])
            is_ok = planned && plan + 0 == seen + 0 && \
                    (code == 0 || (code == 1 && bad + excused > 0))
            put(is_ok ? "ok" : "not ok", "comes to its end (code " code \
                ", " seen + 0 " of " (planned ? plan + 0 : "?") " tests)")
            exit failures > 0
        }' "$list" "$3"
}

# run LIMIT PROGRAM [ARGUMENT...]
run() {
    local limit=$1 program=$2 log=$build/$2.log code=0
    shift 2
    if [ ${#wanted[@]} -gt 0 ] && [[ " ${wanted[*]} " != *" $program "* ]]
    then
        return 0
    fi
    (cd "$build" && timeout -k 5 "$limit" "$emulator" "./$program" "$@") \
        >"$log" 2>"$log.err" </dev/null || code=$?
    judge "$program" "$code" "$log" >"$build/tap" || failed=$((failed + 1))
    cat "$build/tap"
    count=$((count + $(grep -cE '^(not )?ok ' "$build/tap")))
    if grep -q '^not ok' "$build/tap"; then
        tail -n 30 "$log.err" | sed 's/^/# /'
    fi
}

# The plug-in in UCX of that processor
has_transport() {
    UCX_VFS_ENABLE=n "$build/install/bin/nprdma-run" "$emulator" \
        /usr/bin/ucx_info -d >"$build/ucx_info.log" 2>&1 &&
        grep -q 'Transport: nprdma' "$build/ucx_info.log"
}

compile >&2
tap ok "all is built for aarch64, without a warning"
if [ ${#wanted[@]} -eq 0 ]; then
    if has_transport; then
        tap ok "UCX for aarch64 has the transport"
    else
        tap 'not ok' "UCX for aarch64 has the transport"
        tail -n 25 "$build/ucx_info.log" | sed 's/^/# /'
    fi
fi
run 240 test_engine
run 120 test_race 4 # settings, and no mutants
run 60 test_sim --seconds 4
run 60 test_rows
echo "1..$count"
[ "$failed" -eq 0 ]
