/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Views of memory over a device that refuses memory regions on dma-bufs: by
 * their size, so that a view is a row of them, or for other reasons, each of
 * which has a consequence of its own. Over an RNIC that is not there; prints
 * TAP.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "nprdma/dev/verbs/dmabuf.h"
#include "nprdma/dev/verbs/views.h"
#include "nprdma/dev/verbs/vremote.h"
#include "nprdma/proto/ep.h"

#include <ucs/config/global_opts.h>
#include <ucs/debug/log.h>

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MIB         (UINT64_C(1) << 20)
#define ROWS_AROUND (4 * MIB)   /* bytes on each side of a border */
#define ROWS_OTHER  0x200u      /* an arena of nobody */

unsigned tap_count, tap_failures;

/* What the device refuses, and what it says then */
static _Atomic uint64_t refused_from = UINT64_MAX;
static _Atomic int refused_with      = EINVAL;
static _Atomic unsigned num_tries;

/* Lines of log that have this, and the last of them */
static const char *wanted_line = "(nothing)";
static _Atomic unsigned num_lines;
static char last_line[512];


static int refuse(size_t len)
{
    ++num_tries;
    return (len >= refused_from) ? refused_with : 0;
}

static ucs_log_func_rc_t
on_line(const char *file, unsigned line, const char *function,
        ucs_log_level_t level, const ucs_log_component_config_t *component,
        const char *format, va_list args)
{
    char text[512];

    vsnprintf(text, sizeof(text), format, args);
    if (strstr(text, wanted_line) != NULL) {
        ++num_lines;
        strcpy(last_line, text);
    }
    return UCS_LOG_FUNC_RC_STOP;
}

/* From now on, of all devices */
static void refuses(uint64_t from, int error, const char *name)
{
    refused_from     = from;
    refused_with     = error;
    mock_refuse_view = refuse;
    wanted_line      = name;
    ucs_global_opts.log_component.log_level = UCS_LOG_LEVEL_DIAG;
    ucs_log_push_handler(on_line);
}

/* Those of an arena, as soon as they are built or refused */
static np_nic_views_t *views_of(uint32_t arena)
{
    np_nic_views_t *views = np_views_get(ours->nic, arena);

    while (np_views_state(views) == NP_VIEWS_BUILDING) {
        sched_yield();
    }
    return views;
}

static uint8_t *map_around(const uint8_t *arena, uint64_t border)
{
    return mmap((void*)((uintptr_t)arena + border - ROWS_AROUND),
                2 * ROWS_AROUND, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE |
                MAP_POPULATE, -1, 0);
}

static void fill(uint8_t *bytes, size_t len, unsigned seed)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        bytes[i] = (uint8_t)((i * 31) + (i >> 8) + seed);
    }
}

/* A put and a get, which are to be right; and one-sided, if @a is_one */
static int both_ways(uint8_t *local, uint8_t *remote, size_t len, int is_one)
{
    const unsigned long writes = ours->flights.stats->writes;
    const unsigned long reads  = ours->flights.stats->reads;
    const unsigned long asked  = ours->flights.stats->remote_faults;

    fill(local, len, len + is_one);
    memset(remote, 0, len);
    if ((mocked_move(NP_DIR_PUT, local, len, remote) != UCS_OK) ||
        (memcmp(local, remote, len) != 0)) {
        return 0;
    }

    fill(remote, len, len + is_one + 7);
    if ((mocked_move(NP_DIR_GET, local, len, remote) != UCS_OK) ||
        (memcmp(local, remote, len) != 0)) {
        return 0;
    }

    return !is_one || ((ours->flights.stats->writes == (writes + 1)) &&
                       (ours->flights.stats->reads == (reads + 1)) &&
                       (ours->flights.stats->remote_faults == asked));
}

