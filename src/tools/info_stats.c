/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma_info --stats: reads the counters of a process while it runs.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include "nprdma/stats.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* The kernel's name for the descriptor of the page */
#define INFO_STATS_LINK "/memfd:" NP_STATS_NAME " (deleted)"

/* Room for "/proc/PID/fd", and with "/N" */
#define INFO_STATS_DIR  32
#define INFO_STATS_PATH 64

typedef struct info_stats_field {
    const char *name;
    const char *text;
    size_t     offset;
} info_stats_field_t;

static const info_stats_field_t info_stats_fields[] = {
#define INFO_STATS_FIELD(_name, _text) \
    {#_name, _text, offsetof(np_stats_t, _name)},
    NP_STATS_LIST(INFO_STATS_FIELD)
#undef INFO_STATS_FIELD
};

#define INFO_STATS_NUM_FIELDS \
    (sizeof(info_stats_fields) / sizeof(info_stats_fields[0]))

/** Sums at one moment */
typedef struct info_stats_sample {
    double   time;      /**< seconds of a clock that only goes forward */
    uint64_t values[INFO_STATS_NUM_FIELDS];
} info_stats_sample_t;


/* Print an error as one line, as all errors of this program. Returns its exit
 * code. */
static int info_stats_error(const char *format, ...)
        __attribute__((format(printf, 1, 2)));

static int info_stats_error(const char *format, ...)
{
    va_list args;

    fprintf(stderr, "nprdma_info: ");
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    return 1;
}

static const char *info_stats_command(pid_t pid, char *buf, size_t size)
{
    char path[INFO_STATS_PATH];

    snprintf(path, sizeof(path), "/proc/%d/comm", (int)pid);
    return info_read_line(path, buf, size);
}

/* Does it run? A process that has ended and was not waited for does not. */
static int info_stats_is_alive(pid_t pid)
{
    char path[INFO_STATS_PATH], line[INFO_LINE];
    const char *state;

    snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
    info_read_line(path, line, sizeof(line));
    state = strrchr(line, ')'); /* the name before it may have any character */
    return (state != NULL) && (strncmp(state, ") Z", 3) != 0) &&
           (strncmp(state, ") X", 3) != 0);
}

/* Path of the page among the descriptors of a process. Returns 0; -ENOENT if
 * there is none; or the error with which the look failed. */
static int info_stats_find(pid_t pid, char *path, size_t size)
{
    char dir_path[INFO_STATS_DIR], target[sizeof(INFO_STATS_LINK) + 1];
    struct dirent *entry;
    int ret = -ENOENT;
    ssize_t len;
    DIR *dir;

    snprintf(dir_path, sizeof(dir_path), "/proc/%d/fd", (int)pid);
    dir = opendir(dir_path);
    if (dir == NULL) {
        return -errno;
    }

    while ((ret == -ENOENT) && ((entry = readdir(dir)) != NULL)) {
        len = readlinkat(dirfd(dir), entry->d_name, target,
                         sizeof(target) - 1);
        if ((len < 0) && ((errno == EACCES) || (errno == EPERM))) {
            ret = -errno;
        }
        target[ucs_max(len, 0)] = '\0';
        if (strcmp(target, INFO_STATS_LINK) == 0) {
            snprintf(path, size, "%s/%.16s", dir_path, entry->d_name);
            ret = 0;
        }
    }

    closedir(dir);
    return ret;
}

static int info_stats_explain(pid_t pid, int error)
{
    char path[INFO_STATS_PATH], name[INFO_LINE];
    struct stat st;

    if (!info_stats_is_alive(pid)) {
        return info_stats_error("there is no process %d", (int)pid);
    }

    info_stats_command(pid, name, sizeof(name));
    if (error == -ENOENT) {
        return info_stats_error("process %d (%s) does not use nprdma, or does "
                                "not yet: start it with nprdma-run; there are "
                                "counters once it has opened UCX", (int)pid,
                                name);
    }

    if ((error == -EACCES) || (error == -EPERM)) {
        snprintf(path, sizeof(path), "/proc/%d", (int)pid);
        if (stat(path, &st) != 0) {
            return info_stats_error("there is no process %d", (int)pid);
        }
        if ((geteuid() == 0) || (geteuid() == st.st_uid)) {
            return info_stats_error("not permitted to look at process %d "
                                    "(%s), as its own user or root: it has "
                                    "capabilities that nprdma_info has not, "
                                    "or a security module protects it. Give "
                                    "nprdma_info CAP_SYS_PTRACE, or run it "
                                    "outside of this container", (int)pid,
                                    name);
        }
        return info_stats_error("not permitted to look at process %d (%s): run "
                                "nprdma_info as root or as the user who runs "
                                "it (uid %u)", (int)pid, name,
                                (unsigned)st.st_uid);
    }
    return info_stats_error("cannot look at process %d (%s): %s", (int)pid,
                            name, strerror(-error));
}

/* Map the page after a check of what it is. Returns 0, or the exit code. */
static int info_stats_map(pid_t pid, int fd, const np_stats_page_t **page_p)
{
    int seals = fcntl(fd, F_GET_SEALS);
    np_stats_page_t head;
    struct stat st;
    void *page;

    memset(&head, 0, sizeof(head));
    if ((seals < 0) || !(seals & F_SEAL_SHRINK) || (fstat(fd, &st) != 0) ||
        (pread(fd, &head, offsetof(np_stats_page_t, writers), 0) !=
         offsetof(np_stats_page_t, writers)) ||
        (head.magic != NP_STATS_MAGIC)) {
        return info_stats_error("what process %d shows as its counters is "
                                "something else", (int)pid);
    }

    if ((head.version != NP_STATS_VERSION) ||
        (head.num_fields != INFO_STATS_NUM_FIELDS) ||
        (head.writer_size != sizeof(np_stats_t)) ||
        ((size_t)st.st_size < sizeof(np_stats_page_t))) {
        return info_stats_error("process %d has version %u of the counters, "
                                "%u of them; this nprdma_info " NPRDMA_VERSION
                                " knows version %u, %zu of them: use the "
                                "nprdma_info that was installed with its "
                                "plug-in", (int)pid, head.version,
                                head.num_fields, NP_STATS_VERSION,
                                INFO_STATS_NUM_FIELDS);
    }

    page = mmap(NULL, sizeof(np_stats_page_t), PROT_READ, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) {
        return info_stats_error("cannot map the counters of process %d: %s",
                                (int)pid, strerror(errno));
    }
    *page_p = page;
    return 0;
}

static int info_stats_open(pid_t pid, const np_stats_page_t **page_p)
{
    char path[INFO_STATS_PATH];
    int ret, fd;

    ret = info_stats_find(pid, path, sizeof(path));
    if (ret != 0) {
        return info_stats_explain(pid, ret);
    }

    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return info_stats_explain(pid, -errno);
    }

    ret = info_stats_map(pid, fd, page_p);
    close(fd);
    return ret;
}

