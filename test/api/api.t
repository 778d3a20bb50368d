#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libnprdma: how programs are built with it, what it answers without an engine
# and with one, and the counters.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"

lib=$NPRDMA_PREFIX/lib/libnprdma.so.0
export LD_LIBRARY_PATH=$NPRDMA_PREFIX/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export PKG_CONFIG_PATH=$NPRDMA_PREFIX/lib/pkgconfig
cc=$(command -v "${CC:-cc}" || true)
cxx=$(command -v "${CXX:-c++}" || true)

# What is installed
readelf -d "$lib" >"$TAP_DIR/dynamic"
tap_check "the library is libnprdma.so.0" \
    grep -q 'SONAME.*\[libnprdma\.so\.0\]' "$TAP_DIR/dynamic"
cp "$TAP_DIR/dynamic" "$TAP_OUT"
if grep -q NEEDED "$TAP_OUT" && ! grep -qE 'NEEDED.*libuc[a-z]' "$TAP_OUT"; then
    tap_ok "it needs no UCX"
else
    tap_not_ok "it needs no UCX" "$TAP_OUT"
fi

# Functions that the header declares, that the library has, and that have a
# manual page are the same
headers=$NPRDMA_PREFIX/include/nprdma
sed -n 's/^[a-z].*[ *]\(nprdma_[a-z_]*\)(.*/\1/p' "$headers/nprdma.h" \
    "$headers/nprdma_file.h" |
    sort >"$TAP_DIR/declared"
nm -D --defined-only "$lib" | sed -n 's/.* T \([a-z_]*\)@.*/\1/p' |
    sort >"$TAP_DIR/defined"
tap_check "twenty functions are declared" \
    test "$(wc -l <"$TAP_DIR/declared")" -eq 20
tap_check "and exported, nothing else" \
    diff "$TAP_DIR/declared" "$TAP_DIR/defined"
man3=$NPRDMA_PREFIX/share/man/man3
while read -r name; do
    page=nprdma
    [[ $name != nprdma_file_* ]] || page=nprdma_file
    if [ "$(readlink -f "$man3/$name.3")" = \
        "$(readlink -f "$man3/$page.3")" ] &&
        grep -qE "^\.BI \"[a-z0-9_ ]+ [*]?$name\(" "$man3/$page.3"; then
        tap_ok "$name(3) is there and describes it"
    else
        tap_not_ok "$name(3) is there and describes it"
    fi
done <"$TAP_DIR/declared"

plugin=$(echo "$NPRDMA_PREFIX"/lib/nprdma/ucx-*/libuct_nprdma.so.0)
# AddressSanitizer has a symbol of its own for each
nm -D --defined-only "$plugin" | sed '/__odr_asan/d; s/^[^ ]* //' >"$TAP_OUT"
if [ "$(cat "$TAP_OUT")" = "D nprdma_extension_v1" ] ||
    [ "$(cat "$TAP_OUT")" = "R nprdma_extension_v1" ]; then
    tap_ok "the plug-in exports its table and nothing else"
else
    tap_not_ok "the plug-in exports its table and nothing else" "$TAP_OUT"
fi

# As programs are built with it
cat >"$TAP_DIR/user.c" <<'EOF'
#include <nprdma/nprdma.h>
#include <nprdma/nprdma_file.h>
static int swap_in(void *arg, void *va, size_t len, int write)
{
    return (arg == va) && (len > 0) && write;
}
int main(void)
{
    static char memory[4096];
    nprdma_swapper_t swapper;
    nprdma_counters_t counters;
    nprdma_file_t *file;
    swapper.swap_in = swap_in;
    swapper.arg     = memory;
    return (nprdma_notify_swap_out(memory, sizeof(memory)) != 0) ||
           (nprdma_register_swapper(memory, 4096, &swapper) == 0) ||
           (nprdma_set_order(NPRDMA_ORDER_BEFORE | NPRDMA_ORDER_AFTER) == 0) ||
           (nprdma_get_counters(&counters, sizeof(counters)) == 0) ||
           (nprdma_file_create(4096, &file) == 0) ||
           (nprdma_prefetch(memory, 1, NPRDMA_PREFETCH_WRITE) == 0);
}
EOF
cp "$TAP_DIR/user.c" "$TAP_DIR/user.cc"

# build_user NAME COMPILER SOURCE FLAG...
build_user() {
    local name=$1 compiler=$2 source=$3
    shift 3
    if [ -z "$compiler" ] || ! command -v pkg-config >/dev/null; then
        tap_skip "$name" "needs a compiler and pkg-config"
        return
    fi
    # shellcheck disable=SC2046
    run 60 "$compiler" "$@" -Wall -Wextra -Wpedantic -Werror \
        -o "$TAP_DIR/user" "$TAP_DIR/$source" \
        $(pkg-config --cflags --libs nprdma)
    if [ "$RC" -eq 0 ]; then
        run 20 "$TAP_DIR/user"
    fi
    tap_expect_success "$name"
}

build_user "a C99 program with what pkg-config says" "$cc" user.c -std=c99
build_user "a C++ program" "$cxx" user.cc -std=c++11
build_user "a C++20 program" "$cxx" user.cc -std=c++20

# Without an engine
run 20 "$NPRDMA_BUILD/api_alone" none
tap_expect_success "a process without an engine has the documented answers"
run_here 20 "$NPRDMA_BUILD/api_alone" none
tap_expect_success "also under nprdma-run"
if [ -n "$cc" ]; then
    echo 'const int nprdma_extension_v0 = 0;' |
        "$cc" -shared -fPIC -x c - -o "$TAP_DIR/other.so" \
            -Wl,-soname,libuct_nprdma.so.0
    run 20 env LD_PRELOAD="$TAP_DIR/other.so" "$NPRDMA_BUILD/api_alone" other
    tap_expect_success "a plug-in without the table"
    echo 'const unsigned nprdma_extension_v1[16] = {64};' |
        "$cc" -shared -fPIC -x c - -o "$TAP_DIR/short.so" \
            -Wl,-soname,libuct_nprdma.so.0
    run 20 env LD_PRELOAD="$TAP_DIR/short.so" "$NPRDMA_BUILD/api_alone" other
    tap_expect_success "a plug-in with a shorter table"
else
    tap_skip "a plug-in of another version" "needs a compiler"
fi

# With one (those that serve are for test/tools/stats.t)
for name in $("$NPRDMA_BUILD/api_engine" | grep -v '^serve'); do
    run_here 60 "$NPRDMA_BUILD/api_engine" "$name"
    tap_expect_success "with an engine: $name"
done

# The same counters from outside
coproc ENGINE { exec "${RUN_PREFIX[@]}" "$NPRDMA_BUILD/api_engine" serve; }
engine=$ENGINE_PID
exec {engine_in}>&"${ENGINE[1]}"
read -r -t 30 pid count <&"${ENGINE[0]}"
eval "exec ${ENGINE[1]}>&-"
run 20 "$NPRDMA_PREFIX/bin/nprdma_info" --stats "$pid"
tap_check "nprdma_info shows what the process counts" \
    grep -qE "^swap_outs +$count  " "$TAP_OUT"
exec {engine_in}>&-
tap_check "which goes on undisturbed" wait "$engine"

for name in $("$NPRDMA_BUILD/api_stats" | grep -v '^serve'); do
    run 60 "$NPRDMA_BUILD/api_stats" "$name"
    tap_expect_success "counters: $name"
done

tap_done
