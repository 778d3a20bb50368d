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

for name in setup ucx-compile-check ucx-source debian-source osu bench check \
    distro cross packages/deb packages/rpm; do
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
run 20 "$contrib/setup.sh" --list
tap_check "setup.sh lists what it would install" \
    grep -qx 'libucx-dev' "$TAP_OUT"
tap_check "the lab's packages too" grep -qx 'mmdebstrap' "$TAP_OUT"
run 20 "$contrib/setup.sh" --no-lab --list
tap_check "or without them" test -z "$(grep -x 'mmdebstrap' "$TAP_OUT")"

# distro NAME PATTERN ARGUMENT...: one line, and nothing is made
distro() {
    run 20 env NPRDMA_LAB_CACHE="$TAP_DIR/cache" "$contrib/distro.sh" "${@:3}"
    tap_expect_error "$1" "^[a-z-]*\.sh: $2"
    tap_check "is one line, and nothing is made" \
        test "$(wc -l <"$TAP_OUT")" -eq 1 -a ! -e "$TAP_DIR/cache"
}
distro "distro.sh wants a suite" "which Debian\? For example distro.sh trixie"
distro "and one only" "'foo' is one argument too many" trixie foo
distro "one that can be" "'Trixie13' is no suite of Debian" Trixie13
distro "a source that is one" "--ucx-source $TAP_DIR: no src/uct" trixie \
    --ucx-source "$TAP_DIR"
mkdir -p "$TAP_DIR/ucx/src/uct/api"
touch "$TAP_DIR/ucx/src/uct/api/version.h.in"
distro "one thing at a time" "--packages does not go with --built" trixie \
    --packages --built
distro "nothing that it would leave aside" \
    "--only does not go with --packages" trixie --packages --only foo
distro "no headers where they are not needed" "--built needs no headers" \
    trixie --built --ucx-source "$TAP_DIR/ucx"
distro "an option of the tests that there is" "unknown option '--foo'" trixie \
    --foo
distro "a pattern that something matches" "no name matches --only 'nosuch'" \
    trixie --only nosuch
run 20 "$contrib/packages/deb.sh" --ucx-source
tap_expect_error "deb.sh wants a directory" "--ucx-source needs a directory"
run 20 "$contrib/packages/rpm.sh" --out
tap_expect_error "and so does rpm.sh" "--out needs a directory"
run 20 "$contrib/check.sh" --only nosuch
tap_expect_error "check.sh: a pattern that matches nothing" "'nosuch'"
run 20 "$contrib/packages/try.sh"
tap_expect_error "try.sh leaves this system alone" "this changes the system"

tap_done
