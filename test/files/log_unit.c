/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logs: what a walk makes of each file that there can be. Those in memory are
 * cut at each byte and damaged in many ways. Prints TAP.
 *
 *     files_log_unit DIRECTORY [SEED]
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "files/crc32c.h"
#include "files/log.h"
#include "files/log_record.h"

#include "../engine/tap.h"

#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define MAX_RECORDS  64
#define MAX_SIZE     (64u << 10)
#define ROUNDS       20000
#define APPENDERS    4
#define APPENDS      5000

/* A log in memory */
typedef struct memory {
    nprdma_log_t super;
    uint8_t      data[MAX_SIZE];
    size_t       size;
} memory_t;

/* Records, as they were appended or found */
typedef struct records {
    unsigned      count;
    unsigned      stop;           /* a walk ends behind so many */
    uint64_t      at[MAX_RECORDS];
    size_t        length[MAX_RECORDS];
    const uint8_t *data[MAX_RECORDS];
    uint8_t       bytes[2 * MAX_SIZE];
    size_t        used;
} records_t;

unsigned tap_count, tap_failures;

static char path[4096];
static uint64_t seed = 1;
static memory_t memory, spoilt;
static records_t written, found;


static uint64_t any(void)
{
    seed ^= seed << 13;
    seed ^= seed >> 7;
    seed ^= seed << 17;
    return seed;
}

static ssize_t
memory_read(nprdma_log_t *log, void *data, size_t length, uint64_t at)
{
    memory_t *self = (memory_t*)log;

    length = (at >= self->size) ? 0 : (length > (self->size - at)) ?
             (self->size - at) : length;
    memcpy(data, self->data + at, length);
    return length;
}

static int memory_append(nprdma_log_t *log, const struct iovec *iov, int count,
                         size_t length, uint64_t *at)
{
    memory_t *self = (memory_t*)log;
    int i;

    if (length > (MAX_SIZE - self->size)) {
        return -ENOSPC;
    }

    if (at != NULL) {
        *at = self->size;
    }
    for (i = 0; i < count; ++i) {
        memcpy(self->data + self->size, iov[i].iov_base, iov[i].iov_len);
        self->size += iov[i].iov_len;
    }
    return 0;
}

static int64_t memory_size(nprdma_log_t *log)
{
    return ((memory_t*)log)->size;
}

static const nf_log_ops_t memory_ops = {
    .read   = memory_read,
    .append = memory_append,
    .size   = memory_size,
};

static int collect(void *arg, uint64_t at, const void *data, size_t length)
{
    records_t *records = arg;
    const unsigned i   = records->count;

    if ((i == MAX_RECORDS) ||
        (length > (sizeof(records->bytes) - records->used))) {
        return -E2BIG;
    }

    records->at[i]     = at;
    records->length[i] = length;
    records->data[i]   = records->bytes + records->used;
    if (length > 0) {
        memcpy(records->bytes + records->used, data, length);
    }
    records->used += length;
    ++records->count;
    return records->count == records->stop;
}

/* What a walk finds, beginning at *from; NULL: at 0 */
static int walk(nprdma_log_t *log, uint64_t *from)
{
    found.count = found.used = found.stop = 0;
    return nprdma_log_walk(log, from, collect, &found);
}

static int is_same(const records_t *a, unsigned i, const records_t *b,
                   unsigned j)
{
    return (a->length[i] == b->length[j]) &&
           (memcmp(a->data[i], b->data[j], a->length[i]) == 0);
}

/* What was found is what was written, from one on up to another */
static int is_found(unsigned first, unsigned end)
{
    unsigned i;

    for (i = 0; (i < found.count) && ((first + i) < end) &&
                is_same(&found, i, &written, first + i) &&
                (found.at[i] == written.at[first + i]); ++i) {
    }
    return (i == found.count) && ((first + i) == end);
}

static int append(nprdma_log_t *log, const void *data, size_t length)
{
    uint64_t at;
    int ret = nprdma_log_append(log, data, length, &at);

    return (ret != 0) ? ret : collect(&written, at, data, length);
}

static void fill(uint8_t *data, size_t length)
{
    size_t i;

    for (i = 0; i < length; ++i) {
        data[i] = any();
    }
}

/* Data that is like a log: all of what is there so far, heads without data, and
 * the bytes of the magic in any order */