/* Transfers over the border of two regions, here, there, or on both sides */
static int cross(uint64_t border)
{
    static const size_t sizes[]   = {16, 64, 4096, 8192, 65536, 1 << 20, 3 << 20};
    static const long shifts[][2] = {{0, 0}, {64, 0}, {0, 64}, {8192, 8192},
                                     {-12288, 4096}, {64, -100}, {13, 77}};
    uint8_t *here  = map_around(mine, border);
    uint8_t *there = map_around(area, border);
    unsigned i, k, round, wrong = 0;
    uint8_t *local, *remote;

    TAP_CHILD_CHECK((here != MAP_FAILED) && (there != MAP_FAILED));
    /* the first time some of it is absent or not known */
    for (round = 0; round < 3; ++round) {
        TAP_CHILD_CHECK(both_ways(here + 1, there + 1, (2 * ROWS_AROUND) - 2,
                                  0));
    }
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (k = 0; k < ucs_static_array_size(shifts); ++k) {
            local  = here + ROWS_AROUND - (sizes[i] / 2) + shifts[k][0];
            remote = there + ROWS_AROUND - (sizes[i] / 2) + shifts[k][1];
            if (!both_ways(local, remote, sizes[i], 1)) {
                printf("# %zu bytes at %ld and %ld of the border\n", sizes[i],
                       shifts[k][0], shifts[k][1]);
                ++wrong;
            }
        }
    }
    TAP_CHILD_CHECK(wrong == 0);
    TAP_CHILD_CHECK(both_ways(here, there, 2 * ROWS_AROUND, 1));
    return 0;
}

static uint8_t unpacked[8192];

static void on_unpack(void *arg, const void *data, size_t len)
{
    memcpy(unpacked, data, len);
}

/* Copied ones */
static int cross_copied(uint64_t border)
{
    const unsigned sizes[] = {16, 64, 200, 4096, 8000};
    uint8_t *there         = (uint8_t*)((uintptr_t)area + border);
    uint8_t bytes[8192], *at;
    mocked_comp_t comp;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        at = there - (sizes[i] / 2);
        fill(bytes, sizes[i], i);
        memset(at, 0, sizes[i]);
        MOCKED_POST(status, np_ep_put_copied(&link_.flight, key, bytes,
                                             sizes[i], (uintptr_t)at));
        TAP_CHILD_CHECK((status == UCS_OK) && (mocked_flush() == UCS_OK));
        TAP_CHILD_CHECK(memcmp(bytes, at, sizes[i]) == 0);

        comp = (mocked_comp_t){0, UCS_OK};
        memset(unpacked, 0, sizeof(unpacked));
        MOCKED_POST(status, np_ep_get_unpack(&link_.flight, key, sizes[i],
                                             (uintptr_t)at, on_unpack, NULL,
                                             &comp));
        TAP_CHILD_CHECK((status == UCS_INPROGRESS) &&
                        mocked_wait(mocked_is_done, &comp, NULL) &&
                        (comp.status == UCS_OK));
        TAP_CHILD_CHECK(memcmp(bytes, unpacked, sizes[i]) == 0);
    }
    return 0;
}

/* A device that takes less than @a limit bytes makes rows of @a size */
static int row(uint64_t limit, uint64_t size)
{
    const unsigned count = (UINT64_C(1) << NP_ARENA_SHIFT) / size;
    np_nic_views_t *views;
    unsigned live, tries;

    refuses(limit, EINVAL, "EINVAL");
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL));
    TAP_CHILD_CHECK(mocked_warm());
    views = views_of((uintptr_t)area >> NP_ARENA_SHIFT);
    TAP_CHILD_CHECK(np_views_state(views) == NP_VIEWS_READY);
    TAP_CHILD_CHECK((views->count == count) &&
                    ((UINT64_C(1) << views->shift) == size));
    TAP_CHILD_CHECK(np_nic_view_size(ours->nic) == size);
    TAP_CHILD_CHECK(((UINT64_C(1) << link_.remotes->shift) == size) &&
                    !link_.remotes->delay);
    printf("# %u lines: %s\n", num_lines, last_line);
    TAP_CHILD_CHECK(num_lines == ((size < (UINT64_C(1) << NP_ARENA_SHIFT)) ?
                                  1 : 0));

    /* it is found out once: nothing larger is tried, and nothing is left */
    live  = mock_live_views();
    tries = num_tries;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER)) == NP_VIEWS_READY);
    TAP_CHILD_CHECK(((num_tries - tries) == ((2 * count) + 1)) &&
                    ((mock_live_views() - live) == ((2 * count) + 1)));

    TAP_CHILD_CHECK(cross((count == 1) ? 256 * MIB : size) == 0);
    TAP_CHILD_CHECK(cross_copied((count == 1) ? 256 * MIB : size) == 0);
    mocked_end();
    return 0;
}

