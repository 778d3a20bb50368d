/* SPDX-License-Identifier: BSD-3-Clause */
/* One-sided: every kind of window, synchronisation and operation. */
#include "mpi_check.h"

#include <stdlib.h>
#include <string.h>

#define AREA         (10ul << 20)
#define WIN_BYTES    (2 * AREA + 65536)
#define GAP          3
#define MAX_PIECES   64
#define ATOMIC_TURNS 200

/* A window: [0, AREA) is put to, [AREA, 2 * AREA) got from, then counters. */
typedef struct {
    const char *name;
    MPI_Win    win;
    uint8_t    *base;
    MPI_Aint   *disps;      /* of every rank's base */
} rma_win_t;

typedef enum {
    SYNC_FENCE,
    SYNC_PSCW,
    SYNC_LOCK_SHARED,
    SYNC_LOCK_EXCLUSIVE,
    SYNC_LOCK_ALL,
    SYNC_FLUSH,
    SYNC_FLUSH_LOCAL,
    SYNC_REQUEST,
    SYNC_LAST
} rma_sync_t;

static const char *sync_names[SYNC_LAST] = {
    "fence", "pscw", "lock shared", "lock exclusive", "lock_all", "flush",
    "flush_local", "request"
};

/*
 * Open MPI 4.1.4, whatever the transport: on a dynamic window every operation
 * frees the key of the one before, done or not; and request-based operations
 * look up an address that was never attached. So there: one operation at a
 * time, and no requests.
 */
static int is_dynamic(const rma_win_t *win)
{
    return strcmp(win->name, "dynamic") == 0;
}

static size_t  pieces[MAX_PIECES];
static int     num_pieces;
static uint8_t *local;

static void win_open(rma_win_t *win, const char *name)
{
    MPI_Aint disp = 0;

    win->name  = name;
    win->disps = malloc(mc_size * sizeof(*win->disps));
    if (strcmp(name, "allocate") == 0) {
        MPI_Win_allocate(WIN_BYTES, 1, MPI_INFO_NULL, MPI_COMM_WORLD,
                         &win->base, &win->win);
    } else {
        win->base = malloc(WIN_BYTES);
        if (strcmp(name, "create") == 0) {
            MPI_Win_create(win->base, WIN_BYTES, 1, MPI_INFO_NULL,
                           MPI_COMM_WORLD, &win->win);
        } else {
            MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win->win);
            MPI_Win_attach(win->win, win->base, WIN_BYTES);
            MPI_Get_address(win->base, &disp);
        }
    }
    MPI_Allgather(&disp, 1, MPI_AINT, win->disps, 1, MPI_AINT,
                  MPI_COMM_WORLD);
}

static void win_close(rma_win_t *win)
{
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_dynamic(win)) {
        MPI_Win_detach(win->win, win->base);
    }
    MPI_Win_free(&win->win);
    if (strcmp(win->name, "allocate") != 0) {
        free(win->base);
    }
    free(win->disps);
}

/* The owner touches its own memory only between these two. */
static void own_begin(rma_win_t *win)
{
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, mc_rank, 0, win->win);
}

static void own_end(rma_win_t *win)
{
    MPI_Win_unlock(mc_rank, win->win);
}

static MPI_Group one_rank_group(int rank)
{
    MPI_Group world, group;

    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, 1, &rank, &group);
    MPI_Group_free(&world);
    return group;
}

static void epoch_begin(rma_win_t *win, rma_sync_t sync, int target)
{
    MPI_Group group;

    switch (sync) {
    case SYNC_FENCE:
        MPI_Win_fence(MPI_MODE_NOPRECEDE, win->win);
        break;
    case SYNC_PSCW:
        group = one_rank_group(mc_left);
        MPI_Win_post(group, 0, win->win);
        MPI_Group_free(&group);
        group = one_rank_group(target);
        MPI_Win_start(group, 0, win->win);
        MPI_Group_free(&group);
        break;
    case SYNC_LOCK_SHARED:
    case SYNC_REQUEST:
        MPI_Win_lock(MPI_LOCK_SHARED, target, 0, win->win);
        break;
    case SYNC_LOCK_EXCLUSIVE:
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, target, 0, win->win);
        break;
    default:
        MPI_Win_lock_all(0, win->win);
        break;
    }
}

