/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Passive target: the owner of a window computes, and makes no MPI call, until
 * the others have finished all they wanted to do to it. Rank 0 is the owner.
 *
 * What is asserted is an order, by words in shared memory, and nprdma's
 * counters; the limit of MAX_COMPUTE_S only ends a run that would never end.
 */
#define _GNU_SOURCE
#include "mpi_check.h"

#include <nprdma/nprdma.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define OWNER         0
#define TURNS         24
#define SLOT          (256ul << 10)
#define COUNTER_ROOM  (64ul << 10)
#define MIN_COMPUTE_S 1.0
#define MAX_COMPUTE_S 30.0
#define MAX_RANKS     64
#define COUNT_STEP    3

/* The three that only the owner's CPU can do, and those that it need not */
typedef enum {
    OP_LOCK,
    OP_PUT,
    OP_GET,
    OP_ADD,
    OP_LAST
} op_t;

static const char *op_names[OP_LAST] = {
    "lock", "put and flush", "get and flush", "fetch_and_op"
};

typedef enum {
    MEM_ALLOCATE,      /* MPI_Win_allocate, never touched */
    MEM_ALLOCATE_OLD,  /* MPI_Win_allocate, touched */
    MEM_HEAP,          /* malloc, touched */
    MEM_MAP,           /* mmap, never touched */
    MEM_DROPPED,       /* mmap, touched by all, then thrown away */
    MEM_LAST
} mem_t;

static const char *mem_names[MEM_LAST] = {
    "allocated, fresh", "allocated, touched", "malloc, touched", "mmap, fresh",
    "mmap, dropped"
};

/* Memory that all ranks share, without MPI */
typedef struct {
    _Atomic int computing; /* number of the round that the owner computes in */
    _Atomic int finished;  /* ranks that have finished this round */
    _Atomic int is_over;   /* the owner computes no more */
} board_t;

/* A window: for each rank a slot to put to, then slots to get from, then a line
 * for each rank to count in and one for all. */
typedef struct {
    mem_t    mem;
    MPI_Win  win;
    uint8_t  *base;
    size_t   size;
    uint8_t  *local;
    int64_t  before[MAX_RANKS * TURNS];
} passive_t;

static const size_t  sizes[] = {8, 1, 4096, 70000, 64, SLOT};
static board_t       *board;
static double        samples[OP_LAST][MEM_LAST * 2 * TURNS * 2];
static int           num_samples[OP_LAST];
static double        max_compute = MAX_COMPUTE_S;
static volatile long sink;

static size_t turn_size(int turn)
{
    return sizes[turn % (int)(sizeof(sizes) / sizeof(sizes[0]))];
}

static size_t put_at(int rank, int turn)
{
    return ((rank * 2) + (turn & 1)) * SLOT;
}

static size_t get_at(int rank)
{
    return ((mc_size * 2) + rank) * SLOT;
}

static size_t count_at(int rank)
{
    return (mc_size * 3 * SLOT) + (rank * COUNTER_ROOM);
}

static double now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

static void take_sample(op_t op, double start)
{
    const int max = sizeof(samples[0]) / sizeof(samples[0][0]);

    if (num_samples[op] < max) {
        samples[op][num_samples[op]++] = now() - start;
    }
}

