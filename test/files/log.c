/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Who writes a log, and who reads it. A record tells its writer and number, and
 * all of its data follows from these; so each that is found is judged.
 *
 *     files_log write LOG WRITER COUNT MIN MAX
 *     files_log follow LOG COUNT
 *     files_log list LOG
 *     files_log check LOG
 *     files_log calls LOG
 *
 * write: COUNT records of MIN to MAX bytes; each that is acknowledged is a line
 * "WRITER NUMBER LENGTH OFFSET" on standard output. follow: walk again and
 * again, until COUNT records have been seen: each once, those of each writer in
 * order; it says when it begins. list: the lines of all. calls: each call once,
 * for a log that is not there before. LOG: a file, or ":PATH" of the server of
 * this host.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include <nprdma/nprdma_log.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MAX_WRITERS 256
#define MANY        3
#define MAX_LENGTH  (8u << 20)

#define CALL(_condition)  call(_condition, __LINE__)

/* A record's data begins so */
typedef struct start {
    uint32_t writer;
    uint32_t length;
    uint64_t number;
} start_t;

/* What a reader has seen */
typedef struct seen {
    uint64_t count, wanted;
    uint64_t next[MAX_WRITERS];
    uint64_t end;
    int      is_listed;
    int      in_order;
} seen_t;

static uint64_t expected[MAX_LENGTH / sizeof(uint64_t)];


static int fail(const char *what, int error)
{
    fprintf(stderr, "files_log: %s: %s\n", what, strerror(-error));
    return 1;
}

static uint64_t mix(uint64_t value)
{
    value ^= value >> 31;
    value *= UINT64_C(0x7fb5d329728ea185);
    value ^= value >> 27;
    value *= UINT64_C(0x81dadef4bc2dd44d);
    return value ^ (value >> 33);
}

/* Data of a record, and its length. Of each third it is full of what a record
 * begins with. */
static size_t make(uint32_t writer, uint64_t number, size_t length, void *to)
{
    static const char alike[] = "\xf9log\xf9lo\xf9l\xf9\xf9log";
    uint64_t state            = mix(((uint64_t)writer << 40) + number);
    start_t start             = {writer, length, number};
    uint64_t *words           = to;
    size_t i;

    for (i = 0; (i * sizeof(*words)) < length; ++i) {
        state    = (state * UINT64_C(6364136223846793005)) + 1;
        words[i] = state;
    }
    if ((number % 3) == 0) {
        for (i = sizeof(start); i < length; ++i) {
            ((char*)to)[i] = alike[i % (sizeof(alike) - 1)];
        }
    }
    memcpy(to, &start, sizeof(start));
    return length;
}

static int open_log(const char *path, int flags, nprdma_log_t **log)
{
    static nprdma_server_t *server;
    int ret;

    if (path[0] == ':') {
        ret = (server != NULL) ? 0 : nprdma_server_connect(NULL, &server);
        return (ret != 0) ? ret :
               nprdma_log_open_remote(server, path + 1, flags, 0666, log);
    }

    return nprdma_log_open(path, flags, 0666, log);
}

static void acknowledge(uint32_t writer, uint64_t number, size_t length,
                        uint64_t at)
{
    char line[100];
    int count = snprintf(line, sizeof(line), "%u %" PRIu64 " %zu %" PRIu64 "\n",
                         writer, number, length, at);

    if (write(STDOUT_FILENO, line, count) != count) {
        exit(3);
    }
}

/* One, one in pieces, or some by one write, in turn. Returns how many, or a
 * negative errno. */
