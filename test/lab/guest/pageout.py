#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Asks the kernel to move memory out, looks, and reads it back."""
import ctypes
import mmap
import struct
import sys

PAGE = 4096
PAGES = 8192
MADV_PAGEOUT = 21
SWAPPED = 1 << 62


def swapped_pages(address):
    with open("/proc/self/pagemap", "rb") as pagemap:
        pagemap.seek(address // PAGE * 8)
        entries = struct.unpack("%dQ" % PAGES, pagemap.read(PAGES * 8))
    return sum(1 for entry in entries if entry & SWAPPED)


def main():
    memory = mmap.mmap(-1, PAGES * PAGE,
                       flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    for page in range(PAGES):
        struct.pack_into("Q", memory, page * PAGE, page + 1)
    memory.madvise(MADV_PAGEOUT)
    out = swapped_pages(address)
    print("%d of %d pages are out" % (out, PAGES))
    for page in range(PAGES):
        if struct.unpack_from("Q", memory, page * PAGE)[0] != page + 1:
            sys.exit("page %d came back wrong" % page)
    if out < PAGES // 2:
        sys.exit("too few")


main()