static void append_alike(memory_t *to)
{
    static const uint8_t magic[] = {0xf9, 'l', 'o', 'g'};
    uint8_t data[1024];
    size_t i, length;

    length = to->size;
    memcpy(data, to->data, (length < 1024) ? length : 1024);
    append(&to->super, data, (length < 1024) ? length : 1024);
    append(&to->super, to->data, NPRDMA_LOG_HEAD);
    append(&to->super, magic, 4);
    append(&to->super, magic, 3);
    append(&to->super, magic, 1);
    for (i = 0; i < sizeof(data); ++i) {
        data[i] = magic[any() % 4];
    }
    append(&to->super, data, 777);
}

/* A small log with records of all kinds */
static void make(memory_t *to)
{
    static const unsigned lengths[] = {0, 1, 64, 3, 16, 0, 100, 20, 21, 500};
    uint8_t data[1024];
    unsigned i;

    memset(to, 0, sizeof(*to));
    to->super     = (nprdma_log_t){&memory_ops, 1};
    written.count = written.used = written.stop = 0;
    for (i = 0; i < (sizeof(lengths) / sizeof(lengths[0])); ++i) {
        fill(data, lengths[i]);
        append(&to->super, data, lengths[i]);
        if (i == 4) {
            append_alike(to);
        }
    }
}

static uint64_t end_of(unsigned i)
{
    return written.at[i] + NPRDMA_LOG_HEAD + written.length[i];
}

/* How many records end at or before an offset */
static unsigned whole_before(uint64_t at)
{
    unsigned i;

    for (i = 0; (i < written.count) && (end_of(i) <= at); ++i) {
    }
    return i;
}

static void test_crc(void)
{
    uint8_t data[300];
    unsigned i, length, shift, wrong;
    uint32_t crc;

    TAP_CHECK(nf_crc32c(0, "123456789", 9) == 0xe3069283, "CRC-32C of digits");
    memset(data, 0, 32);
    TAP_CHECK(nf_crc32c(0, data, 32) == 0x8a9136aa, "of zeroes (RFC 3720)");
    memset(data, 0xff, 32);
    TAP_CHECK(nf_crc32c(0, data, 32) == 0x62a8ab43, "of ones");
    for (i = 0; i < 32; ++i) {
        data[i] = i;
    }
    TAP_CHECK(nf_crc32c_by_tables(0, data, 32) == 0x46dd794e, "by tables");

    fill(data, sizeof(data));
    for (length = 0, wrong = 0; length < 280; ++length) {
        shift  = any() % 16;
        crc    = nf_crc32c(7, data + shift, length);
        i      = (length > 0) ? (any() % length) : 0;
        wrong += crc != nf_crc32c_by_tables(7, data + shift, length);
        wrong += crc != nf_crc32c(nf_crc32c_by_tables(7, data + shift, i),
                                  data + shift + i, length - i);
    }
    TAP_CHECK(wrong == 0, "both ways are the same, also in pieces");
}

/* The stored bytes, from the second one of each record on, have no magic */
static void test_magic(void)
{
    unsigned i, seen, masked = 0, wrong = 0;
    nf_log_head_t head;

    make(&memory);
    for (i = 0; i < written.count; ++i) {
        seen = 0;
        memcpy(&head, memory.data + written.at[i], sizeof(head));
        masked += head.mask != 0;
        wrong  += nf_log_find_magic(memory.data + written.at[i] + 1,
                                    end_of(i) - written.at[i] - 1,
                                    &seen) != NULL;
        wrong  += seen != 0;
    }
    TAP_CHECK((wrong == 0) && (masked >= 4), "a magic only begins where a "
              "record does: %u of %u are masked", masked, written.count);
    TAP_CHECK((walk(&memory.super, NULL) == 0) && is_found(0, written.count),
              "and a walk has the data as it was");
}

/* So many are masked that for some a second mask is needed */
static void test_masks(void)
{
    unsigned i, wrong = 0;

    make(&memory);
    for (i = 0; i < 5000; ++i) {
        memory.size = 0;
        nprdma_log_append(&memory.super, "\xf9log\xf9", 5, NULL);
        wrong += (walk(&memory.super, NULL) != 0) || (found.count != 1) ||
                 (memcmp(found.data[0], "\xf9log\xf9", 5) != 0);
    }
    TAP_CHECK(wrong == 0, "any mask is taken away again");
}

