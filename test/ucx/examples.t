#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The examples that come with UCX: what others begin with. They are compiled
# from where the distribution has put them.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"
# shellcheck source-path=SCRIPTDIR source=pair.sh
. "$(dirname "${BASH_SOURCE[0]}")/pair.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
examples=/usr/share/doc/libucx-dev/examples
[ -f "$examples/ucp_client_server.c" ] ||
    tap_skip_all "no examples in $examples (documents are not installed?)"
compiler=${CC:-cc}
for name in ucp_hello_world ucp_client_server uct_hello_world; do
    run 60 "$compiler" -w -O2 -I"$examples" -o "$TAP_DIR/$name" \
        "$examples/$name.c" -lucp -luct -lucs
    tap_expect_success "$name compiles"
done

# both NAME: client and server ended well, and the client got the text
both() {
    pair_end
    if [ "$RC" -eq 0 ] && [ "$PAIR_RC" -eq 0 ]; then
        tap_ok "$1"
    else
        cat "$PAIR_OUT" >>"$TAP_OUT"
        tap_not_ok "$1 (codes $RC, server $PAIR_RC)" "$TAP_OUT"
    fi
}

for how in -w -f -b; do
    pair -p "-n localhost" "$TAP_DIR/ucp_hello_world" $how -s 100000
    both "ucp_hello_world $how"
    tap_check "the text arrives" grep -q '^ABCDEFGHIJKLMNO' "$TAP_OUT"
done
for how in -i -b -z; do
    pair -p "-n localhost" "$TAP_DIR/uct_hello_world" -d soft0 -t nprdma \
        -s 16 $how
    both "uct_hello_world $how"
    tap_check "the text arrives" \
        grep -q '^\[callback\] .* sent ABCDEFGHIJKLMNO (16 bytes)' "$PAIR_OUT"
done

# A listener: UCX itself connects by TCP then, whatever moves the data
for how in am stream tag; do
    for size in 16 100000; do
        UCX_TLS=nprdma,tcp UCX_LOG_LEVEL=info \
            pair -p "-a 127.0.0.1" "$TAP_DIR/ucp_client_server" -c $how \
            -s $size -i 20
        pair_stop
        tap_expect_success "ucp_client_server -c $how, $size bytes"
        tap_check "its messages go over nprdma" \
            grep -qE 'ep_cfg.*\(nprdma/soft0' "$TAP_OUT"
    done
done
pair -p "-a 127.0.0.1" "$TAP_DIR/ucp_client_server" -c am
pair_stop
tap_check "without TCP UCX says what is missing" \
    grep -q 'Destination is unreachable' "$TAP_OUT"
tap_done