static int row_of_one(void)
{
    return row(UINT64_MAX, 1024 * MIB);
}

static int row_of_eight(void)
{
    return row(256 * MIB, 128 * MIB);
}

static int row_of_most(void)
{
    return row(16 * MIB + 1, 16 * MIB);
}

static int refused_errno;
static const char *refused_name;

static void begin_refused(void)
{
    refuses(1, refused_errno, refused_name);
}

/* Transfers are right, two-sided */
static int is_two_sided(void)
{
    const unsigned long writes = ours->flights.stats->writes;

    return both_ways(mine + 100, area + 200, 300000, 0) &&
           (ours->flights.stats->writes == writes);
}

/* One line, which has the errno's name, the device's, and what follows */
static int is_said_once(void)
{
    printf("# %u lines: %s\n", num_lines, last_line);
    return (num_lines == 1) && (strstr(last_line, "mock0:1") != NULL) &&
           (strstr(last_line, "two-sided") != NULL);
}

/* Nothing more is asked of the device, whatever it would say */
static int never(void)
{
    unsigned tries;

    begin_refused();
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && is_two_sided());
    TAP_CHILD_CHECK(np_views_state(views_of((uintptr_t)area >>
                                            NP_ARENA_SHIFT)) ==
                    NP_VIEWS_REFUSED);
    refused_from = UINT64_MAX;
    tries        = num_tries;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER)) == NP_VIEWS_REFUSED);
    TAP_CHILD_CHECK(is_two_sided() && (num_tries == tries));
    TAP_CHILD_CHECK(is_said_once() && (mock_live_views() == 0));
    mocked_end();
    return 0;
}

/* It is tried again, and one-sided then, on both sides */
static int later(void)
{
    np_nic_views_t *views;
    double end;

    begin_refused();
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && is_two_sided());
    views = views_of((uintptr_t)area >> NP_ARENA_SHIFT);
    TAP_CHILD_CHECK(np_views_state(views) == NP_VIEWS_LATER);
    for (end = mocked_now() + 0.5; mocked_now() < end;) {
        TAP_CHILD_CHECK(is_two_sided());
    }
    TAP_CHILD_CHECK((views->delay > NP_VIEWS_RETRY_MIN) &&
                    (mock_live_views() == 0));
    TAP_CHILD_CHECK(num_lines == 2); /* of mine and of area, however often */
    TAP_CHILD_CHECK(strstr(last_line, refused_name) != NULL);
    refused_from = UINT64_MAX;
    TAP_CHILD_CHECK(mocked_warm());
    TAP_CHILD_CHECK(np_views_state(views) == NP_VIEWS_READY);
    mocked_end();
    return 0;
}

/* Nothing more about this arena; others are asked for */
static int others(void)
{
    begin_refused();
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL));
    num_lines = 0;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER)) == NP_VIEWS_REFUSED);
    TAP_CHILD_CHECK(is_said_once() && is_two_sided());
    refused_from = UINT64_MAX;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER)) == NP_VIEWS_REFUSED);
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER + 1)) ==
                    NP_VIEWS_READY);
    mocked_end();
    return 0;
}

/* A size that was taken is not the reason any more */
static int smaller_no_more(void)
{
    refuses(256 * MIB, EINVAL, "EINVAL");
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && mocked_warm());
    refused_from = 1;
    num_lines    = 0;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER)) == NP_VIEWS_REFUSED);
    TAP_CHILD_CHECK(is_said_once());
    refused_from = 256 * MIB;
    TAP_CHILD_CHECK(np_views_state(views_of(ROWS_OTHER + 1)) ==
                    NP_VIEWS_READY);
    TAP_CHILD_CHECK(np_nic_view_size(ours->nic) == (128 * MIB));
    mocked_end();
    return 0;
}

/* Part of a row is there when the device has no more */
static int refuse_after(size_t len)
{
    return (++num_tries > 5) ? refused_with : 0;
}