/* In pieces of all sizes, and of all positions, a magic is found once */
static void test_find(void)
{
    const uint8_t data[] = {0xf9, 'l', 'o', 0xf9, 0xf9, 'l', 0xf9, 'l', 'o',
                            'g', 'l', 'o', 'g'};
    unsigned seen, wrong = 0, first, second;
    const void *ends[3];

    for (first = 0; first <= sizeof(data); ++first) {
        for (second = first; second <= sizeof(data); ++second) {
            seen    = 0;
            ends[0] = nf_log_find_magic(data, first, &seen);
            ends[1] = nf_log_find_magic(data + first, second - first, &seen);
            ends[2] = nf_log_find_magic(data + second, sizeof(data) - second,
                                        &seen);
            wrong  += ((ends[0] == data + 10) + (ends[1] == data + 10) +
                      (ends[2] == data + 10)) != 1;
            wrong  += ((ends[0] != NULL) + (ends[1] != NULL) +
                      (ends[2] != NULL)) != 1;
        }
    }
    TAP_CHECK(wrong == 0, "a magic in pieces is found once");
}

/* It is as if it were being written: a walk ends before what is not whole, and
 * goes on when it is */
static void test_cut(void)
{
    unsigned wrong = 0, late = 0, whole;
    nprdma_log_report_t report = {.size = sizeof(report)};
    uint64_t from;
    size_t size;

    make(&memory);
    size = memory.size;
    for (memory.size = 0; memory.size <= size; ++memory.size) {
        whole  = whole_before(memory.size);
        from   = 0;
        wrong += (walk(&memory.super, &from) != 0) || !is_found(0, whole) ||
                 (from != ((whole > 0) ? end_of(whole - 1) : 0));
        wrong += (nprdma_log_check(&memory.super, &report, NULL, NULL) != 0) ||
                 (report.records != whole) || (report.damaged != 0) ||
                 (report.incomplete != (memory.size - from));

        spoilt      = memory;
        spoilt.size = size;
        late       += (walk(&spoilt.super, &from) != 0) ||
                      !is_found(whole, written.count) || (from != size);
    }
    TAP_CHECK(wrong == 0, "of a log that is cut at each of %zu bytes: what is "
              "whole", size);
    TAP_CHECK(late == 0, "and the rest when it is there");
}

/* A writer was killed at each byte, and another one goes on */
static void test_torn(void)
{
    nprdma_log_report_t report = {.size = sizeof(report)};
    unsigned wrong = 0, whole;
    uint64_t at, torn;
    size_t size;

    make(&memory);
    size = memory.size;
    for (memory.size = 0; memory.size <= size; ++memory.size) {
        whole  = whole_before(memory.size);
        torn   = memory.size - ((whole > 0) ? end_of(whole - 1) : 0);
        spoilt = memory;
        nprdma_log_append(&spoilt.super, "next", 4, &at);
        wrong += (at != memory.size) || (walk(&spoilt.super, NULL) != 0) ||
                 (found.count != (whole + 1)) || (found.at[whole] != at) ||
                 (memcmp(found.data[whole], "next", 4) != 0);
        --found.count;
        wrong += !is_found(0, whole);
        wrong += (nprdma_log_check(&spoilt.super, &report, NULL, NULL) != 0) ||
                 (report.damaged != (torn > 0)) || (report.lost != torn) ||
                 (report.incomplete != 0);
    }
    TAP_CHECK(wrong == 0, "behind a record that was torn at each byte the next "
              "is found");
}

/* What is found are records that were written, in their order, and all of them
 * which nobody has touched */
static int is_right(const uint8_t *touched)
{
    unsigned i, j, is_touched;

    for (i = 0, j = 0; i < written.count; ++i) {
        is_touched = memchr(touched + written.at[i], 1,
                            end_of(i) - written.at[i]) != NULL;
        if ((j < found.count) && is_same(&found, j, &written, i) &&
            (found.at[j] == written.at[i])) {
            ++j;
        } else if (!is_touched) {
            return 0;
        }
    }
    return j == found.count;
}

static void test_flips(void)
{
    static uint8_t touched[MAX_SIZE];
    unsigned i, round, wrong = 0, lost = 0;
    uint64_t from;
    size_t at;

    make(&memory);
    for (round = 0; round < ROUNDS; ++round) {
        spoilt = memory;
        memset(touched, 0, memory.size);
        for (i = 1 + (any() % 8); i > 0; --i) {
            at = any() % memory.size;
            switch (any() % 4) {
            case 0: /* in the part of the file that is heads */
                at = written.at[any() % written.count] +
                     (any() % NPRDMA_LOG_HEAD);
                /* fall through */
            case 1:
                spoilt.data[at] ^= 1u << (any() % 8);
                break;
            case 2:
                spoilt.data[at] = 0;
                break;
            default:
                spoilt.data[at] = memory.data[any() % memory.size];
            }
            touched[at] = 1;
        }
        from   = 0;
        wrong += (walk(&spoilt.super, &from) != 0) || !is_right(touched);
        lost  += found.count < written.count;
    }
    TAP_CHECK(wrong == 0, "bytes are changed, %u times: never a wrong record",
              ROUNDS);
    TAP_CHECK(lost > (ROUNDS / 2), "and records were lost by that (%u)", lost);
}

