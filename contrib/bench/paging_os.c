/* SPDX-License-Identifier: BSD-3-Clause */
/* The paging benchmark's memory, and what the operating system takes for it. */
#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "paging.h"

#include <nprdma/nprdma.h>

#include <dirent.h>
#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef MADV_PAGEOUT
#  define MADV_PAGEOUT 21
#endif
#ifndef MADV_POPULATE_READ
#  define MADV_POPULATE_READ 22
#  define MADV_POPULATE_WRITE 23
#endif

double paging_percentile(double *values, size_t count, double percent)
{
    size_t i = count * percent / 100;

    bench_sort(values, count);
    return values[(i < count) ? i : (count - 1)];
}

static void paging_notify(paging_mem_t *mem, size_t len)
{
    int ret = nprdma_notify_swap_out(mem->ptr, len);

    if (ret != 0) {
        bench_die("nprdma_notify_swap_out: %s", strerror(-ret));
    }
}

void paging_forget(paging_mem_t *mem, size_t len)
{
    paging_notify(mem, len);
    if (madvise(mem->ptr, len, mem->is_direct ? MADV_REMOVE :
                                                MADV_DONTNEED) != 0) {
        bench_die("cannot give %zu bytes back: %m", len);
    }
}

size_t paging_swap_out(paging_mem_t *mem, size_t len)
{
    size_t pages = len / PAGING_PAGE, out = 0, i;
    unsigned char *in;

    in = malloc(pages);
    if (in == NULL) {
        bench_die("no memory for %zu bytes", pages);
    }

    paging_notify(mem, len);
    if ((madvise(mem->ptr, len, MADV_PAGEOUT) != 0) ||
        (mincore(mem->ptr, len, in) != 0)) {
        bench_die("cannot swap %zu bytes out: %m", len);
    }
    for (i = 0; i < pages; ++i) {
        out += !(in[i] & 1);
    }
    free(in);
    return out;
}

paging_os_t paging_touch(paging_mem_t *mem, size_t len, paging_dir_t dir)
{
    size_t pages = len / PAGING_PAGE, i;
    double *times, start, last, now;
    paging_os_t os;

    times = malloc(pages * sizeof(*times));
    if (times == NULL) {
        bench_die("no memory for %zu times", pages);
    }
    memset(times, 0, pages * sizeof(*times));

    start = last = bench_seconds();
    for (i = 0; i < pages; ++i) {
        volatile char *ptr = mem->ptr + (i * PAGING_PAGE);

        if (dir == PAGING_WRITE) {
            *ptr = 1;
        } else {
            (void)*ptr;
        }
        now      = bench_seconds();
        times[i] = now - last;
        last     = now;
    }

    os.sum = last - start;
    os.one = paging_percentile(times, pages, 50);
    free(times);
    return os;
}

paging_os_t paging_populate(paging_mem_t *mem, size_t len, size_t step)
{
    size_t count = len / step, i;
    double *times, start, last, now;
    paging_os_t os = {0};

    times = calloc(count, sizeof(*times));
    if (times == NULL) {
        bench_die("no memory for %zu times", count);
    }

    start = last = bench_seconds();
    for (i = 0; i < count; ++i) {
        if (madvise(mem->ptr + (i * step), step, MADV_POPULATE_WRITE) != 0) {
            break; /* kernels before 5.14 */
        }
        now      = bench_seconds();
        times[i] = now - last;
        last     = now;
    }

    if (i == count) {
        os.sum = last - start;
        os.one = paging_percentile(times, count, 50);
    }
    free(times);
    return os;
}

void paging_compute(paging_tl_t *tl, paging_shared_t *shared, int in_progress)
{
    volatile double value = 1;
    int i;

    while (!atomic_load(&shared->is_over)) {
        if (in_progress) {
            uct_worker_progress(tl->worker);
            continue;
        }
        for (i = 0; i < 100; ++i) {
            value = value * 1.000001;
        }
    }
}

static void *paging_wake_thread(void *arg)
{
    paging_shared_t *shared = arg;
    unsigned seen           = 0, now;

    while (seen != UINT32_MAX) {
        while ((now = atomic_load(&shared->wake)) == seen) {
            syscall(SYS_futex, &shared->wake, FUTEX_WAIT, seen, NULL, NULL, 0);
        }
        seen = now;
        atomic_store(&shared->woken, seen);
    }
    return NULL;
}

/* Long enough for the thread to sleep again */
static void paging_pause(double seconds)
{
    double end = bench_seconds() + seconds;

    while (bench_seconds() < end) {
    }
}

double paging_wake(bench_rank_t *rank, paging_shared_t *shared, int count)
{
    double *times, start, median = 0;
    pthread_t thread;
    unsigned value;
    int i;

    if (rank->rank == PAGING_TARGET) {
        shared->wake = shared->woken = 0;
        shared->is_over              = 0;
        if (pthread_create(&thread, NULL, paging_wake_thread, shared) != 0) {
            bench_die("cannot create a thread");
        }
        bench_barrier(rank);
        paging_compute(NULL, shared, 0);
        pthread_join(thread, NULL);
        bench_barrier(rank);
        return 0;
    }

    times = calloc(count, sizeof(*times));
    if (times == NULL) {
        bench_die("no memory for %d times", count);
    }
    bench_barrier(rank);
    for (i = 0; i <= count; ++i) {
        value = (i == count) ? UINT32_MAX : (i + 1u);
        paging_pause(50e-6);
        start = bench_seconds();
        atomic_store(&shared->wake, value);
        syscall(SYS_futex, &shared->wake, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (atomic_load(&shared->woken) != value) {
        }
        if (i < count) {
            times[i] = bench_seconds() - start;
        }
    }
    median = paging_percentile(times, count, 50);
    atomic_store(&shared->is_over, 1);
    bench_barrier(rank);
    free(times);
    return median;
}

uint64_t paging_proc_kb(const char *file, const char *name)
{
    size_t len     = strlen(name);
    uint64_t value = 0;
    char line[256];
    FILE *stream;

    stream = fopen(file, "r");
    if (stream == NULL) {
        bench_die("cannot open %s: %m", file);
    }
    while (fgets(line, sizeof(line), stream) != NULL) {
        if ((strncmp(line, name, len) == 0) && (line[len] == ':')) {
            value = strtoull(line + len + 1, NULL, 10);
            break;
        }
    }
    fclose(stream);
    return value;
}

uint64_t paging_memfd_kb(const char *name)
{
    uint64_t blocks = 0;
    char target[128], path[128];
    struct dirent *entry;
    struct stat info;
    ssize_t len;
    DIR *dir;

    dir = opendir("/proc/self/fd");
    if (dir == NULL) {
        bench_die("cannot open /proc/self/fd: %m");
    }
    snprintf(path, sizeof(path), "/memfd:%s", name);
    while ((entry = readdir(dir)) != NULL) {
        len = readlinkat(dirfd(dir), entry->d_name, target,
                         sizeof(target) - 1);
        if (len <= 0) {
            continue;
        }
        target[len] = '\0';
        if ((strncmp(target, path, strlen(path)) == 0) &&
            (fstat(atoi(entry->d_name), &info) == 0)) {
            blocks += info.st_blocks;
        }
    }
    closedir(dir);
    return blocks / 2;
}
