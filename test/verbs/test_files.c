/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Files of the target, over an RNIC that is not there: their bytes go in
 * messages, and neither a registration nor a view is made of them. Prints TAP.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "mocked.h"

#include "nprdma/mem/file.h"
#include "nprdma/proto/ep.h"

#include <ucs/debug/log.h>

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define FILE_MAX   (8ul << 20)   /* what it may become */
#define FILE_SIZE  ((3ul << 20) + 1234)

static const size_t sizes[] = {1, 8, 80, 4096, 5000, 20000, 100000, 1 << 20,
                               (2 << 20) + 77};

static np_file_t *file;
static int fd;
static uint8_t *bytes;           /* of the file, as its owner maps it */
static int has_module;


static ucs_log_func_rc_t
drop_errors(const char *source, unsigned line, const char *function,
            ucs_log_level_t level, const ucs_log_component_config_t *component,
            const char *format, va_list args)
{
    return (level == UCS_LOG_LEVEL_ERROR) ? UCS_LOG_FUNC_RC_STOP :
           UCS_LOG_FUNC_RC_CONTINUE;
}

/* From now on a key of the file is used. Returns its address, 0: none. */
static uint64_t use_key(unsigned rights)
{
    np_packed_key_t packed;
    uint64_t len;
    void *at;

    if (np_file_make_key(file, rights, &at, &len) != 0) {
        return 0;
    }

    np_key_release(key);
    np_key_pack_file(&packed, (uintptr_t)at, len);
    return (np_key_unpack(&packed, &key) == UCS_OK) ? (uintptr_t)at : 0;
}

/* Returns 0: something is wrong */
static int start(void)
{
    setenv("UCX_TLS", "nprdma", 1); /* else there is a warning */
    ucs_log_push_handler(drop_errors);
    fd = memfd_create("file", MFD_CLOEXEC);
    if ((fd < 0) || (ftruncate(fd, FILE_SIZE) != 0) ||
        !mocked_start(NP_SERVICE_OFF, has_module, NULL)) {
        return 0;
    }

    bytes = mmap(NULL, FILE_MAX, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return (bytes != MAP_FAILED) && (np_file_create(FILE_MAX, &file) == 0) &&
           (np_file_bind(file, fd, NP_FILE_READ | NP_FILE_WRITE) == 0);
}

static void end(void)
{
    np_file_destroy(file);
    mocked_end();
}

static ucs_status_t move(np_dir_t dir, size_t len, uint64_t offset)
{
    const ucs_status_t status = mocked_move(dir, mine, len, (void*)offset);

    return (status != UCS_OK) ? status : mocked_flush();
}

static ucs_status_t add(uint64_t value, uint64_t offset, uint64_t *was)
{
    mocked_comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    MOCKED_POST(status, np_ep_atomic(&link_.flight, key,
                                     &(np_atomic_t){.addr  = offset,
                                                    .value = value,
                                                    .op    = NP_ATOMIC_ADD,
                                                    .size  = sizeof(value)},
                                     was, &comp));
    return (status != UCS_INPROGRESS) ? status :
           mocked_wait(mocked_is_done, &comp, NULL) ? comp.status :
           UCS_ERR_TIMED_OUT;
}

/* Every size, to the end and not beyond it */
static int is_reached(void)
{
    uint64_t was, word;
    unsigned i, mrs;

    TAP_CHILD_CHECK(start());
    TAP_CHILD_CHECK(use_key(NP_FILE_READ | NP_FILE_WRITE) != 0);
    memset(mine, 0, MOCKED_AREA);
    TAP_CHILD_CHECK(move(NP_DIR_GET, MOCKED_AREA / 2, 0) == UCS_OK);
    for (i = 0; i < ucs_static_array_size(sizes); ++i) {
        memset(mine, i + 1, sizes[i]);
        TAP_CHILD_CHECK(move(NP_DIR_PUT, sizes[i], FILE_SIZE - sizes[i]) ==
                        UCS_OK);
        TAP_CHILD_CHECK(memcmp(mine, bytes + FILE_SIZE - sizes[i],
                               sizes[i]) == 0);
        memset(mine, 0, sizes[i]);
        mrs = mock_live_mrs();
        TAP_CHILD_CHECK(move(NP_DIR_GET, sizes[i], FILE_SIZE - sizes[i]) ==
                        UCS_OK);
        TAP_CHILD_CHECK(mock_live_mrs() <= mrs);
        TAP_CHILD_CHECK((mine[0] == (i + 1)) &&
                        (mine[sizes[i] - 1] == (i + 1)));
        TAP_CHILD_CHECK(move(NP_DIR_GET, sizes[i],
                             FILE_SIZE - sizes[i] + 1) == UCS_ERR_INVALID_ADDR);
    }

    word = 40;
    TAP_CHILD_CHECK(pwrite(fd, &word, sizeof(word), 8192) == sizeof(word));
    TAP_CHILD_CHECK((add(2, 8192, &was) == UCS_OK) && (was == 40));
    TAP_CHILD_CHECK((pread(fd, &word, sizeof(word), 8192) == sizeof(word)) &&
                    (word == 42));
    TAP_CHILD_CHECK(add(1, (FILE_SIZE | 7) + 1, &was) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(down == UCS_OK);
    end();
    return 0;
}

/* It grows, and is cut: what is gone is an error, no signal */
static int is_resized(void)
{
    TAP_CHILD_CHECK(start());
    TAP_CHILD_CHECK(use_key(NP_FILE_READ | NP_FILE_WRITE) != 0);
    memset(mine, 9, MOCKED_AREA);
    TAP_CHILD_CHECK(move(NP_DIR_PUT, 1 << 20, 2 << 20) == UCS_OK);
    TAP_CHILD_CHECK(np_file_resize(file, 2 << 20) == 0);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 1 << 20, 2 << 20) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(move(NP_DIR_PUT, 1 << 20, (2 << 20) - 8) ==
                    UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(ftruncate(fd, 1 << 20) == 0);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 2 << 20, 0) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(np_file_resize(file, 7 << 20) == 0);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 1 << 20, 6 << 20) == UCS_OK);
    TAP_CHILD_CHECK((mine[0] == 0) && (mine[(1 << 20) - 1] == 0));
    TAP_CHILD_CHECK(down == UCS_OK);
    end();
    return 0;
}