/* Pieces of the log itself, in any order, with anything between */
static void test_pieces(void)
{
    unsigned i, j, round, wrong = 0, total = 0;
    size_t at, length;

    make(&memory);
    for (round = 0; round < ROUNDS; ++round) {
        spoilt.super = memory.super;
        spoilt.size  = 0;
        while (spoilt.size < (any() % 6000)) {
            at     = (any() & 1) ? written.at[any() % written.count] :
                     (any() % memory.size);
            length = (any() & 1) ? (any() % (memory.size - at)) :
                     (end_of(whole_before(at)) - at);
            if (any() & 1) {
                memcpy(spoilt.data + spoilt.size, memory.data + at, length);
            } else {
                length = any() % 30;
                fill(spoilt.data + spoilt.size, length);
            }
            spoilt.size += length;
        }

        wrong += walk(&spoilt.super, NULL) != 0;
        total += found.count;
        for (i = 0; i < found.count; ++i) {
            for (j = 0; (j < written.count) &&
                        !is_same(&found, i, &written, j); ++j) {
            }
            wrong += j == written.count;
        }
    }
    TAP_CHECK((wrong == 0) && (total > ROUNDS), "of pieces in any order only "
              "what was written (%u) is found", total);
}

static void spread(nprdma_log_damage_cb_t damaged, records_t *ranges)
{
    nprdma_log_report_t report = {.size = sizeof(report)};

    ranges->count = 0;
    nprdma_log_check(&spoilt.super, &report, damaged, ranges);
}

static void note(void *arg, uint64_t at, uint64_t length)
{
    records_t *ranges = arg;

    ranges->at[ranges->count]       = at;
    ranges->length[ranges->count++] = length;
}

