#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Numbers that documents and the code have in common; prints TAP. That the code does
# as it says is tested elsewhere (test/engine/test_process.c).
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

source=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)

# defined NAME FILE
defined() {
    sed -n "s/^#define $1  *\([0-9]*\)$/\1/p" "$source/src/nprdma/$2"
}

# says DOCUMENT WHAT NUMBER: wherever it says how many WHAT, it is that many
says() {
    local found

    found=$(grep -oiE "[a-z0-9]+ (file )?$2" "$source/$1" |
        sed 's/ .*//' | sort -u | tr '\n' ' ')
    echo "$1: '$found', $3 wanted" > "$TAP_OUT"
    tap_check "$1: $3 $2" [ "$found" = "$3 " ]
}

peer=$(defined NP_SOCK_FDS dev/soft/sock.h)
worker=$(defined NP_PORT_FDS dev/soft/port.h)
for document in README.md docs/operations.md docs/user-guide.md \
    docs/man/nprdma.7 docs/man/nprdma_info.1 src/nprdma/dev/soft/sock.h; do
    says "$document" "descriptors for each peer" "$peer"
done
for document in docs/operations.md docs/user-guide.md; do
    says "$document" "for each worker" "$worker"
done
says docs/man/nprdma.7 "for each UCX worker" "$worker"

tap_done
