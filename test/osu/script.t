#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# contrib/osu.sh and what it shares with other scripts, in a small tree whose
# programs only say figures.
# The programs' own variables stand in single quotes
# shellcheck disable=SC2016
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

tree=$TAP_DIR/tree
osu=$tree/contrib/osu.sh
results=$tree/build/osu
export FAKE=$TAP_DIR/fake
export PATH=$FAKE/bin:$PATH

# program FILE: from standard input
program() {
    mkdir -p "${1%/*}"
    { echo '#!/bin/bash' && cat; } >"$1"
    chmod +x "$1"
}

make_tree() {
    mkdir -p "$tree/contrib" "$tree/osu-bench" "$FAKE"
    cp -r "$NPRDMA_SRC"/contrib/{osu.sh,lib.sh,bench.sh,bench} "$tree/contrib/"
    cp "$NPRDMA_SRC/osu-bench/plot.sh" "$tree/osu-bench/"
    echo : | program "$tree/contrib/setup.sh"
    echo : | program "$tree/contrib/ucx-source.sh"
    echo 'echo "all install clean: ; @:" >Makefile' |
        program "$tree/configure"
    echo 'echo "# UCT version=1.13.1"' | program "$FAKE/bin/ucx_info"
    echo 'exec "$@"' | program "$tree/build/install/bin/nprdma-run"
    program "$FAKE/bin/mpirun" <<'END'
[ "$1" != --version ] || { echo "mpirun (Open MPI) 4.1.4"; exit; }
until [[ $1 == */osu_* ]]; do shift; done
exec "$@"
END
    program "$FAKE/bin/mpirun.mpich" <<'END'
until [[ $1 == */osu-mpich/osu_* ]]; do shift; done
exec "$@"
END
    program "$FAKE/bin/mpicc.mpich" <<'END'
until [ "$1" = -o ]; do shift; done
echo x >>"$FAKE/compiled"
printf '%s\n' '#!/bin/bash' 'echo 1 3.00' 'echo 8 5' >"$2"
chmod +x "$2"
END
    echo 'echo "a page fault"' |
        program "$tree/build/install/libexec/nprdma/bench/paging"
    for name in latency bw; do
        # Of 8 bytes each run has another figure
        program "$tree/build/install/libexec/nprdma/osu/osu_$name" <<'END'
[[ " $* " != *" -c "* ]] || { echo Pass; exit; }
while [ -e "$FAKE/hold" ]; do : >"$FAKE/held"; sleep 0.1; done
echo x >>"$FAKE/runs"
echo "1 2.00"
echo "8 $(wc -l <"$FAKE/runs")"
END
    done
    chmod -R a+rX "$TAP_DIR"
}

# says PATTERN
says() {
    grep -qE -e "$1" "$TAP_OUT"
}

# wait_for COMMAND...: 20 s at most
wait_for() {
    local end=$((SECONDS + 20))
    until "$@"; do
        [ "$SECONDS" -lt "$end" ] || return 1
        sleep 0.1
    done
}

make_tree
run 60 "$osu" --rounds 1
tap_expect_success "osu.sh measures"
cp "$TAP_OUT" "$TAP_DIR/said"
tap_check "the head names device, CPU, date, commit and rounds" \
    says "^soft0, .*, $(date +%Y)-[0-9-]*, commit [^,]+, 1 round\$"
tap_check "one round is no rounds" says '^Median(s)? of 1 round\.'
tap_check "rows that noise made are measured again" \
    says '^again, spoilt by noise: 2 '
tap_check "a row that noise made is marked" says '^ +8 .*\*.*\*$'
tap_check "one that it did not make is not" says '^ +1 [^*]*$'
tap_check "and they are counted" \
    says 'tells nothing: 2 of the 4 rows'
tap_check "MPICH stands beside, where it is installed" \
    says '^ +size +nprdma +posix +ob1 +mpich +tcp +ratio +self +nprdma '
tap_check "with what it took" says '^ +1 +2\.00 +2\.00 +2\.00 +3\.00 '
tap_check "there was nothing to keep" test ! -e "$results/table.txt.old"
if command -v gnuplot >/dev/null; then
    tap_check "the plot's title is that head" grep -q 'commit .*, 1 round' \
        "$results/osu.svg"
    tap_check "MPICH is in it" grep -q mpich "$results/osu.svg"
else
    tap_skip "the plot's title" "no gnuplot"
fi

cp "$results/table.txt" "$TAP_DIR/first"
run 60 "$osu" --rounds 2
tap_check "programs for MPICH are made once" \
    [ "$(wc -l <"$FAKE/compiled")" = 3 ]
tap_check "two rounds are" says '^Medians of 2 rounds\.'
tap_check "a row that was measured again and is quiet is not marked" \
    says '^ +8 [^*]*$'
tap_check "the results before are kept" \
    cmp "$TAP_DIR/first" "$results/table.txt.old"
tap_check "which is said" says "^the results before are kept: $results/"

# The cores are far from each other after the first run: 15 looks, one before
# it, and this one
test_far() {
    local line=$tree/build/install/libexec/nprdma/bench/line
    program "$line" <<'END'
echo x >>"$FAKE/looks"
[ "$(wc -l <"$FAKE/looks")" = 17 ] && echo 150.0 || echo 50.0
END
    run 60 "$osu" --rounds 1
    tap_check "a run with the cores apart is made again" \
        says 'after a run, 1 runs were made again, 0 were kept'
    program "$line" <<'END'
echo "line: no CPU" >&2; exit 1
END
    run 60 "$osu" --rounds 1
    tap_expect_error "a line that cannot be measured is told" \
        "^osu.sh: .*/line failed"
    rm "$line"
}

tap_check "nothing goes wrong without a line to measure" \
    [ "$(grep -c 'integer' "$TAP_OUT")" = 0 ]
if [ "$(nproc)" -lt 2 ]; then
    tap_skip "runs with the cores apart" "there is only one CPU"
else
    test_far
fi

# A second one at once
: >"$FAKE/hold"
"$osu" --rounds 1 >"$TAP_DIR/first" 2>&1 &
first=$!
tap_check "one measures" wait_for test -e "$FAKE/held"
run 30 "$osu" --rounds 1
tap_expect_error "a second one is told so" \
    "^osu.sh: another osu.sh measures in $tree: "
tap_check "in one line" test "$(wc -l <"$TAP_OUT")" -eq 1
rm "$FAKE/hold"
if wait "$first"; then
    tap_ok "the first one ends well"
else
    tap_not_ok "the first one ends well" "$TAP_DIR/first"
fi

# A build directory of another user, or one that may not be written
as_other=()
if [ "$(id -u)" -eq 0 ]; then
    as_other=(setpriv --reuid "$(id -u nobody)" --regid "$(id -g nobody)"
        --clear-groups)
else
    chmod a-w "$tree/build"
fi
for script in osu bench; do
    run 30 "${as_other[@]}" "$tree/contrib/$script.sh"
    tap_expect_error "$script.sh in another user's tree says whose it is" \
        "^$script.sh: cannot write to $tree/build.* $(id -un)'s .*clone"
    tap_check "in one line" test "$(wc -l <"$TAP_OUT")" -eq 1
done
chmod u+w "$tree/build"

tap_done
