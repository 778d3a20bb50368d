#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples of files that peers read: built as a user would, and run.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

export LD_LIBRARY_PATH=$NPRDMA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH=$NPRDMA_PREFIX/lib/pkgconfig
cc=$(command -v "${CC:-cc}" || true)
[ -n "$cc" ] || tap_skip_all "needs a compiler"
command -v pkg-config >/dev/null || tap_skip_all "needs pkg-config"
pkg-config --exists ucx || tap_skip_all "UCX has no ucx.pc here"

for name in share read; do
    # shellcheck disable=SC2046
    run 60 "$cc" -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror \
        -o "$TAP_DIR/$name" "$NPRDMA_SRC/examples/files/$name.c" \
        $(pkg-config --cflags --libs nprdma ucx)
    tap_expect_success "$name.c is compiled with what pkg-config says"
done

# share FILE TICKET: begins to share, as process $!
share() {
    "${RUN_PREFIX[@]}" "$TAP_DIR/share" "$1" "$2" >"$TAP_DIR/share.out" 2>&1 &
    wait_until 30 grep -q 'is shared' "$TAP_DIR/share.out"
    sed 's/^/# /' "$TAP_DIR/share.out"
}

peer() { # TICKET OFFSET LENGTH
    run 30 "${RUN_PREFIX[@]}" "$TAP_DIR/read" "$@"
}

file=$TAP_DIR/file
ticket=$TAP_DIR/ticket
seq 1000000 >"$file"
share "$file" "$ticket"
pid=$!

# part NAME OFFSET LENGTH: a peer reads what the file has there
part() {
    dd if="$file" of="$TAP_DIR/wanted" iflag=skip_bytes,count_bytes \
        skip="$2" count="$3" status=none
    timeout 30 "${RUN_PREFIX[@]}" "$TAP_DIR/read" "$ticket" "$2" "$3" \
        >"$TAP_DIR/found" 2>"$TAP_DIR/err" || true
    tap_check "$1" cmp "$TAP_DIR/wanted" "$TAP_DIR/found"
}

size=$(stat -c %s "$file")
part "a peer reads from the middle" 12345 100
part "and all of it" 0 "$size"
part "and the last bytes" $((size - 3)) 3
peer "$ticket" $((size - 3)) 4
tap_expect_error "one more is an error" "ucp_get_nbx"
echo "a line that came later" >>"$file"
part "the file has grown: its new end" "$size" 23
mv "$file" "$file.renamed"
file=$file.renamed
part "it has another name" 100 100
cp "$ticket" "$ticket.old"
kill "$pid"
tap_check "the owner ends when it is stopped" wait "$pid"
tap_check "and its ticket with it" test ! -e "$ticket"
peer "$ticket.old" 0 1
tap_expect_error "then there is nobody to ask" "read: "
run 30 "${RUN_PREFIX[@]}" "$TAP_DIR/share" "$TAP_DIR" "$ticket"
tap_expect_error "a directory is no file" "nprdma_file_bind: Invalid argument"
run 30 env UCX_TLS=self "$TAP_DIR/share" "$file" "$ticket"
tap_expect_error "without nprdma the owner says what to do" "nprdma-run"

# A key of another version is for nothing: it must not lead UCP to other ways
share "$file" "$ticket"
pid=$!
at=$(($(stat -c %s "$ticket") - 46))
printf '\377' | dd of="$ticket" bs=1 seek="$at" conv=notrunc status=none
peer "$ticket" 0 8
tap_expect_error "a key of another version is refused" "a file's key is damaged"
kill "$pid"
tap_check "and its owner lives on" wait "$pid"

# What it costs
script=$NPRDMA_SRC/contrib/bench-files.sh
tap_check "bench-files.sh measures" "$script" --quick \
    --prefix "$NPRDMA_PREFIX" --out "$TAP_DIR/bench"
# awk's own
# shellcheck disable=SC2016
tap_check "a key of 64 GiB takes at most 100 us" \
    awk '$1 == "key" && $2 == 65536 { exit !($4 <= 100) }
        END { if (NR == 0) exit 1 }' "$TAP_DIR/bench/files.txt"
grep '^a key' "$TAP_DIR/bench/table.txt" | sed 's/^/# /'
tap_check "and five sizes are put and got" \
    [ "$(grep -cE '^(get|put) ' "$TAP_DIR/bench/files.txt")" = 10 ]
run 10 "$script" --size 4
tap_expect_error "bench-files.sh: a wrong option" "'--size'"
run 10 "$script" --prefix /nowhere
tap_expect_error "bench-files.sh: nothing is installed there" "make install"
tap_done