static void
info_stats_read(const np_stats_page_t *page, info_stats_sample_t *sample)
{
    const np_stats_t *writer;
    struct timespec now;
    size_t i;

    clock_gettime(CLOCK_MONOTONIC, &now);
    memset(sample, 0, sizeof(*sample));
    sample->time = now.tv_sec + (now.tv_nsec * 1e-9);
    for (writer = page->writers; writer < page->writers + NP_STATS_WRITERS;
         ++writer) {
        for (i = 0; i < INFO_STATS_NUM_FIELDS; ++i) {
            sample->values[i] += atomic_load_explicit(
                    (_Atomic uint64_t*)UCS_PTR_BYTE_OFFSET(
                            writer, info_stats_fields[i].offset),
                    memory_order_relaxed);
        }
    }
}

/* @a before: NULL: without rates */
static void info_stats_print(const info_stats_sample_t *now,
                             const info_stats_sample_t *before)
{
    const info_stats_field_t *field = info_stats_fields;
    size_t i;

    for (i = 0; i < INFO_STATS_NUM_FIELDS; ++i, ++field) {
        printf("%-15s %20" PRIu64, field->name, now->values[i]);
        if (before != NULL) {
            printf(" %14.1f/s", (now->values[i] - before->values[i]) /
                   (now->time - before->time));
        }
        printf("  %s\n", field->text);
    }
    fflush(stdout);
}

/* Sleep, at most until the process ends. @a pid_fd: may be -1. */
static void info_stats_wait(int pid_fd, double seconds)
{
    const struct timespec timeout = {
        .tv_sec  = (time_t)seconds,
        .tv_nsec = (long)((seconds - (time_t)seconds) * 1e9)
    };
    struct pollfd poll_fd = {.fd = pid_fd, .events = POLLIN};

    ppoll(&poll_fd, 1, &timeout, NULL);
}

static void
info_stats_watch(pid_t pid, const np_stats_page_t *page, double interval)
{
    int pid_fd    = syscall(SYS_pidfd_open, pid, 0);
    unsigned last = 0;
    info_stats_sample_t samples[2];

    info_stats_read(page, &samples[last]);
    info_stats_print(&samples[last], NULL);
    do {
        info_stats_wait(pid_fd, interval);
        info_stats_read(page, &samples[!last]);
        printf("\n");
        info_stats_print(&samples[!last], &samples[last]);
        last = !last;
    } while (info_stats_is_alive(pid));

    printf("\nprocess %d has ended\n", (int)pid);
    if (pid_fd >= 0) {
        close(pid_fd);
    }
}

int info_stats_show(pid_t pid, double interval)
{
    const np_stats_page_t *page = NULL;
    info_stats_sample_t sample;
    int ret;

    ret = info_stats_open(pid, &page);
    if (ret != 0) {
        return ret;
    }

    if (interval > 0) {
        info_stats_watch(pid, page, interval);
    } else {
        info_stats_read(page, &sample);
        info_stats_print(&sample, NULL);
    }
    munmap((void*)page, sizeof(*page));
    return 0;
}

int info_stats_list(void)
{
    char path[INFO_STATS_PATH], name[INFO_LINE];
    DIR *dir       = opendir("/proc");
    unsigned count = 0;
    struct dirent *entry;
    struct stat st;
    pid_t pid;

    if (dir == NULL) {
        return info_stats_error("cannot read /proc: %s", strerror(errno));
    }

    while ((entry = readdir(dir)) != NULL) {
        if (!isdigit((unsigned char)entry->d_name[0])) {
            continue;
        }
        pid = atoi(entry->d_name);
        if ((fstatat(dirfd(dir), entry->d_name, &st, 0) == 0) &&
            (st.st_uid == geteuid()) &&
            (info_stats_find(pid, path, sizeof(path)) == 0)) {
            printf("%7d %s\n", (int)pid,
                   info_stats_command(pid, name, sizeof(name)));
            ++count;
        }
    }
    closedir(dir);

    if (count == 0) {
        printf("no process of this user (uid %u) uses nprdma\n",
               (unsigned)geteuid());
    }
    return 0;
}