/* What its right does not allow, and what it did before it was revoked */
static int is_refused(void)
{
    uint64_t was, at;

    TAP_CHILD_CHECK(start());
    memset(bytes, 7, FILE_SIZE);
    TAP_CHILD_CHECK(use_key(NP_FILE_READ) != 0);
    memset(mine, 1, MOCKED_AREA);
    TAP_CHILD_CHECK(move(NP_DIR_PUT, 1 << 20, 0) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(add(1, 0, &was) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 1 << 20, 0) == UCS_OK);
    TAP_CHILD_CHECK((mine[0] == 7) && (bytes[0] == 7));

    at = use_key(NP_FILE_READ | NP_FILE_WRITE);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 4096, 0) == UCS_OK);
    TAP_CHILD_CHECK(np_file_revoke(file, (void*)at) == 0);
    memset(mine, 1, MOCKED_AREA);
    TAP_CHILD_CHECK(move(NP_DIR_PUT, 1 << 20, 0) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK(move(NP_DIR_GET, 8, 0) == UCS_ERR_INVALID_ADDR);
    TAP_CHILD_CHECK((mine[0] == 1) && (bytes[0] == 7) && (down == UCS_OK));
    end();
    return 0;
}

/* A small put has completed when it is refused: that ends its link */
static int small_put_ends_its_link(void)
{
    ucs_status_t status;

    TAP_CHILD_CHECK(start());
    TAP_CHILD_CHECK(use_key(NP_FILE_READ) != 0);
    MOCKED_POST(status, np_ep_put_copied(&link_.flight, key, "12345678", 8, 0));
    TAP_CHILD_CHECK((status == UCS_OK) && (mocked_flush() != UCS_OK));
    TAP_CHILD_CHECK((down != UCS_OK) && (bytes[0] == 0));
    return 0;
}

/* Each in a process of its own: where there are views, and where not */
static int is_right(int (*test)(void), int with_module)
{
    has_module = with_module;
    return tap_child(test);
}

void test_files(void)
{
    TAP_CHECK(is_right(is_reached, 0), "a file is read and written");
    TAP_CHECK(is_right(is_reached, 1), "and where there are views");
    TAP_CHECK(is_right(is_resized, 0), "it grows and shrinks");
    TAP_CHECK(is_right(is_resized, 1), "and where there are views");
    TAP_CHECK(is_right(is_refused, 0), "what its key forbids is refused");
    TAP_CHECK(is_right(is_refused, 1), "and where there are views");
    TAP_CHECK(is_right(small_put_ends_its_link, 0),
              "the refusal of a small put ends its link");
    TAP_CHECK(is_right(small_put_ends_its_link, 1),
              "and where there are views");
}
