/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Logs: their records are found again, in one pass, whatever is in the file. It
 * may change meanwhile; so it is read, and never mapped.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "log.h"
#include "log_record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* So much is read at once, if no record is longer; a test has less */
#ifndef NF_LOG_WINDOW
#  define NF_LOG_WINDOW (256u << 10)
#endif

/* Nothing before what is looked at is needed */
#define NF_LOG_NO_KEEP  UINT64_MAX

#define nf_min(_a, _b)  (((_a) < (_b)) ? (_a) : (_b))

/* What is at a magic; or a negative errno */
enum {
    NF_LOG_END,     /* no more, or one that is not whole yet */
    NF_LOG_RECORD,
    NF_LOG_DAMAGE
};

/* A part of the file, which moves forwards */
typedef struct nf_log_reader {
    nprdma_log_t *log;
    uint64_t     end;      /* of the file, when this began */
    uint64_t     base;     /* where the part is */
    size_t       have;     /* bytes of it */
    uint8_t      *buffer;
    size_t       size;
} nf_log_reader_t;


static int nf_log_reader_begin(nf_log_reader_t *reader, nprdma_log_t *log,
                               uint64_t from)
{
    const int64_t size = log->ops->size(log);

    *reader = (nf_log_reader_t){.log = log, .end = size, .base = from};
    return (size < 0) ? (int)size : (from > reader->end) ? -ESTALE : 0;
}

static void nf_log_reader_end(nf_log_reader_t *reader)
{
    free(reader->buffer);
}

static void *nf_log_reader_at(const nf_log_reader_t *reader, uint64_t at)
{
    return reader->buffer + (at - reader->base);
}

/* Have room for so many bytes from the part's begin on, or for more */
static int nf_log_reader_grow(nf_log_reader_t *reader, size_t length)
{
    const uint64_t rest = reader->end - reader->base;
    size_t size         = 2 * reader->size;
    void *buffer;

    if (length <= reader->size) {
        return 0;
    }

    size   = (size < NF_LOG_WINDOW) ? NF_LOG_WINDOW : size;
    size   = (size < length) ? length : size;
    size   = nf_min(size, rest);
    buffer = realloc(reader->buffer, size);
    if (buffer == NULL) {
        return -ENOMEM;
    }

    reader->buffer = buffer;
    reader->size   = size;
    return 0;
}

/* Have these bytes, all before the end; what is before them goes */
static int nf_log_reader_want(nf_log_reader_t *reader, uint64_t at,
                              size_t length)
{
    size_t gone, more;
    ssize_t done;
    int ret;

    if ((at + length) <= (reader->base + reader->have)) {
        return 0;
    }

    gone          = nf_min(at - reader->base, reader->have);
    reader->base  = at;
    reader->have -= gone;
    if (reader->have > 0) {
        memmove(reader->buffer, reader->buffer + gone, reader->have);
    }
    ret = nf_log_reader_grow(reader, length);
    if (ret != 0) {
        return ret;
    }

    at   = reader->base + reader->have;
    more = nf_min(reader->size - reader->have, reader->end - at);
    done = reader->log->ops->read(reader->log, reader->buffer + reader->have,
                                  more, at);
    if (done != (ssize_t)more) {
        return (done < 0) ? done : -ESTALE;
    }

    reader->have += more;
    return 0;
}

/* Find a magic that is between two offsets as a whole. What is from @a keep on
 * stays at hand. Returns 1, and where it is; 0, and where a part of one is at
 * the end, or the end; or a negative errno. */
static int nf_log_find(nf_log_reader_t *reader, uint64_t keep, uint64_t from,
                       uint64_t to, uint64_t *at)
{
    unsigned seen = 0;
    const uint8_t *behind, *data;
    uint64_t first;
    size_t length;
    int ret;

    while (from < to) {
        first = nf_min(keep, from - seen);
        ret   = nf_log_reader_want(reader, first, from - first + 1);
        if (ret != 0) {
            return ret;
        }

        data   = nf_log_reader_at(reader, from);
        length = nf_min(reader->base + reader->have, to) - from;
        behind = nf_log_find_magic(data, length, &seen);
        if (behind != NULL) {
            *at = from + (behind - data) -
                  sizeof(((nf_log_head_t*)NULL)->magic);
            return 1;
        }
        from += length;
    }

    *at = to - seen;
    return 0;
}