static int part_of_a_row(void)
{
    np_nic_views_t *views;
    unsigned live;

    refuses(256 * MIB, EINVAL, "ENOSPC");
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && mocked_warm());
    live             = mock_live_views();
    num_tries        = 0;
    refused_with     = ENOSPC;
    mock_refuse_view = refuse_after;
    views            = views_of(ROWS_OTHER);
    TAP_CHILD_CHECK(np_views_state(views) == NP_VIEWS_LATER);
    TAP_CHILD_CHECK((num_tries == 6) && (mock_live_views() == live));
    mock_refuse_view = NULL;
    while (np_views_state(views) == NP_VIEWS_LATER) {
        views = views_of(ROWS_OTHER);
    }
    TAP_CHILD_CHECK((np_views_state(views) == NP_VIEWS_READY) &&
                    (views->count == 8));
    mocked_end();
    return 0;
}

static int is_known(const void *arg)
{
    return np_vremote_get(&link_, *(const uint64_t*)arg, 1) != NULL;
}

/* That one arena has small regions changes nothing in another one */
static int rows_of_different_sizes(void)
{
    np_vviews_t views = {.len = 16 * MIB, .size = 16 * MIB};
    np_arenas_t arenas;
    uint64_t other;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && mocked_warm());
    other = (uintptr_t)mine;
    TAP_CHILD_CHECK(np_arenas_share(other, MOCKED_AREA, &arenas) == UCS_OK);
    TAP_CHILD_CHECK(mocked_wait(is_known, &other, NULL));
    views.addr = link_.remotes->va;
    link_.remotes->state = NP_VREMOTE_ASKED;
    link_.remotes->count = 0;
    TAP_CHILD_CHECK(np_vremote_told(&link_, &views) == UCS_OK);
    TAP_CHILD_CHECK(map_around(area, 256 * MIB) != MAP_FAILED);
    TAP_CHILD_CHECK(cross_copied(256 * MIB) == 0);
    mocked_end();
    return 0;
}

/* What a peer may say of its row; else the connection ends */
static int strange_rows(void)
{
    static const struct {
        uint64_t len, size;
        uint32_t index;
        int      is_right;
    } says[] = {
        {1024 * MIB, 128 * MIB, 0, 1},  {1024 * MIB, 1024 * MIB, 0, 1},
        {1024 * MIB - 4096, 16 * MIB, 0, 1},
        {1024 * MIB, 0, 0, 0},          {1024 * MIB, 8 * MIB, 0, 0},
        {1024 * MIB, 2048 * MIB, 0, 0}, {1024 * MIB, 96 * MIB, 0, 0},
        {1024 * MIB, 128 * MIB, 1, 0},  {1024 * MIB, 1024 * MIB, 1, 0},
        {2048 * MIB, 128 * MIB, 0, 0},  {0, 128 * MIB, 0, 0},
        {1024 * MIB, UINT64_C(1) << 63, 0, 0}
    };
    np_vremote_t *remote;
    np_vviews_t views;
    unsigned i, k;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 1, NULL) && mocked_warm());
    remote = link_.remotes;
    for (i = 0; i < ucs_static_array_size(says); ++i) {
        remote->state = NP_VREMOTE_ASKED;
        remote->count = 0;
        views         = (np_vviews_t){
            .addr  = remote->va,
            .len   = says[i].len,
            .size  = says[i].size,
            .index = says[i].index
        };
        TAP_CHILD_CHECK((np_vremote_told(&link_, &views) == UCS_OK) ==
                        says[i].is_right);
    }

    /* the rest of a row is like its beginning, and not longer */
    for (k = 0; k < 3; ++k) {
        remote->state = NP_VREMOTE_ASKED;
        remote->count = 0;
        views         = (np_vviews_t){
            .addr = remote->va, .len = 1024 * MIB, .size = 512 * MIB
        };
        TAP_CHILD_CHECK(np_vremote_told(&link_, &views) == UCS_OK);
        TAP_CHILD_CHECK(remote->state == NP_VREMOTE_ASKED);
        views.index = (k == 0) ? 0 : 1;
        views.size  = (k == 1) ? 256 * MIB : 512 * MIB;
        TAP_CHILD_CHECK((np_vremote_told(&link_, &views) == UCS_OK) ==
                        (k == 2));
    }
    TAP_CHILD_CHECK(remote->state == NP_VREMOTE_READY);
    TAP_CHILD_CHECK(np_vremote_told(&link_, &views) != UCS_OK);
    return 0;
}

