#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Sets up, builds, installs into build/install, and runs every test; the UCT
# and UCP suites also with AddressSanitizer and UndefinedBehaviorSanitizer.
# Arguments are those of test/run-tests.sh.
set -euo pipefail
# shellcheck source=contrib/lib.sh
. "$(dirname "$0")/lib.sh"

sanitized=(--sanitized "$nprdma_top/build-asan")
for argument in "$@"; do
    case $argument in
    -h | --help)
        sed -n '3,5s/^# //p' "$0"
        exec "$nprdma_top/test/run-tests.sh" --help
        ;;
    --quick)
        sanitized=()
        nprdma_setup=(--no-lab)
        ;;
    esac
done

"$nprdma_top/test/run-tests.sh" --try "$@"
nprdma_prepare build "all check-programs"
if [ ${#sanitized[@]} -gt 0 ]; then
    nprdma_prepare build-asan "all sanitized-programs" --with-mpi=no \
        --enable-asan --enable-ubsan
fi
exec "$nprdma_top/test/run-tests.sh" "${sanitized[@]}" "$@" \
    "$nprdma_top/build"
