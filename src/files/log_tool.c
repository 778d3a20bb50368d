/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: logs, here and of a server.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tool.h"

#include <nprdma/nprdma_log.h>

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* So much is read at once. A line may be so long. All of them, with their
 * heads, are one append. */
#define TOOL_LOG_PIECE  (1u << 20)
#define TOOL_LOG_LINE   (32u << 20)

/* What a command does with a log */
typedef struct tool_log {
    const tool_t *tool;
    const char   *path;
    nprdma_log_t *log;
} tool_log_t;


static void tool_log_tell(const tool_t *tool, uint64_t at, size_t length)
{
    if (tool->is_json) {
        printf("{\"offset\": %lu, \"bytes\": %zu}\n", at, length);
    } else if (!tool->is_quiet) {
        printf("%lu\n", at);
    }
}

static int
tool_log_show(void *arg, uint64_t at, const void *data, size_t length)
{
    const tool_log_t *self = arg;

    if (self->tool->is_json) {
        tool_log_tell(self->tool, at, length);
    } else if (fwrite(data, 1, length, stdout) != length) {
        return -EIO;
    }
    return 0;
}

static int tool_log_cat(tool_log_t *self)
{
    return nprdma_log_walk(self->log, NULL, tool_log_show, self);
}

static void tool_log_damaged(void *arg, uint64_t at, uint64_t length)
{
    const tool_log_t *self = arg;

    if (!self->tool->is_json) {
        printf("%s: %lu bytes at %lu are no record\n", self->path, length, at);
    }
}

/* Damaged: the command fails, and all of it is told */
static int tool_log_check(tool_log_t *self)
{
    nprdma_log_report_t report = {.size = sizeof(report)};
    int ret;

    ret = nprdma_log_check(self->log, &report, tool_log_damaged, self);
    if (ret != 0) {
        return ret;
    }

    if (self->tool->is_json) {
        printf("{\"records\": %lu, \"data\": %lu, \"damaged\": %lu, "
               "\"lost\": %lu, \"incomplete\": %lu, \"bytes\": %lu}\n",
               report.records, report.data, report.damaged, report.lost,
               report.incomplete, report.end);
        return (report.damaged > 0) ? -EUCLEAN : 0;
    }

    if (report.incomplete > 0) {
        printf("%s: %lu bytes at %lu are not whole: somebody is writing, or "
               "was killed\n", self->path, report.incomplete,
               report.end - report.incomplete);
    }
    printf("%s: %lu records, %lu bytes of data\n", self->path, report.records,
           report.data);
    return (report.damaged > 0) ? -EUCLEAN : 0;
}

/* Whole lines, each a record, by one write */
static int tool_log_lines(tool_log_t *self, char *lines, size_t length)
{
    char *line = lines, *const end = lines + length, *next;
    struct iovec *iov;
    int count = 0, i, ret;
    uint64_t *at;

    for (; line < end; line = next, ++count) {
        next = memchr(line, '\n', end - line);
        next = (next == NULL) ? end : (next + 1);
    }

    iov = calloc(count + 1, sizeof(*iov));
    at  = calloc(count + 1, sizeof(*at));
    for (i = 0, line = lines; (iov != NULL) && (i < count); ++i, line = next) {
        next   = memchr(line, '\n', end - line);
        next   = (next == NULL) ? end : (next + 1);
        iov[i] = (struct iovec){line, next - line};
    }
    ret = ((iov == NULL) || (at == NULL)) ? -ENOMEM :
          nprdma_log_append_many(self->log, iov, count, at);
    for (i = 0; (ret == 0) && (i < count); ++i) {
        tool_log_tell(self->tool, at[i], iov[i].iov_len);
    }
    free(iov);
    free(at);
    return ret;
}

/* As they come: as many at once as there are */
static int tool_log_append_lines(tool_log_t *self, char *data)
{
    size_t have = 0, whole;
    int ret = 0, is_over = 0;
    ssize_t length;
    char *last;

    while ((ret == 0) && !is_over) {
        length = read(STDIN_FILENO, data + have, TOOL_LOG_PIECE);
        if (length < 0) {
            ret = (errno == EINTR) ? 0 : -errno;
            continue;
        }

        is_over = length == 0;
        have   += length;
        last    = memrchr(data, '\n', have);
        whole   = is_over ? have : (last == NULL) ? 0 :
                  (size_t)(last + 1 - data);
        ret     = (whole > 0) ? tool_log_lines(self, data, whole) : 0;
        have   -= whole;
        memmove(data, data + whole, have);
        if (have > TOOL_LOG_LINE) {
            ret = -EMSGSIZE;
        }
    }
    return ret;
}

static int tool_log_append_all(tool_log_t *self, char *data)
{
    size_t have = 0;
    ssize_t length;
    uint64_t at;
    int ret;

    do {
        length = read(STDIN_FILENO, data + have, NPRDMA_LOG_MAX + 1 - have);
        if ((length < 0) && (errno != EINTR)) {
            return -errno;
        }
        have += (length > 0) ? length : 0;
    } while ((length != 0) && (have <= NPRDMA_LOG_MAX));

    ret = nprdma_log_append(self->log, data, have, &at);
    if (ret == 0) {
        tool_log_tell(self->tool, at, have);
    }
    return ret;
}

static int tool_log_append(tool_log_t *self)
{
    char *data = malloc(NPRDMA_LOG_MAX + 1);
    int ret;

    ret = (data == NULL) ? -ENOMEM :
          self->tool->by_lines ? tool_log_append_lines(self, data) :
          tool_log_append_all(self, data);
    free(data);
    return ((ret == 0) && self->tool->is_durable) ?
           nprdma_log_sync(self->log) : ret;
}

int tool_log(tool_t *tool, char **paths)
{
    static const struct {
        const char *name;
        int        (*run)(tool_log_t *self);
        int        flags;
    } commands[] = {
        {"append", tool_log_append, O_RDWR | O_CREAT | O_CLOEXEC},
        {"cat", tool_log_cat, O_RDONLY | O_CLOEXEC},
        {"check", tool_log_check, O_RDONLY | O_CLOEXEC},
        {NULL},
    };
    tool_log_t self = {tool, paths[1], NULL};
    int i, ret;

    for (i = 0; (commands[i].name != NULL) &&
                (strcmp(commands[i].name, paths[0]) != 0); ++i) {
    }
    if (commands[i].name == NULL) {
        nf_misused("log: append, cat or check is needed, found %s", paths[0]);
    }

    ret = (tool->server != NULL) ?
          nprdma_log_open_remote(tool->server, self.path, commands[i].flags,
                                 0666, &self.log) :
          nprdma_log_open(self.path, commands[i].flags, 0666, &self.log);
    if (ret == 0) {
        ret = commands[i].run(&self);
        nprdma_log_close(self.log);
    }
    if (ret == -ESTALE) {
        nf_say("cannot %s '%s': it was emptied meanwhile, or replaced while "
               "the server was away", commands[i].name, self.path);
    }
    return (ret == 0) ? 0 : ((ret == -EUCLEAN) || (ret == -ESTALE)) ? 1 :
           tool_fail(commands[i].name, self.path, ret);
}