static const struct {
    int              error;
    const char       *name;
    np_dmabuf_then_t then;
} errors[] = {
    {EINVAL, "EINVAL", NP_DMABUF_SMALLER},
    {E2BIG, "E2BIG", NP_DMABUF_SMALLER},
    {ERANGE, "ERANGE", NP_DMABUF_SMALLER},
    {EMSGSIZE, "EMSGSIZE", NP_DMABUF_SMALLER},
    {EOVERFLOW, "EOVERFLOW", NP_DMABUF_SMALLER},
    {EOPNOTSUPP, "EOPNOTSUPP", NP_DMABUF_NEVER},
    {ENOSYS, "EOPNOTSUPP", NP_DMABUF_NEVER}, /* the kernel is asked, too */
    {EPERM, "EPERM", NP_DMABUF_NEVER},
    {EACCES, "EACCES", NP_DMABUF_NEVER},
    {ENODEV, "ENODEV", NP_DMABUF_NEVER},
    {ENXIO, "ENXIO", NP_DMABUF_NEVER},
    {EIO, "EIO", NP_DMABUF_NEVER},
    {ENOMEM, "ENOMEM", NP_DMABUF_LATER},
    {ENOSPC, "ENOSPC", NP_DMABUF_LATER},
    {EDQUOT, "EDQUOT", NP_DMABUF_LATER},
    {EAGAIN, "EAGAIN", NP_DMABUF_LATER},
    {EBUSY, "EBUSY", NP_DMABUF_LATER},
    {EINTR, "EINTR", NP_DMABUF_LATER},
    {ETIMEDOUT, "ETIMEDOUT", NP_DMABUF_LATER},
    {EMFILE, "EMFILE", NP_DMABUF_LATER},
    {ENFILE, "ENFILE", NP_DMABUF_LATER},
    {EFAULT, "EFAULT", NP_DMABUF_OTHERS},
    {EBADF, "EBADF", NP_DMABUF_OTHERS},
    {EXDEV, "error 18", NP_DMABUF_OTHERS}
};

static void test_errors(void)
{
    static int (*const tests[])(void) = {
        [NP_DMABUF_SMALLER] = never, /* there is no smaller one */
        [NP_DMABUF_NEVER]   = never,
        [NP_DMABUF_LATER]   = later,
        [NP_DMABUF_OTHERS]  = others
    };
    static const char *const names[] = {
        [NP_DMABUF_SMALLER] = "of any size: never of this device",
        [NP_DMABUF_NEVER]   = "never of this device",
        [NP_DMABUF_LATER]   = "again later",
        [NP_DMABUF_OTHERS]  = "never of this arena"
    };
    unsigned i;

    for (i = 0; i < ucs_static_array_size(errors); ++i) {
        refused_errno = errors[i].error;
        refused_name  = errors[i].name;
        TAP_CHECK((np_dmabuf_error(errors[i].error)->then ==
                   errors[i].then) && tap_child(tests[errors[i].then]),
                  "%s: %s", strerrorname_np(errors[i].error),
                  names[errors[i].then]);
    }
}

int main(void)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    TAP_CHECK(tap_child(row_of_one),
              "a device that takes all has views of one region");
    TAP_CHECK(tap_child(row_of_eight),
              "one that refuses 256 MiB has rows of eight, with right borders");
    TAP_CHECK(tap_child(row_of_most), "one that takes 16 MiB has rows of 64");
    test_errors();
    TAP_CHECK(tap_child(smaller_no_more),
              "a size that was taken is no reason to look for a smaller one");
    TAP_CHECK(tap_child(part_of_a_row),
              "part of a row leaves nothing behind");
    TAP_CHECK(tap_child(rows_of_different_sizes),
              "each arena has a row of its own");
    TAP_CHECK(tap_child(strange_rows), "what peers say of rows is looked at");
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
