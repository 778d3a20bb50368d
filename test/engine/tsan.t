#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The engine's tests under ThreadSanitizer: its parts, whose threads map, unmap
# and scan, and the first interleavings of transfers, some of which have
# threads.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

# UCX's hooks of mmap() and the sanitizer's are in each other's way
export UCX_MEM_MMAP_HOOK_MODE=none
export TSAN_OPTIONS=halt_on_error=0

# What must be found, if it works here at all
cat > "$TAP_DIR/race.c" << 'END'
#include <pthread.h>
static int count;
static void *work(void *arg)
{
    ++count;
    return arg;
}
int main(void)
{
    pthread_t thread;
    pthread_create(&thread, 0, work, 0);
    ++count;
    pthread_join(thread, 0);
    return 0;
}
END
run 60 "${CC:-cc}" -g -fsanitize=thread -o "$TAP_DIR/race" "$TAP_DIR/race.c" \
    -lpthread
[ "$RC" -eq 0 ] || tap_skip_all "no ThreadSanitizer (${CC:-cc} -fsanitize=thread)"
run 60 "$TAP_DIR/race"
grep -q 'ThreadSanitizer: data race' "$TAP_OUT" ||
    tap_skip_all "ThreadSanitizer does not work here: $(tail -n 1 "$TAP_OUT")"

run 300 make -s -C "$NPRDMA_BUILD" test_engine_tsan test_race_tsan
if [ "$RC" -ne 0 ]; then
    tap_not_ok "the tests are built" "$TAP_OUT"
    tap_done
fi
tap_ok "the tests are built"

# races_in SECONDS NAME COMMAND...
races_in() {
    local name=$2

    run "$1" "${@:3}"
    tap_check "$name: they pass" [ "$RC" -eq 0 ]
    if grep -q 'WARNING: ThreadSanitizer' "$TAP_OUT"; then
        grep -A 40 'WARNING: ThreadSanitizer' "$TAP_OUT" | head -n 80 |
            sed 's/^/# /'
        tap_not_ok "$name: no race"
    else
        tap_ok "$name: no race"
    fi
}

races_in 120 "parts of the engine" "$NPRDMA_BUILD/test_engine_tsan"
races_in 180 "transfers, one setting" "$NPRDMA_BUILD/test_race_tsan" 1
tap_done
