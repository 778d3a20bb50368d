#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Builds Soft-RoCE that imports dma-bufs, and the test exporter, for a kernel
# of the lab: from Debian's source of that very kernel, against its headers.
set -euo pipefail

HERE=$(cd "$(dirname "$0")" && pwd -P)
LAB=$HERE/../../test/lab/lab
RXE=drivers/infiniband/sw/rxe

die() {
    echo "build.sh: $*" >&2
    exit 1
}

usage() {
    echo "Usage: contrib/rxe/build.sh [--kernel 6.1|6.12|7|6.1-debug] DIR"
    echo "rdma_rxe.ko and dmabuf_pages.ko into DIR"
}

series=6.1
case ${1-} in
--kernel)
    [ $# -ge 2 ] || die "--kernel needs a value"
    series=$2
    shift 2
    ;;
--help)
    usage
    exit 0
    ;;
esac
if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
    usage >&2
    exit 2
fi
mkdir -p "$1"
out=$(cd "$1" && pwd -P)

patch=$HERE/rxe-dmabuf-${series%-debug}.patch
[ -e "$patch" ] || die "there is no patch for Linux $series"
source=$("$LAB" source --quiet --kernel "$series" "$RXE")

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cp -R "$source"/. "$work"
patch -s -p1 -d "$work" <"$patch"
cp "$HERE"/rxe_{dmabuf.c,modes.c,modes.h} "$work/$RXE/"
mkdir "$work/pages"
cp "$HERE"/dmabuf_pages.[ch] "$work/pages/"
echo 'obj-m := dmabuf_pages.o' >"$work/pages/Makefile"
for dir in "$work/$RXE" "$work/pages"; do
    # BTF would need the kernel's own, and pahole
    "$LAB" toolchain --quiet --kernel "$series" \
        make -s -j"$(nproc)" -C '{}' M="$dir" CONFIG_RDMA_RXE=m \
        CONFIG_DEBUG_INFO_BTF_MODULES= KCFLAGS=-Werror modules \
        >"$work/log" 2>&1 || {
        tail -n 30 "$work/log" >&2
        die "the build against the headers of Linux $series failed"
    }
done
for module in "$work/$RXE/rdma_rxe.ko" "$work/pages/dmabuf_pages.ko"; do
    strip --strip-debug "$module"
    cp "$module" "$out/"
done
