#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# build.sh HEADERS OUT [MAKE-ARGUMENT...]: builds nprdma.ko in OUT against the
# headers of a kernel (/lib/modules/VERSION/build), and the modules of the tests
# if their sources are there. Nothing is written elsewhere.
set -eu

if [ $# -lt 2 ] || [ ! -e "$1/Makefile" ]; then
	echo "usage: build.sh HEADERS OUT [MAKE-ARGUMENT...]; HEADERS is that" \
		"of a kernel, as /lib/modules/VERSION/build" >&2
	exit 2
fi
here=$(cd "$(dirname "$0")" && pwd)
headers=$1
out=$2
shift 2
# Type information of the kernel, which out-of-tree builds lack
set -- CONFIG_DEBUG_INFO_BTF_MODULES= "$@"

# update FROM... TO: what is the same stays as old as it is
update() {
	for file; do
		to=$file
	done
	for file; do
		if [ "$file" != "$to" ] &&
			! cmp -s "$file" "$to/$(basename "$file")"; then
			cp "$file" "$to/"
		fi
	done
}

mkdir -p "$out"
out=$(cd "$out" && pwd)
uapi=$here/../include/nprdma/nprdma_uapi.h
if [ ! -e "$uapi" ]; then
	uapi=$here/nprdma_uapi.h
fi
update "$here"/*.c "$here/nprdma.h" "$here/Kbuild" "$uapi" "$out"
"$here/probe.sh" "$headers" "$out/nprdma_config.h" "$@"
make -s -C "$headers" M="$out" "$@" modules

tests=$here/../test/kmod
if [ -e "$tests/Kbuild" ]; then
	mkdir -p "$out/test"
	update "$tests"/Kbuild "$tests"/edu_import.[ch] "$tests"/umem_import.[ch] \
		"$tests"/iommu_*.c \
		"$out/test"
	make -s -C "$headers" M="$out/test" "$@" modules
fi
