/* SPDX-License-Identifier: BSD-3-Clause */
/* Bytes between messages and memory that goes, or is not there. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/mem/arena.h"
#include "nprdma/mem/bypass.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/stage.h"

#include <string.h>
#include <sys/mman.h>

#define STAGE_PAGES  3
#define STAGE_LEN    (STAGE_PAGES * NP_PAGE_SIZE)

/* A pager with one frame: what it brings in takes the place of another page */
typedef struct stage_pager {
    uint8_t  *mem;
    unsigned calls;
} stage_pager_t;


static int stage_swap_in(void *arg, void *va, size_t len, int write)
{
    stage_pager_t *pager = arg;
    unsigned i;

    (void)write;
    if (len > NP_PAGE_SIZE) {
        return -1; /* there is no room for two */
    }

    ++pager->calls;
    for (i = 0; i < STAGE_PAGES; ++i) {
        if ((pager->mem + (i * NP_PAGE_SIZE)) != va) {
            np_mapper_unmap((uintptr_t)pager->mem + (i * NP_PAGE_SIZE),
                            NP_PAGE_SIZE);
        }
    }
    return 0;
}

/* Copies of every length and alignment, which change nothing beside them */
static void stage_check_bypass(void)
{
    enum { MOST = 260, AROUND = 64, ALIGNMENTS = 65 };
    uint8_t src[MOST + ALIGNMENTS], dst[MOST + ALIGNMENTS + (2 * AROUND)];
    unsigned len, to, from, i, wrong = 0;
    int is_copied;

    for (i = 0; i < sizeof(src); ++i) {
        src[i] = i * 7;
    }
    for (len = 0; len <= MOST; ++len) {
        for (to = 0; to < ALIGNMENTS; ++to) {
            from = (to * 5) % ALIGNMENTS;
            memset(dst, 0xee, sizeof(dst));
            np_bypass_copy(dst + AROUND + to, src + from, len);
            for (i = 0; i < sizeof(dst); ++i) {
                is_copied = (i >= (AROUND + to)) && (i < (AROUND + to + len));
                wrong    += dst[i] != (is_copied ?
                                       src[from + i - AROUND - to] : 0xee);
            }
        }
    }
    TAP_CHECK(wrong == 0, "copies past the caches (%u bytes wrong)", wrong);
    np_bypass_start();
    TAP_CHECK((np_bypass_min >= UCS_KBYTE) &&
              ((np_bypass_min <= UCS_GBYTE) ==
               (NP_BYPASS_IS_THERE &&
                (access("/sys/devices/system/cpu/cpu0/cache/index0/size",
                        R_OK) == 0))),
              "from %zu bytes on, if the kernel says what it has",
              np_bypass_min);
}

static void stage_check(const char *name, uint8_t *mem, size_t len)
{
    const np_iov_t iov[2] = {{mem, len / 2}, {mem + (len / 2), len - len / 2}};
    static uint8_t data[STAGE_LEN], back[STAGE_LEN];
    np_stage_t stage = {0};
    ucs_status_t status;

    memset(data, 'a', len);
    status = np_stage_copy(&stage, iov, 2, data, 1, 1);
    TAP_CHECK((status == UCS_OK) && (memcmp(mem, data, len) == 0),
              "%s: into memory (%s)", name, ucs_status_string(status));
    status = np_stage_copy(NULL, iov, 2, back, 0, 1);
    TAP_CHECK((status == UCS_OK) && (memcmp(back, data, len) == 0),
              "%s: and out of it (%s)", name, ucs_status_string(status));

    memset(data, 'b', len);
    status = np_stage_copy(NULL, iov, 2, data, 1, 1);
    TAP_CHECK((status == UCS_OK) && (memcmp(mem, data, len) == 0),
              "%s: into it without pages of ours (%s)", name,
              ucs_status_string(status));

    memset(data, 'c', len);
    status = np_stage_own(iov, 2, data, NP_STAGE_IN);
    TAP_CHECK((status == UCS_OK) && (memcmp(mem, data, len) == 0),
              "%s: into memory of an operation (%s)", name,
              ucs_status_string(status));
    memset(data, 'd', len);
    status = np_stage_own(iov, 2, data, NP_STAGE_IN_PAST);
    TAP_CHECK((status == UCS_OK) && (memcmp(mem, data, len) == 0),
              "%s: past the caches (%s)", name, ucs_status_string(status));
    memset(back, 0, len);
    status = np_stage_own(iov, 2, back, NP_STAGE_OUT);
    TAP_CHECK((status == UCS_OK) && (memcmp(back, data, len) == 0),
              "%s: and out of it (%s)", name, ucs_status_string(status));
    np_stage_cleanup(&stage);
}

static void stage_check_refused(uint8_t *mem, size_t len)
{
    const np_iov_t iov = {mem, len};
    static uint8_t data[STAGE_LEN];
    np_stage_t stage = {0};

    mprotect(mem + NP_PAGE_SIZE, NP_PAGE_SIZE, PROT_READ);
    np_mapper_unmap((uintptr_t)mem, len);
    TAP_CHECK((np_stage_copy(&stage, &iov, 1, data, 1, 1) ==
               UCS_ERR_INVALID_ADDR) &&
              (np_stage_copy(NULL, &iov, 1, data, 1, 1) ==
               UCS_ERR_INVALID_ADDR) &&
              (np_stage_copy(NULL, &iov, 1, data, 0, 1) == UCS_OK),
              "what may be read alone is not written");
    munmap(mem + NP_PAGE_SIZE, NP_PAGE_SIZE);
    np_mapper_unmap((uintptr_t)mem, len);
    TAP_CHECK((np_stage_copy(&stage, &iov, 1, data, 1, 1) ==
               UCS_ERR_INVALID_ADDR) &&
              (np_stage_copy(NULL, &iov, 1, data, 0, 1) ==
               UCS_ERR_INVALID_ADDR),
              "what is not there is an error, and no signal");
    np_stage_cleanup(&stage);
}

void test_stage(void)
{
    stage_pager_t pager        = {0};
    const np_swapper_t swapper = {stage_swap_in, &pager};
    np_arenas_t arenas;

    stage_check_bypass();
    pager.mem = mmap(NULL, STAGE_LEN, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    np_arenas_share((uintptr_t)pager.mem, STAGE_LEN, &arenas);
    stage_check("plain memory", pager.mem + 100, STAGE_LEN - 200);

    TAP_CHECK(np_mapper_add_swapper((uintptr_t)pager.mem, STAGE_LEN,
                                    &swapper) == UCS_OK,
              "a pager that has one frame");
    np_mapper_unmap((uintptr_t)pager.mem, STAGE_LEN);
    stage_check("one frame", pager.mem + 100, STAGE_LEN - 200);
    TAP_CHECK(pager.calls >= STAGE_PAGES, "it was asked (%u times)",
              pager.calls);
    np_mapper_remove_swapper((uintptr_t)pager.mem, STAGE_LEN);

    stage_check_refused(pager.mem, STAGE_LEN);
    munmap(pager.mem, STAGE_LEN);
}
