/* SPDX-License-Identifier: BSD-3-Clause */
/* An OpenSHMEM program that checks its data: put, get, atomics, order, locks,
 * collectives, in the symmetric heap and in static memory, also where pages
 * have been dropped. */
#define _GNU_SOURCE

#include <shmem.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define BUFFER_SIZE  (1 << 20)
#define ROUNDS       200
#define LOCK_ROUNDS  50
#define PAGE         4096UL

static int me, pes;
static unsigned long checks;

/* Symmetric: of every process at the same offset */
static uint8_t static_buffer[BUFFER_SIZE];
static long static_flag;
static long lock, locked_count;
static long reduce_work[SHMEM_REDUCE_MIN_WRKDATA_SIZE + 64];
static long psync[2 * SHMEM_COLLECT_SYNC_SIZE];

#define CHECK(_condition, ...) check(_condition, __LINE__, __VA_ARGS__)


static void __attribute__((format(printf, 3, 4)))
check(int condition, int line, const char *format, ...)
{
    va_list arguments;

    ++checks;
    if (condition) {
        return;
    }

    fprintf(stderr, "shmem_all: PE %d of %d: line %d: ", me, pes, line);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    shmem_global_exit(1);
}

static uint8_t pattern(int pe, unsigned round, size_t i)
{
    return (pe * 37) + (round * 11) + (i * 7) + (i >> 8);
}

static void fill(uint8_t *buffer, size_t len, int pe, unsigned round)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        buffer[i] = pattern(pe, round, i);
    }
}

static void check_filled(const uint8_t *buffer, size_t len, int pe,
                         unsigned round, const char *what)
{
    size_t i;

    for (i = 0; i < len; ++i) {
        if (buffer[i] != pattern(pe, round, i)) {
            break;
        }
    }
    CHECK(i == len, "%s: byte %zu of %zu is %u, wanted %u", what, i, len,
          (i < len) ? buffer[i] : 0, (i < len) ? pattern(pe, round, i) : 0);
}

/* Is it in memory that is shared, whose pages are not lost when they go? */
static int is_shared(const void *address)
{
    unsigned long first, end;
    char line[512], flags[5];
    FILE *maps = fopen("/proc/self/maps", "r");
    int found  = 0;

    while (!found && (maps != NULL) &&
           (fgets(line, sizeof(line), maps) != NULL)) {
        found = (sscanf(line, "%lx-%lx %4s", &first, &end, flags) == 3) &&
                ((uintptr_t)address >= first) && ((uintptr_t)address < end);
    }
    if (maps != NULL) {
        fclose(maps);
    }
    return found && (flags[3] == 's');
}

/* Pages that are wholly in a buffer are absent afterwards */
static void drop_pages(uint8_t *buffer, size_t len)
{
    uintptr_t first = ((uintptr_t)buffer + PAGE - 1) & ~(PAGE - 1);
    uintptr_t end   = ((uintptr_t)buffer + len) & ~(PAGE - 1);

    if (first < end) {
        CHECK(madvise((void*)first, end - first, MADV_DONTNEED) == 0,
              "madvise of %zu bytes", (size_t)(end - first));
    }
}

static void test_put_get(uint8_t *buffer, const char *what, int drop)
{
    static const size_t sizes[] = {1, 7, 8, 64, 1000, 4096, 12345, 65536,
                                   300001, BUFFER_SIZE};
    uint8_t *source             = malloc(BUFFER_SIZE);
    int right = (me + 1) % pes, left = (me + pes - 1) % pes;
    unsigned i;

    for (i = 0; i < (sizeof(sizes) / sizeof(sizes[0])); ++i) {
        fill(source, sizes[i], me, i);
        if (drop) {
            drop_pages(buffer, BUFFER_SIZE);
        }
        shmem_barrier_all();
        if ((i % 2) == 0) {
            shmem_putmem(buffer, source, sizes[i], right);
        } else {
            shmem_putmem_nbi(buffer, source, sizes[i], right);
        }
        shmem_barrier_all();
        check_filled(buffer, sizes[i], left, i, what);
        if (drop) {
            drop_pages(buffer, BUFFER_SIZE);
        }

        shmem_barrier_all();
        memset(source, 0, sizes[i]);
        if ((i % 2) == 0) {
            shmem_getmem(source, buffer, sizes[i], right);
        } else {
            shmem_getmem_nbi(source, buffer, sizes[i], right);
            shmem_quiet();
        }
        check_filled(source, sizes[i], me, i, what);
        shmem_barrier_all();
    }
    free(source);
}

static void test_strides(long *array)
{
    long source[32], i;
    int right = (me + 1) % pes, left = (me + pes - 1) % pes;

    for (i = 0; i < 64; ++i) {
        array[i] = -1;
    }
    for (i = 0; i < 32; ++i) {
        source[i] = (me * 100) + i;
    }
    shmem_barrier_all();
    shmem_long_iput(array, source, 4, 2, 16, right);
    shmem_barrier_all();
    for (i = 0; i < 64; ++i) {
        CHECK(array[i] == (((i % 4) == 0) ? (left * 100) + (i / 2) : -1),
              "iput: element %ld is %ld", i, array[i]);
    }
    shmem_long_iget(source, array, 1, 4, 16, right);
    for (i = 0; i < 16; ++i) {
        CHECK(source[i] == (me * 100) + (2 * i), "iget: element %ld is %ld", i,
              source[i]);
    }
    shmem_barrier_all();
}

