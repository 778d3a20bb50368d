// SPDX-License-Identifier: BSD-3-Clause
// Swap to compressed memory, and pages that go there.
#ifndef NPRDMA_TEST_SWAP_H
#define NPRDMA_TEST_SWAP_H

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <string>

#ifndef MADV_PAGEOUT
#define MADV_PAGEOUT 21
#endif

namespace nt {

// There is swap while this lives. It takes what the machine has; else it makes
// some, which is gone again when the object, or the test and its ranks, are.
// Throws Skipped if that cannot be.
class Swap {
public:
    Swap();
    ~Swap();
    Swap(const Swap&) = delete;
    Swap &operator=(const Swap&) = delete;

private:
    pid_t m_keeper = -1;
    int   m_life   = -1; // the keeper ends when all copies of it are closed
};

// How many of these pages are in swap.
size_t pages_in_swap(const void *address, size_t length);

// Move these pages to swap: private memory that no other process shares.
// Throws Skipped if the kernel does not.
void page_out(void *address, size_t length);

} // namespace nt

#endif
