/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: copies. The bytes go between the server's file and the pages of
 * ours, with no buffer in between where ours can be mapped.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tool.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* What is mapped, or in a buffer, at a time */
#define TOOL_WINDOW  (64ull << 20)
#define TOOL_BUFFER  (4ull << 20)

/* Bytes of lines that are appended at a time, at most */
#define TOOL_LINES   65536

/* What goes as one append, at most */
#define TOOL_APPEND_MAX  NPRDMA_REMOTE_APPEND_MAX

/* What is moved at a time: progress is shown after each */
#define TOOL_PIECE   (8ull << 20)

/* A file of ours */
typedef struct tool_local {
    const char *name;
    int        fd;
    int        is_mapped;  /* else its bytes go through a buffer */
    uint64_t   size;       /* if it is mapped: to be, or as it is */
    uint64_t   device;
    uint64_t   inode;
    char       *buffer;
} tool_local_t;


static int tool_local_open(tool_local_t *local, const char *name, int flags,
                           int standard)
{
    struct stat st;

    *local = (tool_local_t){.name = name};
    local->fd = (strcmp(name, "-") == 0) ? dup(standard) :
                open(name, flags | O_CLOEXEC, 0666);
    if ((local->fd < 0) || (fstat(local->fd, &st) != 0)) {
        return -errno;
    }

    if (S_ISDIR(st.st_mode)) {
        return -EISDIR;
    }

    /* /proc has files that say that they are empty */
    local->is_mapped = S_ISREG(st.st_mode) && (strcmp(name, "-") != 0) &&
                       ((standard == STDOUT_FILENO) || (st.st_size > 0));
    local->size      = local->is_mapped ? st.st_size : 0;
    local->device    = st.st_dev;
    local->inode     = st.st_ino;
    return 0;
}

/* Is it the very file that it is to be copied to or from? */
static int tool_is_same(const tool_t *tool, const tool_local_t *local,
                        const struct stat *stat)
{
    return (tool->where.host == NULL) && (local->device == stat->st_dev) &&
           (local->inode == stat->st_ino);
}

/* What is mapped may go: the file is cut by others, or its disk is full */
static void tool_on_sigbus(int signal)
{
    static const char text[] = "nprdma-file: a file of this host has become "
                               "shorter meanwhile, or its disk is full\n";

    if (write(STDERR_FILENO, text, sizeof(text) - 1) > 0) {
        _exit(1);
    }
    _exit(1);
}

static int tool_local_close(tool_local_t *local)
{
    free(local->buffer);
    return ((local->fd >= 0) && (close(local->fd) != 0)) ? -errno : 0;
}

static int tool_local_buffer(tool_local_t *local)
{
    if (local->buffer == NULL) {
        local->buffer = malloc(TOOL_BUFFER);
    }
    return (local->buffer == NULL) ? -ENOMEM : 0;
}

/* Write all of it */
static int tool_write(int fd, const char *data, size_t len)
{
    ssize_t done;

    while (len > 0) {
        done = write(fd, data, len);
        if ((done < 0) && (errno != EINTR)) {
            return -errno;
        }
        data += (done > 0) ? done : 0;
        len  -= (done > 0) ? done : 0;
    }
    return 0;
}

/* Read until it is full or the file ends */
static ssize_t tool_read(int fd, char *data, size_t len)
{
    size_t done = 0;
    ssize_t ret;

    while (done < len) {
        ret = read(fd, data + done, len - done);
        if (ret == 0) {
            break;
        }
        if ((ret < 0) && (errno != EINTR)) {
            return -errno;
        }
        done += (ret > 0) ? ret : 0;
    }
    return done;
}

/* Move what is mapped at @a window, from @a offset of both files on, in
 * pieces */
static int tool_move_window(nprdma_remote_t *remote, int is_put, char *window,
                            size_t len, uint64_t offset,
                            tool_progress_t *progress)
{
    size_t done, part;
    ssize_t ret;

    for (done = 0; done < len; done += part) {
        part = nf_min(len - done, TOOL_PIECE);
        ret  = is_put ? nprdma_remote_pwrite(remote, window + done, part,
                                             offset + done) :
               nprdma_remote_pread(remote, window + done, part, offset + done);
        if (ret != (ssize_t)part) {
            return (ret < 0) ? ret : -ENODATA;
        }
        tool_progress_add(progress, part);
    }
    return 0;
}

