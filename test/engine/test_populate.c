/* SPDX-License-Identifier: BSD-3-Clause */
/* Bringing pages in where the kernel does not help, or says why it cannot */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "sandbox.h"
#include "tap.h"

#include "nprdma/mem/mapper.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>


static char *populate_mmap(unsigned pages)
{
    return mmap(NULL, pages * NP_PAGE_SIZE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

static ucs_status_t populate_map(const void *va, size_t len, int write)
{
    return np_mapper_fault_in((uintptr_t)va, len, write);
}

static unsigned populate_count(const char *va, unsigned pages, int write)
{
    unsigned count = 0, i;

    for (i = 0; i < pages; ++i) {
        count += np_mapper_is_mapped((uintptr_t)va + (i * NP_PAGE_SIZE), 1,
                                     write);
    }

    return count;
}

/* From now on MADV_POPULATE_* fails so in this process */
static int populate_refuse(int error)
{
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS,
                 offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 22, 2, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 23, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error)
    };
    const struct sock_fprog program = {
        .len    = sizeof(filter) / sizeof(filter[0]),
        .filter = filter
    };

    return (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0) &&
           (prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
}

/* A counter beside which the mapper touches pages: no increment may be lost */
static char *populate_busy_mem;
static _Atomic int populate_busy_stop;

static void *populate_busy_thread(void *arg)
{
    uint64_t *count = arg;

    while (!atomic_load_explicit(&populate_busy_stop, memory_order_relaxed)) {
        ++*count;
        atomic_store_explicit((_Atomic uint32_t*)populate_busy_mem,
                              (uint32_t)*count, memory_order_relaxed);
        if (atomic_load_explicit((_Atomic uint32_t*)populate_busy_mem,
                                 memory_order_relaxed) != (uint32_t)*count) {
            return populate_busy_mem;
        }
    }

    return NULL;
}

static int populate_child_old_kernel(void)
{
    char *mem = populate_mmap(5);
    uint64_t count = 0;
    pthread_t thread;
    void *lost;
    unsigned i;

    TAP_CHILD_CHECK(populate_refuse(EINVAL));
    mprotect(mem + 2 * NP_PAGE_SIZE, NP_PAGE_SIZE, PROT_READ);
    mprotect(mem + 3 * NP_PAGE_SIZE, NP_PAGE_SIZE, PROT_NONE);
    munmap(mem + 4 * NP_PAGE_SIZE, NP_PAGE_SIZE);
    mem[1] = 3;

    TAP_CHILD_CHECK(populate_map(mem, 3 * NP_PAGE_SIZE, 0) == UCS_OK);
    TAP_CHILD_CHECK(populate_count(mem, 3, 0) == 3);
    TAP_CHILD_CHECK(populate_map(mem, 5 * NP_PAGE_SIZE, 1) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(populate_count(mem, 2, 1) == 2);
    TAP_CHILD_CHECK(populate_count(mem, 3, 1) == 2);
    TAP_CHILD_CHECK((mem[1] == 3) && (mem[0] == 0));
    TAP_CHILD_CHECK(populate_map(mem + 3 * NP_PAGE_SIZE, 1, 0) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(populate_map(mem + 4 * NP_PAGE_SIZE, 1, 0) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(populate_map(mem + 4 * NP_PAGE_SIZE, 1, 1) ==
                    UCS_ERR_INVALID_ADDR);

    /* they must have become writable for the kernel, too */
    np_mapper_unmap((uintptr_t)mem, 4 * NP_PAGE_SIZE);
    madvise(mem, NP_PAGE_SIZE, MADV_DONTNEED);
    TAP_CHILD_CHECK(populate_map(mem, 1, 1) == UCS_OK);
    TAP_CHILD_CHECK(np_mapper_scan((uintptr_t)mem, NP_PAGE_SIZE) == 0);

    populate_busy_mem = mem;
    pthread_create(&thread, NULL, populate_busy_thread, &count);
    for (i = 0; i < 20000; ++i) {
        np_mapper_unmap((uintptr_t)mem, 1);
        if (populate_map(mem, 1, 1) != UCS_OK) {
            break;
        }
    }
    atomic_store(&populate_busy_stop, 1);
    pthread_join(thread, &lost);
    TAP_CHILD_CHECK(i == 20000);
    TAP_CHILD_CHECK(lost == NULL);
    return 0;
}

static int populate_child_no_memory(void)
{
    char *mem = populate_mmap(2);

    munmap(mem + NP_PAGE_SIZE, NP_PAGE_SIZE);
    TAP_CHILD_CHECK(populate_refuse(ENOMEM));
    TAP_CHILD_CHECK(populate_map(mem, 1, 1) == UCS_ERR_NO_MEMORY);
    TAP_CHILD_CHECK(populate_map(mem + NP_PAGE_SIZE, 1, 1) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(populate_count(mem, 2, 0) == 0);
    return 0;
}

static int populate_child_poisoned(void)
{
    char *mem = populate_mmap(2);

    TAP_CHILD_CHECK(populate_map(mem, 1, 1) == UCS_OK);
    TAP_CHILD_CHECK(populate_refuse(EHWPOISON));
    TAP_CHILD_CHECK(populate_map(mem, 1, 1) == UCS_OK);
    TAP_CHILD_CHECK(populate_map(mem + NP_PAGE_SIZE, 1, 1) ==
                    UCS_ERR_INVALID_ADDR);
    return 0;
}

static void populate_check(int (*function)(void), const char *what)
{
    if (sandbox_is_there()) {
        TAP_CHECK(tap_child(function), "%s", what);
    } else {
        printf("ok %u - %s # SKIP no seccomp filter here\n", ++tap_count,
               what);
    }
}

void test_populate_children(void)
{
    populate_check(populate_child_old_kernel, "a kernel that cannot populate");
    populate_check(populate_child_no_memory, "no memory is told apart");
    populate_check(populate_child_poisoned, "a page that is broken");
}