static void epoch_end(rma_win_t *win, rma_sync_t sync, int target)
{
    switch (sync) {
    case SYNC_FENCE:
        MPI_Win_fence(MPI_MODE_NOSUCCEED, win->win);
        break;
    case SYNC_PSCW:
        MPI_Win_complete(win->win);
        MPI_Win_wait(win->win);
        break;
    case SYNC_LOCK_SHARED:
    case SYNC_LOCK_EXCLUSIVE:
    case SYNC_REQUEST:
        MPI_Win_unlock(target, win->win);
        break;
    case SYNC_FLUSH:
        MPI_Win_flush(target, win->win);
        MPI_Win_flush_all(win->win);
        MPI_Win_unlock_all(win->win);
        break;
    case SYNC_FLUSH_LOCAL:
        MPI_Win_flush_local(target, win->win);
        MPI_Win_flush_local_all(win->win);
        MPI_Win_unlock_all(win->win);
        break;
    default:
        MPI_Win_unlock_all(win->win);
        break;
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void check_gap(const char *what, const uint8_t *gap, int piece)
{
    int i;

    for (i = 0; i < GAP; ++i) {
        MC_REQUIRE(gap[i] == 0x77, "%s: byte %d after piece %d overwritten",
                   what, i, piece);
    }
}

/* Puts pieces [first, last), the first at pos, in one epoch. */
static void put_pieces(rma_win_t *win, rma_sync_t sync, int first, int last,
                       size_t pos)
{
    MPI_Request reqs[MAX_PIECES];
    size_t      start = pos;
    int         i;

    epoch_begin(win, sync, mc_right);
    for (i = first; i < last; pos += pieces[i++] + GAP) {
        if (sync == SYNC_REQUEST) {
            MPI_Rput(local + pos, pieces[i], MPI_BYTE, mc_right,
                     win->disps[mc_right] + pos, pieces[i], MPI_BYTE,
                     win->win, &reqs[i]);
        } else {
            MPI_Put(local + pos, pieces[i], MPI_BYTE, mc_right,
                    win->disps[mc_right] + pos, pieces[i], MPI_BYTE,
                    win->win);
        }
    }
    if (sync == SYNC_REQUEST) {
        MPI_Waitall(last - first, &reqs[first], MPI_STATUSES_IGNORE);
        memset(local + start, 0, pos - start);
    } else if (sync == SYNC_FLUSH_LOCAL) {
        MPI_Win_flush_local(mc_right, win->win);
        memset(local + start, 0, pos - start);
    }
    epoch_end(win, sync, mc_right);
}

static void test_put(rma_win_t *win, rma_sync_t sync)
{
    size_t pos;
    int    i;

    own_begin(win);
    memset(win->base, 0x77, AREA);
    own_end(win);
    for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
        mc_fill(local + pos, pieces[i], mc_seed(mc_rank, sync, i));
    }
    MPI_Barrier(MPI_COMM_WORLD);

    if (is_dynamic(win)) {
        for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
            put_pieces(win, sync, i, i + 1, pos);
        }
    } else {
        put_pieces(win, sync, 0, num_pieces, 0);
    }

    own_begin(win);
    for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
        mc_check(sync_names[sync], win->base + pos, pieces[i],
                 mc_seed(mc_left, sync, i));
        check_gap("put", win->base + pos + pieces[i], i);
    }
    own_end(win);
}

static void get_pieces(rma_win_t *win, rma_sync_t sync, int first, int last,
                       size_t pos)
{
    MPI_Request reqs[MAX_PIECES];
    MPI_Aint    disp = win->disps[mc_right] + AREA;
    int         i;

    epoch_begin(win, sync, mc_right);
    for (i = first; i < last; pos += pieces[i++] + GAP) {
        if (sync == SYNC_REQUEST) {
            MPI_Rget(local + pos, pieces[i], MPI_BYTE, mc_right, disp + pos,
                     pieces[i], MPI_BYTE, win->win, &reqs[i]);
        } else {
            MPI_Get(local + pos, pieces[i], MPI_BYTE, mc_right, disp + pos,
                    pieces[i], MPI_BYTE, win->win);
        }
    }
    if (sync == SYNC_REQUEST) {
        MPI_Waitall(last - first, &reqs[first], MPI_STATUSES_IGNORE);
    }
    epoch_end(win, sync, mc_right);
}