/* All of a file of ours that can be mapped */
static int tool_move_mapped(nprdma_remote_t *remote, int is_put,
                            tool_local_t *local, tool_progress_t *progress)
{
    const int prot = PROT_READ | (is_put ? 0 : PROT_WRITE);
    uint64_t offset;
    size_t len;
    char *window;
    int ret;

    for (offset = 0; offset < local->size; offset += len) {
        len = nf_min(local->size - offset, TOOL_WINDOW);
        if (!is_put && (ftruncate(local->fd, offset + len) != 0)) {
            return -errno;
        }

        window = mmap(NULL, len, prot, MAP_SHARED, local->fd, offset);
        if (window == MAP_FAILED) {
            return -errno; /* of the first: -ENODEV, it cannot be */
        }

        ret = tool_move_window(remote, is_put, window, len, offset, progress);
        munmap(window, len);
        if (ret != 0) {
            return ret;
        }
    }
    return 0;
}

static int tool_get_by_buffer(nprdma_remote_t *remote, tool_local_t *local,
                              tool_progress_t *progress)
{
    uint64_t offset = 0;
    int ret         = tool_local_buffer(local);
    ssize_t len;

    while (ret == 0) {
        len = nprdma_remote_pread(remote, local->buffer, TOOL_BUFFER, offset);
        if (len <= 0) {
            return len;
        }
        ret     = tool_write(local->fd, local->buffer, len);
        offset += len;
        tool_progress_add(progress, len);
    }
    return ret;
}

static int tool_put_by_buffer(nprdma_remote_t *remote, tool_local_t *local,
                              tool_progress_t *progress)
{
    uint64_t offset = 0;
    int ret         = tool_local_buffer(local);
    ssize_t len;

    while (ret == 0) {
        len = tool_read(local->fd, local->buffer, TOOL_BUFFER);
        if (len <= 0) {
            return len;
        }
        len     = nprdma_remote_pwrite(remote, local->buffer, len, offset);
        ret     = (len < 0) ? len : 0;
        offset += len;
        tool_progress_add(progress, len);
    }
    return ret;
}

/* A file of ours is emptied, and gets room for all that comes: a full disk is
 * an error now. Where room cannot be had before, its bytes are written. */
static int tool_make_room(tool_local_t *local, uint64_t size)
{
    if (!local->is_mapped) {
        return 0;
    }

    local->size = size;
    if (ftruncate(local->fd, 0) != 0) {
        return -errno;
    }

    if ((size == 0) ||
        (fallocate(local->fd, FALLOC_FL_KEEP_SIZE, 0, size) == 0)) {
        return 0;
    }

    local->is_mapped = 0;
    return (errno == EOPNOTSUPP) ? 0 : -errno;
}

static int tool_move(nprdma_remote_t *remote, int is_put, tool_local_t *local,
                     tool_progress_t *progress)
{
    int ret = local->is_mapped ?
              tool_move_mapped(remote, is_put, local, progress) : -ENODEV;

    return (ret != -ENODEV) ? ret :
           is_put ? tool_put_by_buffer(remote, local, progress) :
           tool_get_by_buffer(remote, local, progress);
}

int tool_get(tool_t *tool, const char *path, const char *name)
{
    tool_progress_t progress;
    nprdma_remote_t *remote;
    tool_local_t local;
    struct stat stat;
    int ret;

    ret = nprdma_remote_open(tool->server, path, O_RDONLY, 0, &remote);
    if (ret != 0) {
        return tool_fail("read", path, ret);
    }

    ret = nprdma_remote_fstat(remote, &stat);
    if (ret != 0) {
        nprdma_remote_close(remote);
        return tool_fail("read", path, ret);
    }

    ret = tool_local_open(&local, name, O_RDWR | O_CREAT, STDOUT_FILENO);
    if (ret == 0) {
        ret = tool_is_same(tool, &local, &stat) ? -EDEADLK :
              tool_make_room(&local, stat.st_size);
    }
    if (ret != 0) {
        (void)tool_local_close(&local);
        nprdma_remote_close(remote);
        return tool_fail("write", name, ret);
    }

    signal(SIGBUS, tool_on_sigbus);
    tool_progress_begin(tool, &progress, path, stat.st_size);
    ret = tool_move(remote, 0, &local, &progress);
    if ((ret != 0) && local.is_mapped) {
        (void)!ftruncate(local.fd, progress.done); /* what is right */
    }
    if ((ret == 0) && tool->is_durable && (fdatasync(local.fd) != 0)) {
        ret = -errno;
    }
    if (tool_local_close(&local) != 0) {
        ret = -EIO;
    }
    nprdma_remote_close(remote);
    if (ret != 0) {
        return tool_fail("copy", path, ret);
    }

    if (strcmp(name, "-") != 0) {
        tool_progress_end(tool, &progress);
    }
    return 0;
}

static int tool_put_all(tool_t *tool, tool_local_t *local,
                        nprdma_remote_t *remote, const char *name)
{
    tool_progress_t progress;
    int ret;

    /* a full disk is an error now; the file grows as it is written, so that one
     * which is not whole is not as large */
    ret = (local->size == 0) ? 0 :
          nprdma_remote_allocate(remote, local->size);
    if (ret != 0) {
        return ret;
    }

    tool_progress_begin(tool, &progress, name, local->size);
    ret = tool_move(remote, 1, local, &progress);
    if ((ret == 0) && tool->is_durable) {
        ret = nprdma_remote_fsync(remote);
    }
    if (ret == 0) {
        tool_progress_end(tool, &progress);
    }
    return ret;
}