/* What is at a magic. Of a record all is at hand then. */
static int nf_log_judge(nf_log_reader_t *reader, uint64_t at,
                        nf_log_head_t *head, uint64_t *next)
{
    const uint64_t rest = reader->end - at;
    size_t length       = 0;
    uint64_t stored;
    int ret;

    if (rest >= sizeof(*head)) {
        ret = nf_log_reader_want(reader, at, sizeof(*head));
        if (ret != 0) {
            return ret;
        }

        memcpy(head, nf_log_reader_at(reader, at), sizeof(*head));
        if (!nf_log_head_read(head, &length)) {
            *next = at + 1;
            return NF_LOG_DAMAGE;
        }
    }

    stored = sizeof(*head) + length;
    ret    = nf_log_find(reader, (stored <= rest) ? at : NF_LOG_NO_KEEP, at + 1,
                         at + nf_min(stored, rest), next);
    if (ret < 0) {
        return ret;
    }

#ifndef NP_FUZZ_MUTANT /* the deliberate fault that fuzzing must find */
    if (ret > 0) {
        return NF_LOG_DAMAGE; /* it was not written to its end */
    }
#endif

    if (stored > rest) {
        return NF_LOG_END;
    }

    /* no writer lets it end with a part of a magic, which may be the next
     * one's */
    return ((*next == (at + stored)) &&
            nf_log_data_read(head, (uint8_t*)nf_log_reader_at(reader, at) +
                                   sizeof(*head), length)) ? NF_LOG_RECORD :
           NF_LOG_DAMAGE;
}

/* The next record from @a *at on, or where there will be one: NF_LOG_RECORD,
 * NF_LOG_END, or a negative errno, which leaves @a *at. */
static int nf_log_next(nf_log_reader_t *reader, uint64_t *at,
                       const void **data, size_t *length)
{
    uint64_t next = *at, found;
    nf_log_head_t head;
    int ret;

    do {
        ret = nf_log_find(reader, NF_LOG_NO_KEEP, next, reader->end, &found);
        if (ret > 0) {
            ret = nf_log_judge(reader, found, &head, &next);
        }
    } while (ret == NF_LOG_DAMAGE);
    if (ret < 0) {
        return ret;
    }

    *at = found;
    if (ret == NF_LOG_RECORD) {
        *data = (uint8_t*)nf_log_reader_at(reader, found) + sizeof(head);
        nf_log_head_read(&head, length);
    }
    return ret;
}

int nprdma_log_walk(nprdma_log_t *log, uint64_t *from, nprdma_log_cb_t each,
                    void *arg)
{
    uint64_t at = (from != NULL) ? *from : 0;
    nf_log_reader_t reader;
    const void *data;
    uint64_t begin;
    size_t length;
    int ret, is_ended;

    ret = nf_log_reader_begin(&reader, log, at);
    if (ret != 0) {
        return ret;
    }

    do {
        ret      = nf_log_next(&reader, &at, &data, &length);
        is_ended = ret != NF_LOG_RECORD;
        if (!is_ended) {
            begin = at;
            at   += NPRDMA_LOG_HEAD + length;
            ret   = each(arg, begin, data, length);
        }
    } while (!is_ended && (ret == 0));
    nf_log_reader_end(&reader);
    if (from != NULL) {
        *from = at;
    }
    return ret;
}

int nprdma_log_check(nprdma_log_t *log, nprdma_log_report_t *report,
                     nprdma_log_damage_cb_t damaged, void *arg)
{
    uint64_t at = 0, behind = 0;
    nf_log_reader_t reader;
    const void *data;
    size_t length;
    int ret;

    if (report->size != sizeof(*report)) {
        return -EINVAL;
    }

    ret = nf_log_reader_begin(&reader, log, 0);
    if (ret != 0) {
        return ret;
    }

    *report = (nprdma_log_report_t){.size = report->size, .end = reader.end};
    do {
        ret = nf_log_next(&reader, &at, &data, &length);
        if ((ret >= 0) && (at > behind)) {
            ++report->damaged;
            report->lost += at - behind;
            if (damaged != NULL) {
                damaged(arg, behind, at - behind);
            }
        }
        if (ret == NF_LOG_RECORD) {
            ++report->records;
            report->data += length;
            at           += NPRDMA_LOG_HEAD + length;
            behind        = at;
        }
    } while (ret == NF_LOG_RECORD);
    report->incomplete = reader.end - at;
    nf_log_reader_end(&reader);
    return ret;
}