/* Garbage between records, with zeroes and halves of a magic */
static void test_garbage(void)
{
    static const struct {
        const char *data;
        size_t     length;
    } garbage[] = {
        {"?", 1},
        {"\xf9", 1},
        {"\xf9l", 2},
        {"\xf9lo", 3},
        {"\xf9log", 4},
        {"\xf9log\xf9log\xf9log\xf9log\xf9log\xf9log", 24},
        {"g", 1},
        {"log", 3},
        {"\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 23},
    };
    unsigned i, j, wrong = 0, ranges_wrong = 0;
    const unsigned num_garbage = sizeof(garbage) / sizeof(garbage[0]);

    for (i = 0; i < num_garbage; ++i) {
        make(&memory);
        spoilt.super = memory.super;
        spoilt.size  = 0;
        for (j = 0; j < written.count; ++j) {
            memcpy(spoilt.data + spoilt.size, garbage[i].data,
                   garbage[i].length);
            spoilt.size += garbage[i].length;
            memcpy(spoilt.data + spoilt.size, memory.data + written.at[j],
                   end_of(j) - written.at[j]);
            spoilt.size   += end_of(j) - written.at[j];
            written.at[j] += (j + 1) * garbage[i].length;
        }
        wrong += (walk(&spoilt.super, NULL) != 0) ||
                 !is_found(0, written.count);
        spread(note, &found);
        ranges_wrong += found.count != written.count;
        for (j = 0; j < written.count; ++j) {
            ranges_wrong += (found.length[j] != garbage[i].length) ||
                            ((found.at[j] + found.length[j]) !=
                             written.at[j]);
        }
    }
    TAP_CHECK(wrong == 0, "garbage between records is skipped");
    TAP_CHECK(ranges_wrong == 0, "and told by a check");
}

static void store_crc(uint32_t crc, uint8_t *to)
{
    crc = htole32(((crc >> 15) | (crc << 17)) + 0x9e3779b9u);
    memcpy(to, &crc, sizeof(crc));
}

/* A record that no writer makes: its data ends with a part of a magic. The next
 * one's, in place of that, must be found. */
static void test_forged(void)
{
    uint8_t forged[NPRDMA_LOG_HEAD + 6] = "\xf9log\6";
    unsigned wrong                      = 0;
    uint64_t at;
    size_t lacks;

    memcpy(forged + NPRDMA_LOG_HEAD, "abc\xf9lo", 6);
    store_crc(nf_crc32c(0, forged + NPRDMA_LOG_HEAD, 6), forged + 12);
    store_crc(nf_crc32c(0, forged, 16), forged + 16);
    for (lacks = 0; lacks <= 3; ++lacks) {
        make(&memory);
        memory.size = sizeof(forged) - lacks;
        memcpy(memory.data, forged, memory.size);
        nprdma_log_append(&memory.super, "next", 4, &at);
        wrong += (walk(&memory.super, NULL) != 0) || (found.count != 1) ||
                 (found.at[0] != at);
    }
    TAP_CHECK(wrong == 0, "a record cannot be forged to hide the next one");
}

/* Parts of heads in place of data: what a CRC has with another one within it */
static void test_nested(void)
{
    uint8_t *const data = memory.data + NPRDMA_LOG_HEAD;
    memory_t other;
    unsigned wrong = 0;

    make(&memory);
    make(&other);
    memory.size = other.size = 0;
    nprdma_log_append(&memory.super, "\xff\xff\xff\xff\xff\xff\xff\xff", 8,
                      NULL);
    memset(data, 0, 4);
    memcpy(data + 4, memory.data + offsetof(nf_log_head_t, data_crc), 4);
    wrong += (walk(&memory.super, NULL) != 0) || (found.count != 0);

    /* all of a head but what it begins with, and that of another record */
    nprdma_log_append(&other.super, "one", 3, NULL);
    nprdma_log_append(&other.super, "two", 3, NULL);
    memory.size = 0;
    nprdma_log_append(&memory.super, other.data + 3, 17, NULL);
    memcpy(data, other.data + 23 + 3, 17);
    wrong += (walk(&memory.super, NULL) != 0) || (found.count != 0);
    TAP_CHECK(wrong == 0, "a part of a head is no data");
}

static nprdma_log_t *start(int flags)
{
    nprdma_log_t *log;
    int ret = nprdma_log_open(path, flags, 0644, &log);

    if (ret != 0) {
        printf("Bail out! %s: %s\n", path, strerror(-ret));
        exit(1);
    }
    return log;
}

static void test_file(void)
{
    const struct iovec iov[] = {{"one", 3}, {NULL, 0}, {"two", 3}, {"", 0}};
    nprdma_log_t *log        = start(O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC);
    uint64_t at[4], from = 0;
    struct stat st;

    TAP_CHECK((nprdma_log_tell(log) == 0) && (walk(log, &from) == 0) &&
              (found.count == 0) && (from == 0), "a new log is empty");
    TAP_CHECK((nprdma_log_append(log, "first", 5, at) == 0) && (at[0] == 0) &&
              (nprdma_log_tell(log) == 25), "a record is appended");
    TAP_CHECK((nprdma_log_appendv(log, iov, 4, at) == 0) && (at[0] == 25),
              "another one, of pieces");
    TAP_CHECK((nprdma_log_append(log, NULL, 0, NULL) == 0) &&
              (nprdma_log_appendv(log, NULL, 0, NULL) == 0),
              "and two of nothing");
    TAP_CHECK((walk(log, &from) == 0) && (found.count == 4) &&
              (memcmp(found.bytes, "firstonetwo", 11) == 0) &&
              (found.length[1] == 6) && (found.length[3] == 0), "a walk tells "
              "them");
    TAP_CHECK((walk(log, &from) == 0) && (found.count == 0),
              "a later one has none");
    TAP_CHECK((nprdma_log_append_many(log, iov, 4, at) == 0) &&
              (at[0] == from) && (at[1] == (at[0] + 23)) &&
              (at[2] == (at[1] + 20)) && (at[3] == (at[2] + 23)),
              "four at once");
    TAP_CHECK((walk(log, &from) == 0) && (found.count == 4) &&
              (memcmp(found.at, at, sizeof(at)) == 0) &&
              (memcmp(found.bytes, "onetwo", 6) == 0),
              "then a walk has those four, where they are");
    TAP_CHECK(nprdma_log_append_many(log, iov, 0, at) == 0, "none at once");
    TAP_CHECK((nprdma_log_sync(log) == 0) && (stat(path, &st) == 0) &&
              (st.st_size == nprdma_log_tell(log)), "it is on the disk");

    found.count = found.used = 0;
    found.stop  = 2;
    from        = 0;
    TAP_CHECK((nprdma_log_walk(log, &from, collect, &found) == 1) &&
              (found.count == 2) && (from == 51), "a walk is stopped");
    found.stop = 0;
    TAP_CHECK((nprdma_log_walk(log, &from, collect, &found) == 0) &&
              (found.count == 8), "and goes on with the next");
    from = 30;
    TAP_CHECK((walk(log, &from) == 0) && (found.count == 6) &&
              (found.at[0] == 51), "one from the middle of a record");
    TAP_CHECK((nprdma_log_rewind(log) == 0) && (nprdma_log_tell(log) == 0) &&
              (walk(log, NULL) == 0) && (found.count == 0), "it is emptied");
    TAP_CHECK(walk(log, &from) == -ESTALE, "which an older walk is told");
    TAP_CHECK((nprdma_log_append(log, "new", 3, at) == 0) && (at[0] == 0) &&
              (walk(log, NULL) == 0) && (found.count == 1), "and goes on");
    nprdma_log_close(log);
}

static void test_flags(void)
{
    const int wrong[] = {O_WRONLY, O_RDWR | O_TRUNC, O_RDWR | O_EXCL,
                         O_RDWR | O_APPEND, O_ACCMODE, O_RDONLY | O_CREAT};
    nprdma_log_t *log, *none;
    nprdma_log_report_t report = {.size = 1};
    struct iovec iov           = {NULL, 0};
    unsigned i, opened = 0;

    for (i = 0; i < (sizeof(wrong) / sizeof(wrong[0])); ++i) {
        opened += nprdma_log_open(path, wrong[i], 0, &none) != -EINVAL;
        opened += none != NULL;
    }
    TAP_CHECK(opened == 0, "other flags are refused");
    TAP_CHECK((nprdma_log_open(path, O_RDWR | O_CREAT | O_EXCL, 0, &none) ==
               -EEXIST), "one that must be new is not");
    TAP_CHECK(nprdma_log_open("/nowhere/log", O_RDWR | O_CREAT, 0, &none) ==
              -ENOENT, "no such directory");
    TAP_CHECK((nprdma_log_open("/", O_RDONLY, 0, &none) == -EINVAL) &&
              (nprdma_log_open("/dev/null", O_RDWR, 0, &none) == -EINVAL),
              "what is no file");
    log = start(O_RDONLY);
    TAP_CHECK((nprdma_log_append(log, "", 0, NULL) == -EBADF) &&
              (nprdma_log_append_many(log, &iov, 1, NULL) == -EBADF) &&
              (nprdma_log_rewind(log) == -EBADF), "one for reading is not "
              "written");
    TAP_CHECK((walk(log, NULL) == 0) && (found.count == 1), "but read");
    TAP_CHECK(nprdma_log_check(log, &report, NULL, NULL) == -EINVAL,
              "a report of another size");
    nprdma_log_close(log);
    nprdma_log_close(NULL);
}

static int count_large(void *arg, uint64_t at, const void *data, size_t length)
{
    uint64_t *counts = arg;

    ++counts[0];
    counts[1] = nf_crc32c(counts[1], data, length);
    return 0;
}

/* The longest record, the longest batch, more pieces than one call takes */
static void test_large(void)
{
    const size_t length = NPRDMA_LOG_MAX;
    nprdma_log_t *log   = start(O_RDWR);
    uint8_t *data       = malloc(length + 1);
    struct iovec *iov   = calloc(5000, sizeof(*iov));
    uint64_t counts[2]  = {0, 0}, *at = calloc(5000, sizeof(*at));
    uint32_t crc        = 0;
    unsigned i;

    nprdma_log_rewind(log);
    for (i = 0; i < (length / 8); ++i) {
        ((uint64_t*)data)[i] = any();
    }
    memset(data + length - 16, 1, 17);
    TAP_CHECK((nprdma_log_append(log, data, length + 1, NULL) == -EMSGSIZE) &&
              (nprdma_log_append(log, data, SIZE_MAX, NULL) == -EMSGSIZE) &&
              (nprdma_log_tell(log) == 0), "more than 64 MiB are refused");
    TAP_CHECK((nprdma_log_append(log, data, length, NULL) == 0) &&
              (nprdma_log_tell(log) == NPRDMA_LOG_BATCH), "64 MiB are not");
    memcpy(data + 1000000, "\xf9log", 4);
    TAP_CHECK(nprdma_log_append(log, data, length, NULL) == 0,
              "nor with a magic in it");
    memcpy(data + 1000000, "????", 4);
    memset(data + 1000000, 0xf9, 1 << 20);
    for (i = 0; i < 10000; ++i) {
        iov[i % 5000] = (struct iovec){data + (7 * (i % 5000)), i % 5000};
        crc           = nf_crc32c(crc, data + (7 * (i % 5000)), i % 5000);
    }
    TAP_CHECK((nprdma_log_append_many(log, iov, 5000, at) == 0) &&
              (at[4999] == ((2ull * NPRDMA_LOG_BATCH) + (4999ull * 20) +
                            (4999ull * 4998 / 2))),
              "5000 records at once");
    TAP_CHECK(nprdma_log_appendv(log, iov, 5000, NULL) == 0, "and one of 5000 "
              "pieces");
    for (i = 0; i < 5000; ++i) {
        iov[i].iov_len = NPRDMA_LOG_MAX / 5000;
    }
    TAP_CHECK(nprdma_log_append_many(log, iov, 5000, at) == -EMSGSIZE,
              "more than 64 MiB with heads");
    TAP_CHECK((nprdma_log_walk(log, &at[0], count_large, counts) == 0) &&
              (counts[0] == 5001) && (counts[1] == crc), "they are found");
    counts[0] = 0;
    TAP_CHECK((nprdma_log_walk(log, NULL, count_large, counts) == 0) &&
              (counts[0] == 5003), "all of them");
    nprdma_log_rewind(log);
    nprdma_log_close(log);
    free(data);
    free(iov);
    free(at);
}

/* A part of a record is written: an error, and others go on behind it */
static void test_short(void)
{
    uint8_t data[800] = {0};
    nprdma_log_t *log = start(O_RDWR);
    struct rlimit before, limit;

    nprdma_log_rewind(log);
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    limit = (struct rlimit){1000, before.rlim_max};
    TAP_CHECK((setrlimit(RLIMIT_FSIZE, &limit) == 0) &&
              (nprdma_log_append(log, data, 800, NULL) == 0) &&
              (nprdma_log_append(log, data, 800, NULL) == -ENOSPC) &&
              (nprdma_log_tell(log) == 1000), "a part is written");
    TAP_CHECK(nprdma_log_append(log, data, 800, NULL) == -EFBIG,
              "then nothing");
    setrlimit(RLIMIT_FSIZE, &before);
    TAP_CHECK((nprdma_log_append(log, data, 800, NULL) == 0) &&
              (walk(log, NULL) == 0) && (found.count == 2) &&
              (found.at[1] == 1000), "and what comes later is found");
    nprdma_log_rewind(log);
    nprdma_log_close(log);
}

/* Threads that append to one log; each knows where its records are */
typedef struct appender {
    pthread_t    thread;
    nprdma_log_t *log;
    uint32_t     number;
    uint64_t     at[APPENDS];
} appender_t;

static void *appender_run(void *arg)
{
    appender_t *self = arg;
    uint32_t data[2] = {self->number, 0};

    for (; data[1] < APPENDS; ++data[1]) {
        if (nprdma_log_append(self->log, data, sizeof(data),
                              &self->at[data[1]]) != 0) {
            break;
        }
    }
    return NULL;
}

static int is_there(void *arg, uint64_t at, const void *data, size_t length)
{
    const appender_t *appenders = arg;
    uint32_t words[2];

    memcpy(words, data, sizeof(words));
    return (length != sizeof(words)) || (words[0] >= APPENDERS) ||
           (words[1] >= APPENDS) || (appenders[words[0]].at[words[1]] != at);
}

static void test_threads(void)
{
    static appender_t appenders[APPENDERS];
    nprdma_log_report_t report = {.size = sizeof(report)};
    nprdma_log_t *log          = start(O_RDWR);
    unsigned i;

    nprdma_log_rewind(log);
    for (i = 0; i < APPENDERS; ++i) {
        appenders[i].log    = log;
        appenders[i].number = i;
        pthread_create(&appenders[i].thread, NULL, appender_run, &appenders[i]);
    }
    for (i = 0; i < APPENDERS; ++i) {
        pthread_join(appenders[i].thread, NULL);
    }
    TAP_CHECK((nprdma_log_check(log, &report, NULL, NULL) == 0) &&
              (report.records == (APPENDERS * APPENDS)) &&
              (report.end == (report.records * (8 + NPRDMA_LOG_HEAD))),
              "%d threads append to one log", APPENDERS);
    TAP_CHECK(nprdma_log_walk(log, NULL, is_there, appenders) == 0,
              "and each is told where its records are");
    nprdma_log_rewind(log);
    nprdma_log_close(log);
}

/* A walk during which the log changes */
typedef struct changing {
    nprdma_log_t *log;
    unsigned     count;
    int          how;
} changing_t;

static int change(void *arg, uint64_t at, const void *data, size_t length)
{
    changing_t *changing = arg;

    if (changing->how == 0) {
        nprdma_log_append(changing->log, data, length, NULL);
    } else if (changing->count == 10) {
        if ((truncate(path, (changing->how == 1) ? 0 : at) != 0) ||
            (nprdma_log_append(changing->log, "other", 5, NULL) != 0)) {
            return -1;
        }
    }
    ++changing->count;
    return ((length == 5) || (length == 1000)) ? 0 : -2;
}

static void changing_fill(changing_t *changing)
{
    uint8_t data[1000];
    unsigned i;

    changing->count = 0;
    fill(data, sizeof(data));
    nprdma_log_rewind(changing->log);
    for (i = 0; i < 1000; ++i) {
        nprdma_log_append(changing->log, data, sizeof(data), NULL);
    }
}

static void test_changing(void)
{
    changing_t changing = {.log = start(O_RDWR)};
    uint64_t from       = 0;
    int ret;

    changing_fill(&changing);
    TAP_CHECK((nprdma_log_walk(changing.log, &from, change, &changing) == 0) &&
              (changing.count == 1000), "a walk ends where the end was when it "
              "began");
    TAP_CHECK((walk(changing.log, &from) == -E2BIG) || (found.count > 0),
              "and what came later is there");
    for (changing.how = 1; changing.how < 3; ++changing.how) {
        changing_fill(&changing);
        ret = nprdma_log_walk(changing.log, NULL, change, &changing);
        TAP_CHECK((ret == -ESTALE) && (changing.count > 10), "a walk during "
                  "which the log is cut: %s", strerror(-ret));
    }
    nprdma_log_rewind(changing.log);
    nprdma_log_close(changing.log);
}

/* A head that leads far away costs no memory, and many of them no time */
static void test_far(void)
{
    nprdma_log_t *log          = start(O_RDWR);
    const size_t count         = (16u << 20) / NPRDMA_LOG_HEAD;
    nprdma_log_report_t report = {.size = sizeof(report)};
    nf_log_head_t *heads       = calloc(count, sizeof(*heads));
    const struct iovec data    = {calloc(1, NPRDMA_LOG_MAX), NPRDMA_LOG_MAX};
    nf_log_record_t record;
    size_t i;
    int fd;

    nf_log_record_make(&record, &data, 1, NPRDMA_LOG_MAX);
    for (i = 0; i < count; ++i) {
        heads[i] = record.head;
    }
    fd = open(path, O_WRONLY);
    TAP_CHECK((write(fd, heads, count * sizeof(*heads)) ==
               (ssize_t)(count * sizeof(*heads))) &&
              (ftruncate(fd, 200ull << 20) == 0), "many heads, and zeroes");
    TAP_CHECK((nprdma_log_check(log, &report, NULL, NULL) == 0) &&
              (report.records == 1) && (report.damaged == 2) &&
              (report.data == NPRDMA_LOG_MAX), "only the last one has data");
    TAP_CHECK((ftruncate(fd, count * sizeof(*heads)) == 0) &&
              (nprdma_log_check(log, &report, NULL, NULL) == 0) &&
              (report.records == 0) && (report.incomplete == NPRDMA_LOG_HEAD),
              "or it will have");
    close(fd);
    nprdma_log_rewind(log);
    nf_log_record_make(&record, NULL, 0, NPRDMA_LOG_MAX + 1);
    make(&memory);
    memory.size = sizeof(record.head);
    memcpy(memory.data, &record.head, memory.size);
    TAP_CHECK((nprdma_log_check(&memory.super, &report, NULL, NULL) == 0) &&
              (report.damaged == 1) && (report.incomplete == 0),
              "one with too much is never waited for");
    nprdma_log_close(log);
    free(data.iov_base);
    free(heads);
}

int main(int argc, char **argv)
{
    if (argc < 2) {
        fprintf(stderr, "Usage: files_log_unit DIRECTORY [SEED]\n");
        return 2;
    }

    snprintf(path, sizeof(path), "%s/log", argv[1]);
    seed = (argc > 2) ? strtoull(argv[2], NULL, 0) : 1;
    setvbuf(stdout, NULL, _IOLBF, 0);
    test_crc();
    test_find();
    test_magic();
    test_masks();
    test_cut();
    test_torn();
    test_flips();
    test_pieces();
    test_garbage();
    test_forged();
    test_nested();
    test_file();
    test_flags();
    test_large();
    test_short();
    test_threads();
    test_changing();
    test_far();
    unlink(path);
    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
