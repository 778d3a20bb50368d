#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""edu.py PCI-ADDRESS IOVA: has QEMU's edu device read from an address."""
import ctypes
import mmap
import os
import sys
import time

SOURCE, TARGET, COUNT, COMMAND = 0x80, 0x88, 0x90, 0x98
BUFFER = 0x40000
START = 1


def enable(device):
    with open(device + "/enable", "w") as enabled:
        enabled.write("1")
    config = os.open(device + "/config", os.O_RDWR)
    command = int.from_bytes(os.pread(config, 2, 4), "little")
    os.pwrite(config, (command | 4).to_bytes(2, "little"), 4)
    os.close(config)


def main():
    device = "/sys/bus/pci/devices/" + sys.argv[1]
    enable(device)
    resource = os.open(device + "/resource0", os.O_RDWR)
    registers = mmap.mmap(resource, 1 << 20)

    def register(offset):
        return ctypes.c_uint64.from_buffer(registers, offset)

    register(SOURCE).value = int(sys.argv[2], 0)
    register(TARGET).value = BUFFER
    register(COUNT).value = 64
    register(COMMAND).value = START
    for _ in range(500):
        if not register(COMMAND).value & START:
            return
        time.sleep(0.01)
    sys.exit("the device is still busy")


main()
