/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A timeline of transfers, in the format of Chrome's trace viewer: one event a
 * line, so that awk can read it as well.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "trace.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Records of a process: 12 MiB if all are used */
#define NP_TRACE_RECORDS  (256 * 1024)

typedef struct np_trace_event {
    uint64_t     begin;   /* nanoseconds */
    uint64_t     end;
    uint64_t     va;
    uint64_t     len;
    pid_t        tid;
    _Atomic int  kind;    /* stored last, with release; NP_TRACE_NONE: not
                             yet */
} np_trace_event_t;

/* Owner: the process that has started it; a forked child records nothing that
 * is written */
static struct {
    char             name[PATH_MAX];
    pid_t            pid;
    np_trace_event_t *events;
    _Atomic uint64_t count;   /* taken; may exceed NP_TRACE_RECORDS */
} np_trace_state;

static const char *np_trace_names[] = {
    [NP_TRACE_NONE] = "",
#define NP_TRACE_TEXT(_name, _text) [NP_TRACE_##_name] = _text,
    NP_TRACE_LIST(NP_TRACE_TEXT)
#undef NP_TRACE_TEXT
};

int np_trace_is_on;


/* Fills in what the name of the file stands for */
static void np_trace_file_name(const char *name)
{
    const size_t size = sizeof(np_trace_state.name);
    int has_pid       = 0;
    size_t len        = 0;
    char host[64]     = "";
    const char *at;

    gethostname(host, sizeof(host) - 1);
    for (at = name; (*at != '\0') && (len < size); ++at) {
        if (!strncmp(at, "%p", 2)) {
            len    += snprintf(np_trace_state.name + len, size - len, "%d",
                               np_trace_state.pid);
            has_pid = 1;
            ++at;
        } else if (!strncmp(at, "%h", 2)) {
            len += snprintf(np_trace_state.name + len, size - len, "%s", host);
            ++at;
        } else {
            np_trace_state.name[len++] = *at;
        }
    }

    len                      = ucs_min(len, size - 1);
    np_trace_state.name[len] = '\0';
    if (!has_pid) {
        snprintf(np_trace_state.name + len, size - len, ".%d",
                 np_trace_state.pid);
    }
}

