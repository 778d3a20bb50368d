/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A log in memory that is made of all that can be in its file: records, parts
 * of them, what was there before once more, bytes of any kind. A walk has each
 * record that was written as a whole, where it is, and nothing that nobody has
 * written.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "files/log.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_SIZE  8192
#define MAX_MADE  96

/* A record that was made, at least in part */
typedef struct made {
    uint64_t at;
    size_t   length;
    int      is_whole;
    uint8_t  data[256];
} made_t;

static struct {
    nprdma_log_t super;
    uint8_t      bytes[MAX_SIZE];
    uint8_t      is_raw[MAX_SIZE];  /* of the input, which learns checksums */
    size_t       size;
    made_t       made[MAX_MADE];
    unsigned     num_made;
} file;

/* What a walk has told so far */
typedef struct told {
    uint64_t from, count, data;
    unsigned next;
} told_t;


static void fail(const char *what, uint64_t at)
{
    fprintf(stderr, "FUZZ: %s: at %lu of %zu\n", what, at, file.size);
    abort();
}

static ssize_t file_read(nprdma_log_t *log, void *data, size_t length,
                         uint64_t at)
{
    if ((length == 0) || (at >= file.size) || (length > (file.size - at))) {
        fail("a read beyond the end, or of nothing", at);
    }

    memcpy(data, file.bytes + at, length);
    return length;
}

static int file_append(nprdma_log_t *log, const struct iovec *iov, int count,
                       size_t length, uint64_t *at)
{
    int i;

    if (length > (MAX_SIZE - file.size)) {
        return -ENOSPC;
    }

    if (at != NULL) {
        *at = file.size;
    }
    memset(file.is_raw + file.size, 0, length);
    for (i = 0; i < count; ++i) {
        memcpy(file.bytes + file.size, iov[i].iov_base, iov[i].iov_len);
        file.size += iov[i].iov_len;
    }
    return 0;
}

static int64_t file_size(nprdma_log_t *log)
{
    return file.size;
}

static const nf_log_ops_t file_ops = {
    .read   = file_read,
    .append = file_append,
    .size   = file_size,
};

/* A record; of its bytes in the file so many are not written */
static void append(const uint8_t *data, size_t length, size_t lacks)
{
    made_t *made = &file.made[file.num_made];

    if ((file.num_made == MAX_MADE) || (length > sizeof(made->data))) {
        return;
    }

    made->length = length;
    memcpy(made->data, data, length);
    if (nprdma_log_append(&file.super, data, length, &made->at) != 0) {
        return;
    }

    lacks          = (lacks > length + NPRDMA_LOG_HEAD) ? 1 : lacks;
    file.size     -= lacks;
    made->is_whole = lacks == 0;
    ++file.num_made;
}

static void add_raw(const uint8_t *bytes, size_t length)
{
    if (length <= (MAX_SIZE - file.size)) {
        memcpy(file.bytes + file.size, bytes, length);
        memset(file.is_raw + file.size, 1, length);
        file.size += length;
    }
}

/* What is there once more */
static void add_copy(size_t from, size_t length)
{
    if (length <= (MAX_SIZE - file.size)) {
        memcpy(file.bytes + file.size, file.bytes + from, length);
        memcpy(file.is_raw + file.size, file.is_raw + from, length);
        file.size += length;
    }
}

static void change(size_t at, uint8_t bits)
{
    unsigned i;
    made_t *made;

    file.bytes[at] ^= bits;
    file.is_raw[at] = 1;
    for (i = 0; i < file.num_made; ++i) {
        made = &file.made[i];
        if ((at >= made->at) &&
            (at < (made->at + made->length + NPRDMA_LOG_HEAD))) {
            made->is_whole = 0;
        }
    }
}

/* Returns how many bytes of the input it has taken */
static size_t step(const uint8_t *input, size_t size)
{
    const uint8_t a      = (size > 1) ? input[1] : 0;
    const uint8_t b      = (size > 2) ? input[2] : 0;
    const uint8_t *more  = input + ((size < 3) ? size : 3);
    const size_t rest    = size - (more - input);
    const size_t length  = (a < rest) ? a : rest;
    const size_t from    = (file.size > 0) ? ((b * 16u + a) % file.size) : 0;
    const size_t earlier = ((file.size - from) < b) ? (file.size - from) : b;

    switch (input[0] % 6) {
    case 0:
        append(more, length, 0);
        return 3 + length;
    case 1:
        append(more, length, 1 + b);
        return 3 + length;
    case 2:
        add_raw(more, length);
        return 3 + length;
    case 3:
        add_copy(from, earlier);
        return 3;
    case 4:
        append(file.bytes + from, earlier, 0);
        return 3;
    default:
        if (file.size > 0) {
            change(from, 1u << (b % 8));
        }
        return 3;
    }
}

static int is_made(const made_t *made, const void *data, size_t length)
{
    return (made->length == length) &&
           (memcmp(made->data, data, length) == 0);
}

/* The next that is whole, and not before where the walk begins */
static void told_skip(told_t *told)
{
    while ((told->next < file.num_made) &&
           (!file.made[told->next].is_whole ||
            (file.made[told->next].at < told->from))) {
        ++told->next;
    }
}

static int each(void *arg, uint64_t at, const void *data, size_t length)
{
    told_t *told = arg;
    const made_t *next;
    unsigned i;

    told_skip(told);
    next = &file.made[told->next];
    if ((told->next < file.num_made) && (at >= next->at)) {
        if ((at > next->at) || !is_made(next, data, length)) {
            fail("a record is not told", next->at);
        }
        ++told->next;
    }

    for (i = 0; (i < file.num_made) &&
                !is_made(&file.made[i], data, length); ++i) {
    }
    if ((i == file.num_made) &&
        (memchr(file.is_raw + at, 1, NPRDMA_LOG_HEAD) == NULL)) {
        fail("what nobody has written", at);
    }
    ++told->count;
    told->data += length;
    return 0;
}

static void walk(uint64_t from, told_t *told)
{
    uint64_t end = from;

    *told = (told_t){.from = from};
    if (nprdma_log_walk(&file.super, &end, each, told) != 0) {
        fail("a walk fails", from);
    }
    told_skip(told);
    if (told->next < file.num_made) {
        fail("the last records are not told", file.made[told->next].at);
    }
    if ((end < from) || (end > file.size)) {
        fail("a walk ends elsewhere", end);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    nprdma_log_report_t report = {.size = sizeof(report)};
    told_t told;
    size_t i, from = size;

    file.super    = (nprdma_log_t){&file_ops, 1};
    file.size     = 0;
    file.num_made = 0;
    for (i = 0; i < size; i += step(data + i, size - i)) {
    }

    walk(0, &told);
    if ((nprdma_log_check(&file.super, &report, NULL, NULL) != 0) ||
        (report.records != told.count) || (report.data != told.data) ||
        ((report.data + (report.records * NPRDMA_LOG_HEAD) + report.lost +
          report.incomplete) != file.size)) {
        fail("a check has another result", report.records);
    }
    walk(from % (file.size + 1), &told);
    return 0;
}