static void board_open(void)
{
    char name[64];
    int  fd = -1, pid = getpid();

    MPI_Bcast(&pid, 1, MPI_INT, OWNER, MPI_COMM_WORLD);
    snprintf(name, sizeof(name), "/mpi_passive.%d", pid);
    if (mc_rank == OWNER) {
        fd = shm_open(name, O_RDWR | O_CREAT | O_EXCL, 0600);
        if ((fd < 0) || (ftruncate(fd, sizeof(*board)) != 0)) {
            mc_fail("shared memory %s: %s", name, strerror(errno));
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (mc_rank != OWNER) {
        fd = shm_open(name, O_RDWR, 0);
    }
    board = mmap(NULL, sizeof(*board), PROT_READ | PROT_WRITE, MAP_SHARED, fd,
                 0);
    if (board == MAP_FAILED) {
        mc_fail("mapping of %s: %s", name, strerror(errno));
    }
    close(fd);
    MPI_Barrier(MPI_COMM_WORLD);
    if (mc_rank == OWNER) {
        shm_unlink(name);
    }
}

/* Where nothing was before: of addresses that come again nprdma may still know
 * that they were reachable */
static uint8_t *map_fresh(size_t size)
{
    static uintptr_t next = 0x6a0000000000;
    void             *ptr;

    ptr   = mmap((void*)next, size, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
    next += size + SLOT;
    if (ptr == MAP_FAILED) {
        mc_fail("mmap of %zu bytes: %s", size, strerror(errno));
    }
    return ptr;
}

static int is_allocated(mem_t mem)
{
    return (mem == MEM_ALLOCATE) || (mem == MEM_ALLOCATE_OLD);
}

static int is_touched(mem_t mem)
{
    return (mem == MEM_ALLOCATE_OLD) || (mem == MEM_HEAP);
}

/* Have all of it reached by the others, then let the kernel take the pages: of
 * this nobody tells nprdma */
static void drop(passive_t *p)
{
    memset(p->base, 0xee, p->size);
    memset(p->local, 0xdd, SLOT);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, p->win);
    MPI_Put(p->local, SLOT, MPI_BYTE, OWNER, put_at(mc_rank, 0), SLOT, MPI_BYTE,
            p->win);
    MPI_Put(p->local, SLOT, MPI_BYTE, OWNER, put_at(mc_rank, 1), SLOT, MPI_BYTE,
            p->win);
    MPI_Put(p->local, SLOT, MPI_BYTE, OWNER, get_at(mc_rank), SLOT, MPI_BYTE,
            p->win);
    MPI_Win_unlock_all(p->win);
    MPI_Barrier(MPI_COMM_WORLD);
    madvise(p->base, p->size, MADV_DONTNEED);
}

/* Touched memory holds what is to be got, other memory zeroes */
static void win_open(passive_t *p, mem_t mem)
{
    int rank;

    p->mem   = mem;
    p->size  = count_at(mc_size + 1);
    p->local = map_fresh(SLOT);
    if (is_allocated(mem)) {
        MPI_Win_allocate(p->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &p->base,
                         &p->win);
    } else {
        p->base = (mem == MEM_HEAP) ? malloc(p->size) : map_fresh(p->size);
        MPI_Win_create(p->base, p->size, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                       &p->win);
    }
    if (is_touched(mem)) {
        memset(p->base, 0, p->size);
        for (rank = 0; rank < mc_size; ++rank) {
            mc_fill(p->base + get_at(rank), SLOT, mc_seed(rank, 2, mem));
        }
    } else if (mem == MEM_DROPPED) {
        drop(p);
    }
}

static void win_close(passive_t *p)
{
    MPI_Win_free(&p->win);
    if (p->mem == MEM_HEAP) {
        free(p->base);
    } else if (!is_allocated(p->mem)) {
        munmap(p->base, p->size);
    }
    munmap(p->local, SLOT);
}

static void do_put(passive_t *p, int turn)
{
    double start;

    mc_fill(p->local, turn_size(turn), mc_seed(mc_rank, p->mem, turn));
    start = now();
    MPI_Put(p->local, turn_size(turn), MPI_BYTE, OWNER, put_at(mc_rank, turn),
            turn_size(turn), MPI_BYTE, p->win);
    MPI_Win_flush(OWNER, p->win);
    take_sample(OP_PUT, start);
}

static void check_zero(const uint8_t *data, size_t size)
{
    size_t i;

    mc_count();
    for (i = 0; i < size; ++i) {
        if (data[i] != 0) {
            mc_fail("byte %zu of fresh memory is 0x%02x, 0 wanted", i, data[i]);
        }
    }
}

static void do_get(passive_t *p, int turn)
{
    double start;

    memset(p->local, 0x5a, turn_size(turn));
    start = now();
    MPI_Get(p->local, turn_size(turn), MPI_BYTE, OWNER, get_at(mc_rank),
            turn_size(turn), MPI_BYTE, p->win);
    MPI_Win_flush(OWNER, p->win);
    take_sample(OP_GET, start);
    if (is_touched(p->mem)) {
        mc_check("got", p->local, turn_size(turn),
                 mc_seed(mc_rank, 2, p->mem));
    } else {
        check_zero(p->local, turn_size(turn));
    }
}

/* One count for each rank, and one for all: both know what they held before */
static void do_add(passive_t *p, int turn)
{
    const int64_t step = COUNT_STEP;
    int64_t       mine = -1, all = -1;
    double        start = now();

    MPI_Fetch_and_op(&step, &mine, MPI_INT64_T, OWNER, count_at(mc_rank),
                     MPI_SUM, p->win);
    MPI_Win_flush(OWNER, p->win);
    take_sample(OP_ADD, start);
    MPI_Fetch_and_op(&step, &all, MPI_INT64_T, OWNER, count_at(mc_size),
                     MPI_SUM, p->win);
    MPI_Win_flush(OWNER, p->win);
    MC_REQUIRE(mine == (int64_t)turn * COUNT_STEP,
               "count before turn %d is %ld, %ld wanted", turn, (long)mine,
               (long)turn * COUNT_STEP);
    p->before[turn] = all;
}

static void work(passive_t *p, int is_lock_all)
{
    double start;
    int    turn;

    if (is_lock_all) {
        start = now();
        MPI_Win_lock_all(0, p->win);
        take_sample(OP_LOCK, start);
    }
    for (turn = 0; turn < TURNS; ++turn) {
        if (!is_lock_all) {
            start = now();
            MPI_Win_lock((turn & 1) ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED,
                         OWNER, 0, p->win);
            take_sample(OP_LOCK, start);
        }
        do_put(p, turn);
        do_get(p, turn);
        do_add(p, turn);
        if (!is_lock_all) {
            MPI_Win_unlock(OWNER, p->win);
        }
    }
    if (is_lock_all) {
        MPI_Win_unlock_all(p->win);
    }
}

/* No MPI call in here. Returns how long it took. */
static double compute(int round)
{
    double start = now(), spent;
    int    i;

    atomic_store(&board->computing, round);
    do {
        for (i = 0; i < 100000; ++i) {
            sink += i ^ (sink >> 3);
        }
        spent = now() - start;
    } while (((atomic_load(&board->finished) < mc_size - 1) ||
              (spent < MIN_COMPUTE_S)) && (spent < max_compute));
    atomic_store(&board->is_over, 1);
    MC_REQUIRE(atomic_load(&board->finished) == mc_size - 1,
               "%d of %d ranks had finished when the owner ended to compute, "
               "after %.1f s: somebody waited for its progress",
               atomic_load(&board->finished), mc_size - 1, spent);
    return spent;
}

/* By the owner, before its next MPI call */
static void check_memory(passive_t *p)
{
    int64_t count, want = TURNS * COUNT_STEP;
    int     rank, turn;

    for (rank = 0; rank < mc_size; ++rank) {
        if (rank == OWNER) {
            continue;
        }
        for (turn = TURNS - 2; turn < TURNS; ++turn) {
            mc_check("put", p->base + put_at(rank, turn), turn_size(turn),
                     mc_seed(rank, p->mem, turn));
        }
        memcpy(&count, p->base + count_at(rank), sizeof(count));
        MC_REQUIRE(count == want, "count of rank %d is %ld, %ld wanted", rank,
                   (long)count, (long)want);
    }
    memcpy(&count, p->base + count_at(mc_size), sizeof(count));
    MC_REQUIRE(count == want * (mc_size - 1), "count of all is %ld, %ld wanted",
               (long)count, (long)want * (mc_size - 1));
}

static int compare_counts(const void *a, const void *b)
{
    int64_t left = *(const int64_t*)a, right = *(const int64_t*)b;

    return (left > right) - (left < right);
}

/* Each addition to the common count was done once: all saw different values */
static void check_counts(passive_t *p)
{
    static int64_t all[MAX_RANKS * TURNS];
    int            i;

    MPI_Gather(p->before, TURNS, MPI_INT64_T, all, TURNS, MPI_INT64_T, OWNER,
               MPI_COMM_WORLD);
    if (mc_rank != OWNER) {
        return;
    }
    qsort(all + TURNS, (mc_size - 1) * TURNS, sizeof(*all), compare_counts);
    for (i = 0; i < (mc_size - 1) * TURNS; ++i) {
        MC_REQUIRE(all[TURNS + i] == (int64_t)i * COUNT_STEP,
                   "addition %d to the common count saw %ld, %ld wanted", i,
                   (long)all[TURNS + i], (long)i * COUNT_STEP);
    }
}

static int get_counters(nprdma_counters_t *counters)
{
    return nprdma_get_counters(counters, sizeof(*counters)) == 0;
}

/* What nprdma says that the owner's process did while the program computed.
 * Additions to memory that peers cannot map are its service thread's, and so is
 * what was never brought in. */
static void check_served(const passive_t *p, const nprdma_counters_t *was,
                         const nprdma_counters_t *is)
{
    uint64_t ranks     = mc_size - 1;
    uint64_t additions = is_allocated(p->mem) ? 0 : 2 * TURNS * ranks;
    uint64_t served    = is->served_thread - was->served_thread;

    MC_REQUIRE(is->served_progress == was->served_progress,
               "%lu requests were served by a progress that nobody called",
               is->served_progress - was->served_progress);
    MC_REQUIRE(is->atomics - was->atomics >= additions,
               "%lu atomics by the owner's CPU, at least %lu wanted",
               is->atomics - was->atomics, additions);
    MC_REQUIRE(served >= additions,
               "%lu requests served by a thread, at least %lu wanted", served,
               additions);
    if (p->mem == MEM_MAP) {
        /* each rank's two slots, and where it gets from */
        MC_REQUIRE(is->fault_ins - was->fault_ins >= 3 * ranks,
                   "%lu ranges brought in, at least %lu wanted",
                   is->fault_ins - was->fault_ins, 3 * ranks);
    }
    printf("# %s: served by thread %lu, atomics %lu, brought in %lu\n",
           mem_names[p->mem], served, is->atomics - was->atomics,
           is->fault_ins - was->fault_ins);
}

static void own(passive_t *p, int round)
{
    nprdma_counters_t was, is;
    int               has_counters = get_counters(&was);
    double            spent        = compute(round);

    check_memory(p);
    if (has_counters && get_counters(&is)) {
        check_served(p, &was, &is);
    }
    printf("# %s: the owner computed for %.2f s\n", mem_names[p->mem], spent);
}

static void test_round(mem_t mem, int is_lock_all)
{
    static passive_t p;
    static int       round = 0;

    ++round;
    win_open(&p, mem);
    if (mc_rank == OWNER) {
        atomic_store(&board->finished, 0);
        atomic_store(&board->is_over, 0);
    }
    MPI_Barrier(MPI_COMM_WORLD);

    if (mc_rank == OWNER) {
        own(&p, round);
    } else {
        while (atomic_load(&board->computing) != round) {
        }
        work(&p, is_lock_all);
        MC_REQUIRE(!atomic_load(&board->is_over),
                   "finished after the owner had ended to compute");
        atomic_fetch_add(&board->finished, 1);
    }
    check_counts(&p);
    win_close(&p);
}

static int compare_times(const void *a, const void *b)
{
    double left = *(const double*)a, right = *(const double*)b;

    return (left > right) - (left < right);
}

static void print_times(void)
{
    int op, count;

    for (op = 0; op < OP_LAST; ++op) {
        count = num_samples[op];
        qsort(samples[op], count, sizeof(double), compare_times);
        printf("# %s: p50 %.1f us, p99 %.1f us of %d\n", op_names[op],
               samples[op][count / 2] * 1e6,
               samples[op][(count * 99) / 100] * 1e6, count);
    }
}

int main(int argc, char **argv)
{
    int mem;

    if (argc > 1) {
        max_compute = atof(argv[1]);
    }
    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    if ((mc_size < 2) || (mc_size > MAX_RANKS)) {
        mc_fail("2 to %d ranks wanted", MAX_RANKS);
    }
    board_open();
    for (mem = 0; mem < MEM_LAST; ++mem) {
        test_round(mem, 1);
        test_round(mem, 0);
    }
    if (mc_rank == 1) {
        print_times();
    }
    return mc_finish();
}