static void test_get(rma_win_t *win, rma_sync_t sync)
{
    size_t pos;
    int    i;

    own_begin(win);
    for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
        mc_fill(win->base + AREA + pos, pieces[i],
                mc_seed(mc_rank, 20 + sync, i));
    }
    own_end(win);
    memset(local, 0x77, AREA);
    MPI_Barrier(MPI_COMM_WORLD);

    if (is_dynamic(win)) {
        for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
            get_pieces(win, sync, i, i + 1, pos);
        }
    } else {
        get_pieces(win, sync, 0, num_pieces, 0);
    }

    for (i = 0, pos = 0; i < num_pieces; pos += pieces[i++] + GAP) {
        mc_check(sync_names[sync], local + pos, pieces[i],
                 mc_seed(mc_right, 20 + sync, i));
        check_gap("get", local + pos + pieces[i], i);
    }
}

/* Every rank adds to every rank; one element and many, three types. */
static void test_accumulate(rma_win_t *win)
{
    enum { N = 1000 };
    int64_t  *longs   = (int64_t*)(win->base + 2 * AREA);
    int32_t  *ints    = (int32_t*)(longs + N);
    double   *doubles = (double*)(ints + N);
    MPI_Aint at       = 2 * AREA;
    int64_t  add64[N];
    int32_t  add32[N];
    double   addf[N];
    int      i, target, sum;

    own_begin(win);
    memset(longs, 0, N * (sizeof(*longs) + sizeof(*ints) + sizeof(*doubles)));
    own_end(win);
    for (i = 0; i < N; ++i) {
        add64[i] = ((int64_t)i << 32) + mc_rank;
        add32[i] = 1 << (mc_rank % 31);
        addf[i]  = i + (0.5 * mc_rank);
    }
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Win_lock_all(0, win->win);
    for (target = 0; target < mc_size; ++target) {
        MPI_Accumulate(add64, N, MPI_INT64_T, target,
                       win->disps[target] + at, N, MPI_INT64_T, MPI_SUM,
                       win->win);
        MPI_Accumulate(add32, N, MPI_INT32_T, target,
                       win->disps[target] + at + N * 8, N, MPI_INT32_T,
                       MPI_BOR, win->win);
        for (i = 0; i < N; i += 10) {
            MPI_Accumulate(&addf[i], 10, MPI_DOUBLE, target,
                           win->disps[target] + at + N * 12 + i * 8, 10,
                           MPI_DOUBLE, MPI_SUM, win->win);
        }
    }
    MPI_Win_unlock_all(win->win);
    MPI_Barrier(MPI_COMM_WORLD);

    sum = mc_size * (mc_size - 1) / 2;
    own_begin(win);
    for (i = 0; i < N; ++i) {
        MC_REQUIRE(longs[i] == ((int64_t)mc_size * i << 32) + sum,
                   "int64 %d is %lld", i, (long long)longs[i]);
        MC_REQUIRE(ints[i] == (1 << mc_size) - 1, "int32 %d is 0x%x", i,
                   ints[i]);
        MC_REQUIRE(doubles[i] == mc_size * (double)i + 0.5 * sum,
                   "double %d is %g", i, doubles[i]);
    }
    own_end(win);
}

/* Tickets from rank 0: each number is given out exactly once. */
static void check_tickets(const char *what, const int64_t *mine)
{
    int     total = ATOMIC_TURNS * mc_size;
    int64_t *all  = malloc(total * sizeof(*all));
    char    *seen = calloc(total, 1);
    int     i;

    MPI_Gather(mine, ATOMIC_TURNS, MPI_INT64_T, all, ATOMIC_TURNS,
               MPI_INT64_T, 0, MPI_COMM_WORLD);
    for (i = 0; (mc_rank == 0) && (i < total); ++i) {
        MC_REQUIRE((all[i] >= 0) && (all[i] < total) && !seen[all[i]],
                   "%s: ticket %lld was given out wrongly", what,
                   (long long)all[i]);
        seen[all[i]] = 1;
    }
    free(all);
    free(seen);
}