static void test_atomics(long *counter, int *word)
{
    long seen = 0, sum = 0;
    int i;

    *counter = 0;
    *word    = 0;
    shmem_barrier_all();
    for (i = 0; i < ROUNDS; ++i) {
        seen = shmem_long_atomic_fetch_add(counter, me + 1, 0);
        shmem_int_atomic_inc(word, i % pes);
    }
    shmem_barrier_all();
    for (i = 0; i < pes; ++i) {
        sum += (i + 1) * ROUNDS;
    }
    CHECK(seen < sum, "fetch_add: %ld of %ld", seen, sum);
    CHECK(shmem_long_atomic_fetch(counter, 0) == sum,
          "fetch: %ld of %ld", shmem_long_atomic_fetch(counter, 0), sum);
    CHECK(*word == (pes * ((ROUNDS + pes - 1 - me) / pes)), "inc: %d", *word);
    shmem_barrier_all();

    /* each in turn finds what the one before has left */
    *counter = (me == 0) ? 0 : -1;
    shmem_barrier_all();
    while (shmem_long_atomic_compare_swap(counter, me, me + 1, 0) != me) {
    }
    shmem_barrier_all();
    CHECK(shmem_long_atomic_swap(counter, me, me) ==
          ((me == 0) ? pes : -1), "compare_swap, swap");
    shmem_barrier_all();
    *word = 0;
    shmem_barrier_all();
    shmem_uint_atomic_or((unsigned*)word, 1u << me, 0);
    shmem_barrier_all();
    CHECK((me != 0) || (*word == (int)((1u << pes) - 1)), "or: %x", *word);
}

/* What is put before a fence is there when what is put after it is seen */
static void test_order(uint8_t *buffer)
{
    const size_t len = 20000;
    uint8_t *source  = malloc(len);
    int right = (me + 1) % pes, left = (me + pes - 1) % pes;
    long round;

    static_flag = 0;
    shmem_barrier_all();
    for (round = 1; round <= ROUNDS; ++round) {
        fill(source, len, me, round);
        shmem_putmem_nbi(buffer, source, len, right);
        shmem_fence();
        shmem_long_p(&static_flag, round, right);
        shmem_quiet();
        shmem_long_wait_until(&static_flag, SHMEM_CMP_GE, round);
        check_filled(buffer, len, left, round, "order");
        shmem_barrier_all();
    }
    free(source);
}

static void test_locks(void)
{
    long count;
    int i;

    locked_count = 0;
    shmem_barrier_all();
    for (i = 0; i < LOCK_ROUNDS; ++i) {
        shmem_set_lock(&lock);
        count = shmem_long_g(&locked_count, 0);
        shmem_long_p(&locked_count, count + 1, 0);
        shmem_quiet();
        shmem_clear_lock(&lock);
    }
    shmem_barrier_all();
    CHECK((me != 0) || (locked_count == (LOCK_ROUNDS * pes)),
          "locks: %ld of %d", locked_count, LOCK_ROUNDS * pes);
}

static void test_collectives(long *heap)
{
    const int count = 32;
    long *target    = heap + (count * pes);
    int i, j;

    for (i = 0; i < count; ++i) {
        heap[i] = (me * 1000) + i;
    }
    shmem_barrier_all();
    shmem_broadcast64(target, heap, count, pes - 1, 0, 0, pes, psync);
    for (i = 0; (i < count) && (me != (pes - 1)); ++i) {
        CHECK(target[i] == ((pes - 1) * 1000) + i, "broadcast: element %d", i);
    }
    shmem_barrier_all();
    shmem_fcollect64(target, heap, count, 0, 0, pes, psync);
    for (i = 0; i < (count * pes); ++i) {
        CHECK(target[i] == ((i / count) * 1000) + (i % count),
              "fcollect: element %d", i);
    }
    shmem_barrier_all();
    shmem_long_sum_to_all(target, heap, count, 0, 0, pes, reduce_work, psync);
    for (i = 0; i < count; ++i) {
        CHECK(target[i] == (500 * pes * (pes - 1)) + (i * pes),
              "sum: element %d is %ld", i, target[i]);
    }
    for (j = 0; j < pes; ++j) {
        heap[j] = (me * 100) + j;
    }
    shmem_barrier_all();
    shmem_alltoall64(target, heap, 1, 0, 0, pes, psync);
    for (j = 0; j < pes; ++j) {
        CHECK(target[j] == (j * 100) + me, "alltoall: element %d", j);
    }
    shmem_barrier_all();
}

int main(void)
{
    unsigned i;
    uint8_t *heap;

    for (i = 0; i < (sizeof(psync) / sizeof(psync[0])); ++i) {
        psync[i] = SHMEM_SYNC_VALUE;
    }
    shmem_init();
    me   = shmem_my_pe();
    pes  = shmem_n_pes();
    heap = shmem_malloc(BUFFER_SIZE);
    CHECK(heap != NULL, "no symmetric heap of %d bytes", BUFFER_SIZE);

    test_put_get(heap, "heap", 0);
    CHECK(is_shared(heap), "the heap is no memory that nprdma allocates");
    test_put_get(heap, "heap, absent pages", 1);
    test_put_get(static_buffer, "static memory", 0);
    test_strides((long*)heap);
    test_atomics((long*)heap, (int*)static_buffer);
    test_order(heap);
    test_locks();
    test_collectives((long*)heap);

    shmem_barrier_all();
    shmem_free(heap);
    printf("shmem_all: PE %d of %d, %lu checks, all right\n", me, pes, checks);
    shmem_finalize();
    return 0;
}