ucs_status_t np_trace_start(const char *name)
{
    void *ptr;

    np_trace_is_on = 0;
    if ((name == NULL) || (name[0] == '\0')) {
        return UCS_OK;
    }

    ptr = mmap(NULL, NP_TRACE_RECORDS * sizeof(np_trace_event_t),
               PROT_READ | PROT_WRITE,
               MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (ptr == MAP_FAILED) {
        np_error("no memory for %d records of UCX_NPRDMA_TRACE: %m",
                 NP_TRACE_RECORDS);
        return UCS_ERR_NO_MEMORY;
    }

    np_trace_state.pid    = getpid();
    np_trace_state.events = ptr;
    atomic_store_explicit(&np_trace_state.count, 0, memory_order_relaxed);
    np_trace_file_name(name);
    np_trace_is_on = 1;
    return UCS_OK;
}

void np_trace_record(np_trace_kind_t kind, uint64_t begin, uint64_t end,
                     uint64_t va, uint64_t len)
{
    static NP_THREAD_OWN pid_t tid;
    np_trace_event_t *event;
    uint64_t index;

    /* relaxed: it only gives each a place of its own */
    index = atomic_fetch_add_explicit(&np_trace_state.count, 1,
                                      memory_order_relaxed);
    if (index >= NP_TRACE_RECORDS) {
        return;
    }

    if (tid == 0) {
        tid = syscall(SYS_gettid);
    }

    event        = &np_trace_state.events[index];
    event->begin = begin;
    event->end   = end;
    event->va    = va;
    event->len   = len;
    event->tid   = tid;
    /* release: whoever writes it out sees all of it */
    atomic_store_explicit(&event->kind, kind, memory_order_release);
}

/* May others of the same thread begin within it and end after it? Then it is
 * drawn beside the thread, from one event to another. */
static int np_trace_is_async(int kind)
{
    return (kind == NP_TRACE_GET) || (kind == NP_TRACE_PUT) ||
           (kind == NP_TRACE_FAULT) || (kind == NP_TRACE_SERVE);
}

/* One event: @a phase as the format has it */
static void np_trace_print(FILE *file, const np_trace_event_t *event, int kind,
                           char phase, uint64_t id)
{
    const uint64_t at = (phase == 'e') ? event->end : event->begin;

    fprintf(file,
            ",\n{\"name\":\"%s\",\"cat\":\"nprdma\",\"ph\":\"%c\","
            "\"ts\":%lu.%03u,", np_trace_names[kind], phase, at / 1000,
            (unsigned)(at % 1000));
    if (phase == 'X') {
        fprintf(file, "\"dur\":%lu.%03u,", (event->end - event->begin) / 1000,
                (unsigned)((event->end - event->begin) % 1000));
    } else if (phase == 'i') {
        fprintf(file, "\"s\":\"t\",");
    } else {
        fprintf(file, "\"id\":%lu,", id);
    }
    fprintf(file, "\"pid\":%d,\"tid\":%d,\"args\":{", np_trace_state.pid,
            event->tid);
    if (kind == NP_TRACE_MESSAGE) {
        fprintf(file, "\"id\":%lu,\"bytes\":%lu}}", event->va, event->len);
    } else {
        fprintf(file, "\"va\":\"%#lx\",\"bytes\":%lu}}", event->va,
                event->len);
    }
}

static void np_trace_print_all(FILE *file)
{
    uint64_t count = ucs_min(atomic_load_explicit(&np_trace_state.count,
                                                  memory_order_relaxed),
                             (uint64_t)NP_TRACE_RECORDS);
    const np_trace_event_t *event;
    uint64_t i;
    int kind;

    fprintf(file, "[\n{\"name\":\"process_name\",\"ph\":\"M\",\"pid\":%d,"
            "\"args\":{\"name\":\"nprdma %d\"}}", np_trace_state.pid,
            np_trace_state.pid);
    for (i = 0; i < count; ++i) {
        event = &np_trace_state.events[i];
        kind  = atomic_load_explicit(&event->kind, memory_order_acquire);
        if (kind == NP_TRACE_NONE) {
            continue; /* a thread that is still in the middle of it */
        }

        if (np_trace_is_async(kind)) {
            np_trace_print(file, event, kind, 'b', i);
            np_trace_print(file, event, kind, 'e', i);
        } else {
            np_trace_print(file, event, kind,
                           (event->begin == event->end) ? 'i' : 'X', i);
        }
    }
    fprintf(file, "\n]\n");
}

/* The process ends, by exit() or by returning from main() */
__attribute__((destructor))
static void np_trace_write(void)
{
    uint64_t count;
    FILE *file;
    int is_bad;

    if (!np_trace_is_on || (np_trace_state.pid != getpid())) {
        return;
    }

    np_trace_is_on = 0;
    file           = fopen(np_trace_state.name, "we");
    if (file == NULL) {
        fprintf(stderr, "nprdma: cannot write the trace %s: %s. "
                "UCX_NPRDMA_TRACE must name a file in a folder that can be "
                "written\n", np_trace_state.name, strerror(errno));
        return;
    }

    np_trace_print_all(file);
    is_bad  = ferror(file) != 0;
    is_bad |= fclose(file) != 0;
    if (is_bad) {
        fprintf(stderr, "nprdma: the trace %s is not complete: %s\n",
                np_trace_state.name, strerror(errno));
    }

    count = atomic_load_explicit(&np_trace_state.count, memory_order_relaxed);
    if (count > NP_TRACE_RECORDS) {
        fprintf(stderr, "nprdma: the trace %s has the first %d of %lu events\n",
                np_trace_state.name, NP_TRACE_RECORDS, count);
    }
}