static void test_tickets(rma_win_t *win, MPI_Datatype type, int size)
{
    MPI_Aint at    = win->disps[0] + 2 * AREA;
    int64_t  one   = 1, old, mine[ATOMIC_TURNS];
    uint64_t state = mc_rank;
    int      i, k;

    own_begin(win);
    memset(win->base + 2 * AREA, 0, 64);
    own_end(win);

    for (k = 0; k < 2; ++k) {
        MPI_Barrier(MPI_COMM_WORLD);
        MPI_Win_lock_all(0, win->win);
        for (i = 0; i < ATOMIC_TURNS; ++i) {
            mine[i] = 0;
            if (k == 0) {
                MPI_Fetch_and_op(&one, &mine[i], type, 0, at, MPI_SUM,
                                 win->win);
            } else {
                MPI_Get_accumulate(&one, 1, type, &mine[i], 1, type, 0,
                                   at + 16, 1, type, MPI_SUM, win->win);
            }
            if (is_dynamic(win) || (mc_random(&state, 4) == 0)) {
                MPI_Win_flush(0, win->win);
            }
        }
        MPI_Win_unlock_all(win->win);
        check_tickets(k ? "get_accumulate" : "fetch_and_op", mine);
    }

    /* The same by compare and swap, tried until it succeeds. */
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win->win);
    for (i = 0, old = 0; i < ATOMIC_TURNS;) {
        int64_t next = old + 1, found = 0;

        MPI_Compare_and_swap(&next, &old, &found, type, 0, at + 32, win->win);
        MPI_Win_flush(0, win->win);
        if (found == old) {
            mine[i++] = old;
        }
        old = (found == old) ? next : found;
    }
    MPI_Win_unlock_all(win->win);
    check_tickets("compare_and_swap", mine);

    own_begin(win);
    for (i = 0; (mc_rank == 0) && (i < 3); ++i) {
        old = 0;
        memcpy(&old, win->base + 2 * AREA + 16 * i, size);
        MC_REQUIRE(old == ATOMIC_TURNS * mc_size, "counter %d is %lld", i,
                   (long long)old);
    }
    own_end(win);
}

/* Fetch with no change, replace, and the whole old vector back. */
static void test_get_accumulate(rma_win_t *win)
{
    enum { N = 3000 };
    static int64_t mine[N], old[N], again[N];
    MPI_Aint       at    = win->disps[mc_right] + 2 * AREA;
    int64_t        *base = (int64_t*)(win->base + 2 * AREA);
    int            i;

    own_begin(win);
    for (i = 0; i < N; ++i) {
        base[i] = (int64_t)mc_rank * 1000000 + i;
        mine[i] = -base[i] - 5;
    }
    own_end(win);
    MPI_Barrier(MPI_COMM_WORLD);

    MPI_Win_lock(MPI_LOCK_SHARED, mc_right, 0, win->win);
    MPI_Get_accumulate(mine, N, MPI_INT64_T, old, N, MPI_INT64_T, mc_right,
                       at, N, MPI_INT64_T, MPI_REPLACE, win->win);
    MPI_Win_flush(mc_right, win->win);
    MPI_Get_accumulate(NULL, 0, MPI_INT64_T, again, N, MPI_INT64_T, mc_right,
                       at, N, MPI_INT64_T, MPI_NO_OP, win->win);
    MPI_Win_unlock(mc_right, win->win);
    MPI_Barrier(MPI_COMM_WORLD);

    own_begin(win);
    for (i = 0; i < N; ++i) {
        MC_REQUIRE(old[i] == (int64_t)mc_right * 1000000 + i,
                   "old value %d is %lld", i, (long long)old[i]);
        MC_REQUIRE(again[i] == mine[i], "new value %d is %lld", i,
                   (long long)again[i]);
        MC_REQUIRE(base[i] == -((int64_t)mc_left * 1000000 + i) - 5,
                   "value %d at the target is %lld", i, (long long)base[i]);
    }
    own_end(win);
}

