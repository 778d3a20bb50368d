/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Memory that is not there, or not with these rights, or that the kernel does
 * not register: of one's own and of the target's. Prints TAP.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "nprdma/mem/region.h"
#include "nprdma/proto/ep.h"

#include <ucs/debug/log.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static unsigned errors_said;


/* They are what is asked for */
static ucs_log_func_rc_t
count_errors(const char *file, unsigned line, const char *function,
             ucs_log_level_t level, const ucs_log_component_config_t *component,
             const char *format, va_list args)
{
    if (level != UCS_LOG_LEVEL_ERROR) {
        return UCS_LOG_FUNC_RC_CONTINUE;
    }

    ++errors_said;
    return UCS_LOG_FUNC_RC_STOP;
}

/* A list with the page at @a bad in it; NULL: all of it is there */
static ucs_status_t move_list(np_dir_t dir, uint8_t *bad)
{
    const np_iov_t iov[] = {
        {mine, 100}, {NULL, 0}, {(bad == NULL) ? mine + 8192 : bad, 3000},
        {mine + 4096, 8}
    };
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    MOCKED_POST(status, np_ep_move(dir, &link_.flight, key, iov,
                                   ucs_static_array_size(iov),
                                   (uintptr_t)area, &comp));
    if (status == UCS_INPROGRESS) {
        status = mocked_wait(mocked_is_done, &comp, NULL) ? comp.status :
                 UCS_ERR_TIMED_OUT;
    }
    return status;
}

