/* SPDX-License-Identifier: BSD-3-Clause */
/* What the MPI programs share: start and end, patterns, guarded buffers. */
#include "mpi_check.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MC_GUARD_BYTE  0xa5
#define MC_BLANK_BYTE  0x3c
#define MC_ALIGN_ROOM  4096
#define MC_TIME_LIMIT  120

int mc_rank  = -1;
int mc_size  = 0;
int mc_right = 0;
int mc_left  = 0;

static long        mc_checks = 0;
static const char *mc_name   = "mpi";

static void mc_on_alarm(int signo)
{
    static const char text[] = "no end within the time limit: a hang\n";
    ssize_t           ret    = write(STDERR_FILENO, text, sizeof(text) - 1);

    (void)signo;
    (void)ret;
    _exit(3);
}

void mc_init(int *argc_p, char ***argv_p, int thread_level)
{
    const char *limit = getenv("NPRDMA_TEST_SECONDS"); /* a slow machine */
    const char *slash = strrchr((*argv_p)[0], '/');
    int        provided;

    mc_name = (slash == NULL) ? (*argv_p)[0] : slash + 1;
    signal(SIGALRM, mc_on_alarm);
    alarm((limit == NULL) ? MC_TIME_LIMIT : atoi(limit));

    MPI_Init_thread(argc_p, argv_p, thread_level, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &mc_rank);
    MPI_Comm_size(MPI_COMM_WORLD, &mc_size);
    mc_right = (mc_rank + 1) % mc_size;
    mc_left  = (mc_rank + mc_size - 1) % mc_size;
    if (provided < thread_level) {
        mc_fail("thread level %d wanted, MPI gives %d", thread_level,
                provided);
    }
}

int mc_finish(void)
{
    long total = 0;

    MPI_Reduce(&mc_checks, &total, 1, MPI_LONG, MPI_SUM, 0, MPI_COMM_WORLD);
    if (mc_rank == 0) {
        printf("%s: %d ranks, %ld checks, all right\n", mc_name, mc_size,
               total);
    }

    MPI_Finalize();
    return 0;
}

void mc_fail(const char *fmt, ...)
{
    char    text[512];
    va_list ap;

    va_start(ap, fmt);
    vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    fprintf(stderr, "%s: rank %d of %d: %s\n", mc_name, mc_rank, mc_size,
            text);
    fflush(stderr);
    MPI_Abort(MPI_COMM_WORLD, 1);
    _exit(1);
}

void mc_count(void)
{
    __atomic_fetch_add(&mc_checks, 1, __ATOMIC_RELAXED);
}

uint32_t mc_seed(int sender, int subject, int turn)
{
    uint32_t seed = 0x2545f491u * (sender + 1);

    seed ^= 0x9e3779b1u * (subject + 3);
    seed ^= 0x85ebca77u * (turn + 7);
    return seed ^ (seed >> 13);
}

static inline uint8_t mc_byte(size_t index, uint32_t seed)
{
    uint32_t value = ((uint32_t)index + seed) * 0x9e3779b1u;

    value ^= value >> 15;
    return (value * 0x85ebca77u) >> 24;
}

void mc_fill(void *buf, size_t size, uint32_t seed)
{
    uint8_t *data = buf;
    size_t  i;

    for (i = 0; i < size; ++i) {
        data[i] = mc_byte(i, seed);
    }
}

void mc_check(const char *what, const void *buf, size_t size, uint32_t seed)
{
    const uint8_t *data = buf;
    size_t        i;

    mc_count();
    for (i = 0; i < size; ++i) {
        if (data[i] != mc_byte(i, seed)) {
            mc_fail("%s: byte %zu of %zu at %p is 0x%02x, 0x%02x wanted",
                    what, i, size, (void*)&data[i], data[i],
                    mc_byte(i, seed));
        }
    }
}

void mc_buf_init(mc_buf_t *buf, size_t capacity)
{
    buf->capacity = capacity;
    buf->raw      = malloc(capacity + MC_ALIGN_ROOM + (2 * MC_GUARD));
    if (buf->raw == NULL) {
        mc_fail("no memory for a buffer of %zu bytes", capacity);
    }

    mc_buf_reset(buf, capacity, 0);
}

void mc_buf_free(mc_buf_t *buf)
{
    free(buf->raw);
    buf->raw = NULL;
}

void mc_buf_reset(mc_buf_t *buf, size_t size, size_t align)
{
    uintptr_t base = (uintptr_t)buf->raw + MC_GUARD;

    if (size > buf->capacity) {
        mc_fail("buffer of %zu bytes, %zu wanted", buf->capacity, size);
    }

    base      = ((base + 63) & ~63ul) + (align % 64);
    buf->data = (uint8_t*)base;
    buf->size = size;
    memset(buf->data - MC_GUARD, MC_GUARD_BYTE, MC_GUARD);
    memset(buf->data, MC_BLANK_BYTE, size);
    memset(buf->data + size, MC_GUARD_BYTE, MC_GUARD);
}

void mc_buf_check_guards(const char *what, const mc_buf_t *buf)
{
    const uint8_t *before = buf->data - MC_GUARD;
    const uint8_t *after  = buf->data + buf->size;
    int           i;

    for (i = 0; i < MC_GUARD; ++i) {
        if (before[i] != MC_GUARD_BYTE) {
            mc_fail("%s: byte %d before a buffer of %zu was overwritten",
                    what, MC_GUARD - i, buf->size);
        }
        if (after[i] != MC_GUARD_BYTE) {
            mc_fail("%s: byte %d after a buffer of %zu was overwritten",
                    what, i, buf->size);
        }
    }
}

void mc_buf_check(const char *what, const mc_buf_t *buf, uint32_t seed)
{
    mc_check(what, buf->data, buf->size, seed);
    mc_buf_check_guards(what, buf);
}

static void mc_size_add(size_t *sizes, int max_sizes, int *count_p,
                        size_t size, size_t max)
{
    if ((size <= max) && (*count_p < max_sizes)) {
        sizes[(*count_p)++] = size;
    }
}

int mc_sizes(size_t *sizes, int max_sizes, size_t max)
{
    int    count = 0;
    size_t size, step;

    mc_size_add(sizes, max_sizes, &count, 0, max);
    for (size = 1; size <= max; size *= 2) {
        if (size > 2) {
            mc_size_add(sizes, max_sizes, &count, size - 1, max);
        }
        mc_size_add(sizes, max_sizes, &count, size, max);
        mc_size_add(sizes, max_sizes, &count, size + 1, max);
    }

    /* Headers shift the inline limit and the segment limits by some bytes. */
    for (step = 8; step <= 64; step += 8) {
        mc_size_add(sizes, max_sizes, &count, 32 + step, max);
        mc_size_add(sizes, max_sizes, &count, 128 - step, max);
        mc_size_add(sizes, max_sizes, &count, 4096 - step, max);
        mc_size_add(sizes, max_sizes, &count, 8192 - step, max);
        mc_size_add(sizes, max_sizes, &count, 8192 + step, max);
        mc_size_add(sizes, max_sizes, &count, 16384 - step, max);
        mc_size_add(sizes, max_sizes, &count, 65536 - step, max);
    }

    return count;
}

uint32_t mc_random(uint64_t *state, uint32_t limit)
{
    *state = (*state * 6364136223846793005ul) + 1442695040888963407ul;
    return (uint32_t)(*state >> 33) % limit;
}