int tool_put(tool_t *tool, const char *name, const char *path)
{
    nprdma_remote_t *remote;
    tool_local_t local;
    struct stat stat;
    int ret;

    ret = tool_local_open(&local, name, O_RDONLY, STDIN_FILENO);
    if (ret != 0) {
        (void)tool_local_close(&local);
        return tool_fail("read", name, ret);
    }

    if ((nprdma_remote_stat(tool->server, path, &stat) == 0) &&
        tool_is_same(tool, &local, &stat)) {
        (void)tool_local_close(&local);
        return tool_fail("write", path, -EDEADLK);
    }

    signal(SIGBUS, tool_on_sigbus);
    ret = nprdma_remote_open(tool->server, path, O_RDWR | O_CREAT | O_TRUNC,
                             0666, &remote);
    if (ret == 0) {
        ret = tool_put_all(tool, &local, remote, name);
        nprdma_remote_close(remote);
    }
    (void)tool_local_close(&local);
    return (ret == 0) ? 0 : tool_fail("write", path, ret);
}

static void tool_append_tell(const tool_t *tool, uint64_t at, size_t len)
{
    if (tool->is_json) {
        printf("{\"offset\": %lu, \"bytes\": %zu}\n", at, len);
    } else if (!tool->is_quiet) {
        printf("%lu\n", at);
    }
}

/* Append what has whole lines, and tell where each is */
static int tool_append_these(tool_t *tool, nprdma_remote_t *remote,
                             const char *lines, size_t len)
{
    const char *line = lines, *end = lines + len, *next;
    uint64_t at;
    int ret;

    if (len == 0) {
        return 0;
    }

    ret = nprdma_remote_append(remote, lines, len, &at);
    for (; (ret == 0) && (line < end); line = next) {
        next = tool->by_lines ? memchr(line, '\n', end - line) : NULL;
        next = (next == NULL) ? end : (next + 1);
        tool_append_tell(tool, at + (line - lines), next - line);
    }
    return ret;
}

/* Lines go as they come: as many at once as there are */
static int tool_append_lines(tool_t *tool, nprdma_remote_t *remote, int fd)
{
    char *data  = malloc(TOOL_APPEND_MAX);
    size_t have = 0, whole;
    int is_over = 0, ret = (data == NULL) ? -ENOMEM : 0;
    ssize_t len;
    char *last;

    while ((ret == 0) && !is_over) {
        len = read(fd, data + have, nf_min(TOOL_LINES, TOOL_APPEND_MAX - have));
        if (len < 0) {
            ret = (errno == EINTR) ? 0 : -errno;
            continue;
        }

        is_over = len == 0;
        have   += len;
        last    = memrchr(data, '\n', have);
        whole   = is_over ? have : (last == NULL) ? 0 :
                  (size_t)(last + 1 - data);
        ret     = (!is_over && (have == TOOL_APPEND_MAX) && (whole == 0)) ?
                  -EMSGSIZE : tool_append_these(tool, remote, data, whole);
        have   -= whole;
        memmove(data, data + whole, have);
    }
    free(data);
    return ret;
}

static int tool_append_all(tool_t *tool, nprdma_remote_t *remote, int fd)
{
    char *data = malloc(TOOL_APPEND_MAX + 1);
    ssize_t len;
    int ret;

    if (data == NULL) {
        return -ENOMEM;
    }

    len = tool_read(fd, data, TOOL_APPEND_MAX + 1);
    ret = (len < 0) ? len : (len == 0) ? 0 :
          (len > TOOL_APPEND_MAX) ? -EMSGSIZE :
          tool_append_these(tool, remote, data, len);
    free(data);
    return ret;
}

int tool_append(tool_t *tool, const char *name, const char *path)
{
    nprdma_remote_t *remote;
    tool_local_t local;
    int ret;

    ret = tool_local_open(&local, name, O_RDONLY, STDIN_FILENO);
    if (ret != 0) {
        (void)tool_local_close(&local);
        return tool_fail("read", name, ret);
    }

    ret = nprdma_remote_open(tool->server, path, O_WRONLY | O_APPEND | O_CREAT,
                             0666, &remote);
    if (ret == 0) {
        ret = tool->by_lines ? tool_append_lines(tool, remote, local.fd) :
              tool_append_all(tool, remote, local.fd);
        if ((ret == 0) && tool->is_durable) {
            ret = nprdma_remote_fsync(remote);
        }
        nprdma_remote_close(remote);
    }
    (void)tool_local_close(&local);
    return (ret == 0) ? 0 : tool_fail("append to", path, ret);
}
