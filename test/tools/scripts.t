#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The scripts of contrib say how they are used, and do nothing else if they are
# used wrongly.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

contrib=$NPRDMA_SRC/contrib

# What would install or fetch something says so in place of that
for name in apt-get dpkg-query sudo dpkg-source; do
    mkdir -p "$TAP_DIR/bin"
    printf '#!/bin/bash\necho "%s was called"\nexit 1\n' "$name" \
        >"$TAP_DIR/bin/$name"
    chmod +x "$TAP_DIR/bin/$name"
done
export PATH=$TAP_DIR/bin:$PATH

for name in setup ucx-compile-check ucx-source osu bench check; do
    script=$contrib/$name.sh
    run 20 "$script" --help
    tap_expect_success "$name.sh --help"
    tap_check "is its usage" grep -qE '^Usage: ' "$TAP_OUT"
    run 20 "$script" --foo
    tap_expect_error "$name.sh --foo" \
        "unknown (option|argument) '--foo'"
    tap_check "is one line" test "$(wc -l <"$TAP_OUT")" -eq 1
done
run 20 "$contrib/setup.sh" foo
tap_expect_error "setup.sh takes no argument" "unknown argument 'foo'"

tap_done