static int
write_some(nprdma_log_t *log, uint32_t writer, uint64_t number, uint64_t most,
           const size_t *lengths, uint8_t *data)
{
    const size_t part = sizeof(start_t) / 2;
    struct iovec iov[MANY];
    uint64_t at[MANY];
    int i, ret, count;

    count = (((number % 5) == 4) && (most >= MANY)) ? MANY : 1;
    for (i = 0; i < count; ++i) {
        iov[i].iov_base = data;
        iov[i].iov_len  = make(writer, number + i, lengths[i], data);
        data           += (lengths[i] + 7) & ~(size_t)7;
    }

    if (count > 1) {
        ret = nprdma_log_append_many(log, iov, count, at);
    } else if (number % 2) {
        ret = nprdma_log_append(log, iov[0].iov_base, iov[0].iov_len, at);
    } else {
        iov[1] = (struct iovec){(char*)iov[0].iov_base + part,
                                iov[0].iov_len - part};
        iov[0].iov_len = part;
        ret            = nprdma_log_appendv(log, iov, 2, at);
    }
    for (i = 0; (ret == 0) && (i < count); ++i) {
        acknowledge(writer, number + i, lengths[i], at[i]);
    }
    return (ret != 0) ? ret : count;
}

static int do_write(const char *path, uint32_t writer, uint64_t count,
                    size_t min, size_t max)
{
    uint8_t *data = malloc(MANY * (MAX_LENGTH + sizeof(uint64_t)));
    size_t lengths[MANY];
    uint64_t number;
    nprdma_log_t *log;
    int ret, i;

    ret = open_log(path, O_RDWR | O_CREAT | O_CLOEXEC, &log);
    if (ret != 0) {
        return fail(path, ret);
    }

    for (number = 0; number < count; number += ret) {
        for (i = 0; i < MANY; ++i) {
            lengths[i] = min + (mix(number + i + writer) % (max - min + 1));
        }
        ret = write_some(log, writer, number, count - number, lengths, data);
        if (ret < 0) {
            return fail("append", ret);
        }
    }
    nprdma_log_close(log);
    free(data);
    return 0;
}

static int judge(void *arg, uint64_t at, const void *data, size_t length)
{
    seen_t *seen = arg;
    start_t start;

    memcpy(&start, data, (length < sizeof(start)) ? length : sizeof(start));
    if ((length < sizeof(start)) || (start.length != length) ||
        (start.writer >= MAX_WRITERS) || (length > MAX_LENGTH)) {
        return fail("what nobody has written", -EINVAL);
    }

    make(start.writer, start.number, length, expected);
    if (memcmp(expected, data, length) != 0) {
        return fail("other data than was written", -EINVAL);
    }

    if (at < seen->end) {
        return fail("a record within another one", -EINVAL);
    }

    if ((start.number < seen->next[start.writer]) ||
        (seen->in_order && (start.number != seen->next[start.writer]))) {
        return fail("not in the order of its writer", -EINVAL);
    }

    if (seen->is_listed) {
        printf("%u %" PRIu64 " %zu %" PRIu64 "\n", start.writer, start.number,
               length, at);
    }
    seen->next[start.writer] = start.number + 1;
    seen->end                = at + NPRDMA_LOG_HEAD + length;
    ++seen->count;
    return 0;
}

static int do_read(const char *path, uint64_t count, int is_listed)
{
    seen_t seen    = {.is_listed = is_listed, .in_order = !is_listed};
    uint64_t from  = 0;
    unsigned walks = 0;
    nprdma_log_t *log;
    int ret;

    ret = open_log(path, is_listed ? O_RDONLY : (O_RDWR | O_CREAT), &log);
    if (ret != 0) {
        return fail(path, ret);
    }

    if (!is_listed) {
        printf("begun\n");
        fflush(stdout);
    }
    do {
        ret = nprdma_log_walk(log, &from, judge, &seen);
        ++walks;
    } while ((ret == 0) && (seen.count < count));
    if (ret < 0) {
        fail("walk", ret);
    }
    nprdma_log_close(log);
    if (!is_listed) {
        printf("%" PRIu64 " records in %u walks\n", seen.count, walks);
    }
    return (ret != 0) || (!is_listed && (seen.count != count));
}

static int count(void *arg, uint64_t at, const void *data, size_t length)
{
    unsigned *counts = arg;

    counts[0] += 1;
    counts[1] += length;
    return (length == 2) ? 7 : 0;
}

static void call(int is_right, int line)
{
    if (!is_right) {
        printf("%s:%d\n", __FILE__, line);
        exit(1);
    }
}