/* Our own memory ends within what is to move: an error, and the link goes on */
static int own_ends(np_dir_t dir, uint8_t *bad, size_t max)
{
    static const size_t sizes[] = {80, 5000, 20000, 100000};
    uint8_t *at;
    unsigned i;

    for (i = 0; (i < ucs_static_array_size(sizes)) && (sizes[i] <= max); ++i) {
        at = bad - ((i + 1) * 16);
        memset(at, 0x33, bad - at);
        memset(area, 0x44, sizes[i]);
        TAP_CHILD_CHECK(mocked_move(dir, at, sizes[i], area) ==
                        UCS_ERR_INVALID_ADDR);
        TAP_CHILD_CHECK((area[sizes[i] - 1] == 0x44) &&
                        (area[bad - at] == 0x44));
    }

    TAP_CHILD_CHECK(move_list(dir, bad - 16) == UCS_ERR_INVALID_ADDR);
    memset(mine, 0x55, 12288);
    TAP_CHILD_CHECK(move_list(NP_DIR_PUT, NULL) == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK((area[0] == 0x55) && (area[3107] == 0x55) &&
                    (area[3108] == 0x44));
    memset(mine, 0, 12288);
    TAP_CHILD_CHECK(move_list(NP_DIR_GET, NULL) == UCS_OK);
    TAP_CHILD_CHECK((mine[99] == 0x55) && (mine[100] == 0) &&
                    (mine[8192] == 0x55) && (mine[8192 + 2999] == 0x55) &&
                    (mine[8192 + 3000] == 0) && (mine[4103] == 0x55));
    TAP_CHILD_CHECK((mocked_flush() == UCS_OK) && (down == UCS_OK));
    return 0;
}

static int own_is_missing(int is_unmapped, np_dir_t dir)
{
    /* the kernel registers a large source that nobody may read */
    const size_t max = (is_unmapped || (dir == NP_DIR_GET)) ? SIZE_MAX : 20000;
    uint8_t *bad;

    ucs_log_push_handler(count_errors);
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    bad = mine + (1 << 20);
    TAP_CHILD_CHECK((is_unmapped ? munmap(bad, 1 << 20) :
                     mprotect(bad, 1 << 20, PROT_NONE)) == 0);
    TAP_CHILD_CHECK(own_ends(dir, bad, max) == 0);
    TAP_CHILD_CHECK(errors_said > 0);
    mocked_end();
    return 0;
}

static int own_source_is_unmapped(void)
{
    return own_is_missing(1, NP_DIR_PUT);
}

static int own_sink_is_unmapped(void)
{
    return own_is_missing(1, NP_DIR_GET);
}

static int own_source_is_protected(void)
{
    return own_is_missing(0, NP_DIR_PUT);
}

static int own_sink_is_protected(void)
{
    return own_is_missing(0, NP_DIR_GET);
}

#define FILE_PART (1ul << 20) /* that is a file's, of area or mine */

/* From there on it is a file that is mapped for reading only, full of a byte */
static int map_to_read(uint8_t *at, uint8_t byte)
{
    int fd = memfd_create("read", MFD_CLOEXEC);
    uint8_t *bytes;

    if ((fd < 0) || (ftruncate(fd, FILE_PART) != 0)) {
        return 0;
    }

    bytes = mmap(NULL, FILE_PART, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (bytes == MAP_FAILED) {
        return 0;
    }

    memset(bytes, byte, FILE_PART);
    munmap(bytes, FILE_PART);
    bytes = mmap(at, FILE_PART, PROT_READ, MAP_SHARED | MAP_FIXED, fd, 0);
    close(fd);
    return bytes == at;
}

/* Between mine and area, at the same offset of both */
static ucs_status_t move_at(np_dir_t dir, size_t offset, size_t len)
{
    return mocked_move(dir, mine + offset, len, area + offset);
}

/* What is mapped from a file for reading only can be read, of either side: all
 * of what moves, or a part in the middle */
static int file_is_read(np_dir_t dir)
{
    static const size_t sizes[] = {80, 8192, 100000, 1 << 20, (1 << 20) + 90000};
    uint8_t *from, *to;
    size_t offset;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    from = (dir == NP_DIR_GET) ? area : mine;
    to   = (dir == NP_DIR_GET) ? mine : area;
    memset(from, 1, MOCKED_AREA);
    TAP_CHILD_CHECK(map_to_read(from + FILE_PART, 2));
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        offset = FILE_PART - ((sizes[i] > FILE_PART) ? 80000 : 0);
        memset(to, 0, MOCKED_AREA);
        TAP_CHILD_CHECK(move_at(dir, offset, sizes[i]) == UCS_OK);
        TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
        TAP_CHILD_CHECK(memcmp(to + offset, from + offset, sizes[i]) == 0);
        TAP_CHILD_CHECK((to[offset - 1] == 0) && (to[offset + sizes[i]] == 0));
    }
    TAP_CHILD_CHECK(down == UCS_OK);
    mocked_end();
    return 0;
}

/* And not be written: an error, and the link goes on */
static int file_is_not_written(np_dir_t dir)
{
    const size_t len = 100000;
    uint8_t *part;

    ucs_log_push_handler(count_errors);
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    part = ((dir == NP_DIR_GET) ? mine : area) + FILE_PART;
    TAP_CHILD_CHECK(map_to_read(part, 2));
    TAP_CHILD_CHECK(move_at(dir, FILE_PART, len) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(move_at(dir, FILE_PART - len, 2 * len) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK((part[0] == 2) && (part[len - 1] == 2));
    memset(mine, 3, len);
    TAP_CHILD_CHECK(move_at(NP_DIR_PUT, 0, len) == UCS_OK);
    TAP_CHILD_CHECK((mocked_flush() == UCS_OK) && (area[len - 1] == 3));
    TAP_CHILD_CHECK(down == UCS_OK);
    mocked_end();
    return 0;
}

/* Nobody gets what its process may not read, in small or in large; what comes
 * before it, and what may only be read, all get */
static int protected_is_not_got(void)
{
    static const size_t sizes[] = {80, 20000, 100000, 1 << 20};
    uint8_t *part;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    part = area + FILE_PART;
    memset(area, 6, MOCKED_AREA);
    TAP_CHILD_CHECK(mprotect(part, FILE_PART, PROT_NONE) == 0);
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        memset(mine, 0, MOCKED_AREA);
        TAP_CHILD_CHECK(move_at(NP_DIR_GET, FILE_PART, sizes[i]) ==
                        UCS_ERR_INVALID_ADDR);
        TAP_CHILD_CHECK(move_at(NP_DIR_GET, FILE_PART - 4096, sizes[i] + 4096) ==
                        UCS_ERR_INVALID_ADDR);
        TAP_CHILD_CHECK((mine[FILE_PART] == 0) &&
                        (mine[FILE_PART + sizes[i] - 1] == 0));
        TAP_CHILD_CHECK(move_at(NP_DIR_GET, FILE_PART - sizes[i], sizes[i]) ==
                        UCS_OK);
        TAP_CHILD_CHECK(mine[FILE_PART - 1] == 6);
    }
    TAP_CHILD_CHECK(mprotect(part, FILE_PART, PROT_READ) == 0);
    TAP_CHILD_CHECK(move_at(NP_DIR_GET, 0, MOCKED_AREA) == UCS_OK);
    TAP_CHILD_CHECK(memcmp(mine, area, MOCKED_AREA) == 0);
    TAP_CHILD_CHECK((mocked_flush() == UCS_OK) && (down == UCS_OK));
    mocked_end();
    return 0;
}

/* What the kernel does not pin, though it can be written, is written by
 * messages */
static int unpinned_is_written(np_dir_t dir)
{
    const size_t len = 1 << 20;
    uint8_t *from, *to;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    from = (dir == NP_DIR_GET) ? area : mine;
    to   = (dir == NP_DIR_GET) ? mine : area;
    memset(from, 5, len);
    mock_refuse(to + 200000, 300000, EFAULT);
    TAP_CHILD_CHECK(move_at(dir, 0, len) == UCS_OK);
    TAP_CHILD_CHECK(mocked_flush() == UCS_OK);
    TAP_CHILD_CHECK((memcmp(from, to, len) == 0) && (to[len] == 0));
    mocked_end();
    return 0;
}

/* Each in a process of its own */
#define ONE_WAY(_name, _test, _dir) \
    static int _name(void) \
    { \
        return _test(_dir); \
    }

ONE_WAY(peers_file_is_read, file_is_read, NP_DIR_GET)
ONE_WAY(own_file_is_read, file_is_read, NP_DIR_PUT)
ONE_WAY(own_file_is_not_written, file_is_not_written, NP_DIR_GET)
ONE_WAY(peers_file_is_not_written, file_is_not_written, NP_DIR_PUT)
ONE_WAY(own_unpinned_is_written, unpinned_is_written, NP_DIR_GET)
ONE_WAY(peers_unpinned_is_written, unpinned_is_written, NP_DIR_PUT)

static np_region_t *half_of_mine;

/* All of theirs is registered, and of ours the first half */
static void set_exact(np_engine_config_t *config)
{
    static np_region_t *all_of_theirs;

    config->mr_scope = NP_MR_SCOPE_EXACT;
    if ((np_region_get(MOCKED_AREA_AT, MOCKED_AREA, &all_of_theirs) !=
         UCS_OK) ||
        (np_region_get(MOCKED_MINE_AT, MOCKED_AREA / 2, &half_of_mine) !=
         UCS_OK)) {
        half_of_mine = NULL;
    }
}

/* With exact scope our own memory must be registered too, but for what its
 * caller copies */
static int own_must_be_registered(void)
{
    static const size_t sizes[] = {8, 5000, 100000};
    uint8_t *end, *area_end;
    ucs_status_t status;
    unsigned i, dir;

    mocked_engine = set_exact;
    ucs_log_push_handler(count_errors);
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    TAP_CHILD_CHECK(half_of_mine != NULL);
    end      = mine + (MOCKED_AREA / 2);
    area_end = area + MOCKED_AREA;
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        for (dir = NP_DIR_GET; dir <= NP_DIR_PUT; ++dir) {
            memset(mine, i + 1, MOCKED_AREA);
            memset(area, dir + 1, MOCKED_AREA);
            TAP_CHILD_CHECK(mocked_move(dir, end - sizes[i] + 1, sizes[i],
                                        area) == UCS_ERR_INVALID_ADDR);
            TAP_CHILD_CHECK(mocked_move(dir, end, sizes[i], area) ==
                            UCS_ERR_INVALID_ADDR);
            TAP_CHILD_CHECK((area[0] == (dir + 1)) && (*end == (i + 1)));
            TAP_CHILD_CHECK(mocked_move(dir, end - sizes[i], sizes[i],
                                        area_end - sizes[i]) == UCS_OK);
            TAP_CHILD_CHECK(end[-1] == area_end[-1]);
        }
    }
    TAP_CHILD_CHECK(errors_said == (4 * i));
    TAP_CHILD_CHECK(move_list(NP_DIR_PUT, end - 2999) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(move_list(NP_DIR_PUT, end - 3000) == UCS_OK);
    MOCKED_POST(status, np_ep_put_copied(&link_.flight, key, end, 8,
                                         (uintptr_t)area));
    TAP_CHILD_CHECK((status == UCS_OK) && (mocked_flush() == UCS_OK));

    np_region_put(half_of_mine);
    TAP_CHILD_CHECK(mocked_move(NP_DIR_PUT, mine, 8, area) ==
                    UCS_ERR_INVALID_ADDR);
    mocked_end();
    return 0;
}

#define FEW_PAGE 4096ul

/* Memory of which few pages are there at a time: the oldest goes for each that
 * comes. All pages are zero. */
static struct {
    int      fd;
    uint8_t  *base;
    unsigned count;             /* at a time */
    size_t   pages[16];         /* by arrival, a ring */
    size_t   arrived;
} few;

static void *few_bring(void *arg)
{
    static uint8_t zeros[FEW_PAGE];
    struct uffdio_copy copy = {.src = (uintptr_t)zeros, .len = FEW_PAGE};
    struct uffd_msg msg;
    size_t *oldest;

    while (read(few.fd, &msg, sizeof(msg)) == sizeof(msg)) {
        oldest = &few.pages[few.arrived++ % few.count];
        if (few.arrived > few.count) {
            madvise(few.base + *oldest, FEW_PAGE, MADV_DONTNEED);
        }
        copy.dst = msg.arg.pagefault.address & ~(FEW_PAGE - 1);
        *oldest  = copy.dst - (uintptr_t)few.base;
        ioctl(few.fd, UFFDIO_COPY, &copy);
    }
    return NULL;
}

/* Returns 0: that cannot be had here */
static int few_pages(uint8_t *base, unsigned count)
{
    struct uffdio_register all = {
        .range = {(uintptr_t)base, MOCKED_AREA},
        .mode  = UFFDIO_REGISTER_MODE_MISSING
    };
    struct uffdio_api api      = {.api = UFFD_API};
    pthread_t thread;

    alarm(MOCKED_LIMIT); /* a system call may never end */
    few.base  = base;
    few.count = count;
    few.fd    = syscall(SYS_userfaultfd, O_CLOEXEC);
    return (few.fd >= 0) && (madvise(base, MOCKED_AREA, MADV_DONTNEED) == 0) &&
           (ioctl(few.fd, UFFDIO_API, &api) == 0) &&
           (ioctl(few.fd, UFFDIO_REGISTER, &all) == 0) &&
           (pthread_create(&thread, NULL, few_bring, NULL) == 0);
}

/* More is asked for at once than can be there */
static int few_pages_are_got(void)
{
    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    memset(mine, 1, 300000);
    if (!few_pages(area, 8)) {
        return 77;
    }
    TAP_CHILD_CHECK(mocked_move(NP_DIR_GET, mine, 300000, area) == UCS_OK);
    TAP_CHILD_CHECK((mine[0] == 0) && (mine[299999] == 0));
    return 0;
}

/* And by one message */
static int few_pages_are_put(void)
{
    mocked_comp_t comp = {0, UCS_OK};
    np_iov_t iov[NP_MAX_IOV];
    ucs_status_t status;
    unsigned i;

    TAP_CHILD_CHECK(mocked_start(NP_SERVICE_OFF, 0, NULL));
    memset(area, 1, NP_MAX_IOV * 100);
    if (!few_pages(mine, 2)) {
        return 77;
    }
    for (i = 0; i < NP_MAX_IOV; ++i) {
        iov[i] = (np_iov_t){mine + (i * 2 * FEW_PAGE), 100};
    }
    MOCKED_POST(status, np_ep_move(NP_DIR_PUT, &link_.flight, key, iov,
                                   NP_MAX_IOV, (uintptr_t)area, &comp));
    TAP_CHILD_CHECK((status == UCS_INPROGRESS) &&
                    mocked_wait(mocked_is_done, &comp, NULL) &&
                    (comp.status == UCS_OK));
    TAP_CHILD_CHECK((area[0] == 0) && (area[(NP_MAX_IOV * 100) - 1] == 0));
    return 0;
}

void test_rights(void)
{
    TAP_CHECK(tap_child(own_source_is_unmapped) &&
              tap_child(own_sink_is_unmapped),
              "one's own memory that is not mapped is an error, no signal");
    TAP_CHECK(tap_child(own_source_is_protected) &&
              tap_child(own_sink_is_protected), "nor is what has no rights");
    TAP_CHECK(tap_child(peers_file_is_read) && tap_child(own_file_is_read),
              "what is mapped from a file for reading only is read");
    TAP_CHECK(tap_child(own_file_is_not_written) &&
              tap_child(peers_file_is_not_written), "and not written");
    TAP_CHECK(tap_child(own_unpinned_is_written) &&
              tap_child(peers_unpinned_is_written),
              "what the kernel does not pin is written");
    TAP_CHECK(tap_child(protected_is_not_got),
              "what its process may not read no peer gets");
    TAP_CHECK(tap_child(own_must_be_registered),
              "with exact scope it must be registered");
    tap_child_check(few_pages_are_got, "more is got than can be there at once",
                    "no userfaultfd (root, or vm.unprivileged_userfaultfd=1)");
    tap_child_check(few_pages_are_put, "and put by one message",
                    "no userfaultfd (root, or vm.unprivileged_userfaultfd=1)");
}