/* Columns into columns: the target's gaps stay as they were. */
static void test_typed_put(rma_win_t *win)
{
    enum { ROWS = 500, STRIDE = 64 };
    MPI_Datatype type;
    int          i, k;

    MPI_Type_vector(ROWS, 24, STRIDE, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    own_begin(win);
    memset(win->base, 0x77, ROWS * STRIDE);
    own_end(win);
    mc_fill(local, ROWS * STRIDE, mc_seed(mc_rank, 60, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, mc_right, 0, win->win);
    MPI_Put(local, 1, type, mc_right, win->disps[mc_right], 1, type,
            win->win);
    MPI_Win_unlock(mc_right, win->win);
    MPI_Barrier(MPI_COMM_WORLD);
    mc_fill(local, ROWS * STRIDE, mc_seed(mc_left, 60, 0));
    own_begin(win);
    for (i = 0; i < ROWS; ++i) {
        MC_REQUIRE(memcmp(win->base + i * STRIDE, local + i * STRIDE, 24) ==
                   0, "row %d is wrong", i);
        for (k = 24; (k < STRIDE) && (i < ROWS - 1); ++k) {
            MC_REQUIRE(win->base[i * STRIDE + k] == 0x77,
                       "gap of row %d was overwritten", i);
        }
    }
    own_end(win);
    MPI_Type_free(&type);
}

/* The target computes without a single MPI call while others put and get. */
static void test_computing_target(rma_win_t *win)
{
    volatile double value = 1.0;
    size_t          size  = 1ul << 20;
    int             i;

    own_begin(win);
    mc_fill(win->base + AREA, size, mc_seed(mc_rank, 71, 0));
    own_end(win);
    mc_fill(local, size, mc_seed(mc_rank, 70, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    if ((mc_rank & 1) || (mc_size == 1)) {
        MPI_Win_lock(MPI_LOCK_SHARED, mc_right, 0, win->win);
        MPI_Put(local, size, MPI_BYTE, mc_right, win->disps[mc_right], size,
                MPI_BYTE, win->win);
        MPI_Win_flush(mc_right, win->win);
        MPI_Get(local + size, size, MPI_BYTE, mc_right,
                win->disps[mc_right] + AREA, size, MPI_BYTE, win->win);
        MPI_Win_unlock(mc_right, win->win);
        mc_check("got from a computing target", local + size, size,
                 mc_seed(mc_right, 71, 0));
    } else {
        for (i = 0; i < 50000000; ++i) {
            value = value * 1.0000001;
        }
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if ((mc_left & 1) || (mc_size == 1)) {
        own_begin(win);
        mc_check("put to a computing target", win->base, size,
                 mc_seed(mc_left, 70, 0));
        own_end(win);
    }
}

static void plan_pieces(void)
{
    static const size_t lens[] = {
        0, 1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 33, 47, 48, 56, 63,
        64, 65, 100, 127, 128, 129, 255, 256, 257, 1000, 1023, 1025, 2047,
        4095, 4096, 4097, 8000, 8191, 8192, 8193, 16384, 16385, 65535, 65536,
        65537, 131073, 262144, 1048575, 1048577, 2097153, 4194304
    };

    num_pieces = sizeof(lens) / sizeof(lens[0]);
    memcpy(pieces, lens, sizeof(lens));
}

int main(int argc, char **argv)
{
    static const char *names[] = {"create", "allocate", "dynamic"};
    rma_win_t         win;
    int               i, sync;

    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    plan_pieces();
    local = malloc(AREA);
    for (i = 0; i < 3; ++i) {
        win_open(&win, names[i]);
        for (sync = 0; sync < SYNC_LAST; ++sync) {
            if ((sync == SYNC_REQUEST) && is_dynamic(&win)) {
                continue;
            }
            test_put(&win, sync);
            test_get(&win, sync);
        }
        test_accumulate(&win);
        test_tickets(&win, MPI_INT64_T, 8);
        test_tickets(&win, MPI_INT32_T, 4);
        test_get_accumulate(&win);
        test_typed_put(&win);
        test_computing_target(&win);
        win_close(&win);
    }
    free(local);
    return mc_finish();
}