/* Ends the program at the first call that does not what it should */
static int do_calls(const char *path)
{
    const struct iovec iov[] = {{"one", 3}, {"", 0}, {"three", 5}};
    unsigned counts[2]       = {0, 0};
    uint64_t at[3], from     = 0;
    nprdma_log_t *log, *reader;

    CALL(open_log(path, O_RDONLY, &log) == -ENOENT);
    CALL(open_log(path, O_WRONLY, &log) == -EINVAL);
    CALL((open_log(path, O_RDWR | O_CREAT | O_EXCL, &log) == 0) && log);
    CALL((open_log(path, O_RDWR | O_CREAT | O_EXCL, &reader) == -EEXIST));
    CALL((reader == NULL) && (open_log(path, O_RDONLY, &reader) == 0));
    CALL(nprdma_log_append(reader, "", 0, NULL) == -EBADF);
    CALL(nprdma_log_rewind(reader) == -EBADF);
    CALL((nprdma_log_tell(log) == 0) && (nprdma_log_tell(reader) == 0));
    CALL((nprdma_log_append(log, "x", 1, &at[0]) == 0) && (at[0] == 0));
    CALL((nprdma_log_appendv(log, iov, 3, &at[0]) == 0) && (at[0] == 21));
    CALL(nprdma_log_append_many(log, iov, 3, at) == 0);
    CALL((at[0] == 49) && (at[1] == 72) && (at[2] == 92));
    CALL((nprdma_log_tell(log) == 117) && (nprdma_log_tell(reader) == 117));
    CALL(nprdma_log_walk(reader, &from, count, counts) == 0);
    CALL((from == 117) && (counts[0] == 5) && (counts[1] == 17));
    CALL(nprdma_log_append(log, "ab", 2, NULL) == 0);
    CALL(nprdma_log_append(log, "abc", 3, NULL) == 0);
    CALL((nprdma_log_walk(log, &from, count, counts) == 7) && (from == 139));
    CALL((nprdma_log_walk(log, &from, count, counts) == 0) && (from == 162));
    CALL((nprdma_log_sync(log) == 0) && (nprdma_log_sync(reader) == 0));
    CALL((nprdma_log_rewind(log) == 0) && (nprdma_log_tell(reader) == 0));
    CALL(nprdma_log_walk(reader, &from, count, counts) == -ESTALE);
    CALL((nprdma_log_append(log, "x", 1, &at[0]) == 0) && (at[0] == 0));
    CALL((nprdma_log_walk(reader, NULL, count, counts) == 0));
    CALL(counts[0] == 8);
    nprdma_log_close(reader);
    nprdma_log_close(log);
    return 0;
}

static void damaged(void *arg, uint64_t at, uint64_t length)
{
    printf("damaged %" PRIu64 " %" PRIu64 "\n", at, length);
}

static int do_check(const char *path)
{
    nprdma_log_report_t report = {.size = sizeof(report)};
    nprdma_log_t *log;
    int ret;

    ret = open_log(path, O_RDONLY, &log);
    if (ret == 0) {
        ret = nprdma_log_check(log, &report, damaged, NULL);
    }
    if (ret != 0) {
        return fail(path, ret);
    }

    printf("records %" PRIu64 "\ntorn %" PRIu64 "\nincomplete %" PRIu64 "\n",
           report.records, report.damaged, report.incomplete);
    nprdma_log_close(log);
    return 0;
}

int main(int argc, char **argv)
{
    const char *command = (argc > 2) ? argv[1] : "";

    if ((strcmp(command, "write") == 0) && (argc == 7)) {
        return do_write(argv[2], atoi(argv[3]), strtoull(argv[4], NULL, 10),
                        atol(argv[5]), atol(argv[6]));
    } else if ((strcmp(command, "follow") == 0) && (argc == 4)) {
        return do_read(argv[2], strtoull(argv[3], NULL, 10), 0);
    } else if (strcmp(command, "list") == 0) {
        return do_read(argv[2], 0, 1);
    } else if (strcmp(command, "check") == 0) {
        return do_check(argv[2]);
    } else if (strcmp(command, "calls") == 0) {
        return do_calls(argv[2]);
    }
    fprintf(stderr, "Usage: files_log write|follow|list|check|calls LOG ...\n");
    return 2;
}
