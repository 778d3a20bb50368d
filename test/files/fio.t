#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Time limit: 200 s
# fio with the engine of contrib/fio: what it writes it reads again, and others
# see.
set -euo pipefail
# shellcheck source-path=SCRIPTDIR source=../mpi/tap.sh
. "$(dirname "${BASH_SOURCE[0]}")/../mpi/tap.sh"

[ -z "${NPRDMA_TEST_LAUNCH:-}" ] || tap_skip_all "not our transport"
command -v fio >/dev/null ||
    tap_skip_all "fio is not installed: contrib/setup.sh"
[ -e "$NPRDMA_PREFIX/lib/libnprdma_remote.so" ] ||
    tap_skip_all "libnprdma_remote is not in $NPRDMA_PREFIX/lib"

SHARE=$TAP_DIR/share
SOCKET=$TAP_DIR/socket
SERVER=
mkdir "$SHARE"
cd "$TAP_DIR" # fio leaves files
trap '[ -z "$SERVER" ] || kill -9 "$SERVER"; rm -rf "$TAP_DIR"' EXIT

server_start() {
    "$NPRDMA_PREFIX/bin/nprdma-filed" -s "$SOCKET" "$SHARE" \
        >"$TAP_DIR/server.out" 2>&1 &
    SERVER=$!
    wait_until 30 grep -qs 'is shared' "$TAP_DIR/server.out"
}

engine() { # ARGUMENT...: of fio, behind those of the script
    run 120 "$NPRDMA_SRC/contrib/fio.sh" --prefix "$NPRDMA_PREFIX" \
        --build "$NPRDMA_BUILD/fio" "$@"
}

# job NAME ARGUMENT...
# shellcheck disable=SC2016
job() {
    local name=$1
    shift
    engine --name="$name" --socket="$SOCKET" --size=8m \
        --filename_format='/$jobname.$jobnum' --output-format=terse "$@"
    tap_expect_success "fio: $name ($*)"
}

engine --only-build
if [ "$RC" -ne 0 ] && grep -q '^debian-source.sh: ' "$TAP_OUT"; then
    tap_skip_all "$(sed -n 's/^debian-source.sh: //p' "$TAP_OUT" | head -n 1)"
fi
tap_check "the engine is built for this fio" \
    grep -qx "external:.*/nprdma\.so" "$TAP_OUT"
run 20 fio "--enghelp=$NPRDMA_BUILD/fio/nprdma.so"
tap_check "it says its options" grep -q 'Socket of a server' "$TAP_OUT"
engine --name=none --filename=/none --socket="$TAP_DIR/none" --size=1m
tap_check "without a server it says so" \
    grep -q 'nprdma: no connection to a server of this host' "$TAP_OUT"
server_start
job alone --rw=randrw --bs=4k --verify=crc32c
job many --rw=randrw --bs=1k-64k --iodepth=16 --verify=crc32c
job jobs --rw=write --bs=4k --iodepth=4 --verify=crc32c --numjobs=3
tap_check "each job has a file" test "$(find "$SHARE" -name 'jobs.*' \
    -size 16384 | wc -l)" -eq 3
job sync --rw=randwrite --bs=4k --iodepth=8 --fsync=16 --number_ios=200
run 60 fio --name=here --filename="$SHARE/jobs.1" --size=8m --rw=read \
    --bs=4k --verify=crc32c --output-format=terse
tap_expect_success "another engine finds here what was written there"
engine --name=short --filename=/alone.0 --socket="$SOCKET" --size=64m --rw=read
tap_check "a file that is too short to be read is said" \
    grep -q 'has 8388608 bytes, and the job reads 67108864' "$TAP_OUT"
engine --name=gone --filename=/gone --socket="$SOCKET" --rw=read
tap_check "a size is needed" grep -q 'size= is needed' "$TAP_OUT"

# The server goes meanwhile
"$NPRDMA_SRC/contrib/fio.sh" --prefix "$NPRDMA_PREFIX" --build \
    "$NPRDMA_BUILD/fio" --name=kill --filename=/kill --socket="$SOCKET" \
    --size=8m --rw=randwrite --bs=4k --iodepth=16 --verify=crc32c --loops=40 \
    >"$TAP_DIR/fio.out" 2>&1 &
client=$!
wait_until 30 test -s "$SHARE/kill"
kill -9 "$SERVER"
wait "$SERVER" 2>/dev/null || true
server_start
tap_check "a server that was killed is waited for" wait "$client"
sed -n '/^nprdma/s/^/# /p' "$TAP_DIR/fio.out"

tap_done
