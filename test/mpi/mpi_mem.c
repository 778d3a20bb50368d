/* SPDX-License-Identifier: BSD-3-Clause */
/* The same addresses with new memory behind them, between transfers. */
#define _GNU_SOURCE
#include "mpi_check.h"

#include <errno.h>
#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define TURNS     150
#define SLOTS     12
#define MAX_LEN   (1u << 20)

static int turn_count = 0;

static void *map_new(void *at, size_t len, int flags, int fd)
{
    int  fixed = (at == NULL) ? 0 : MAP_FIXED_NOREPLACE;
    void *ptr  = mmap(at, len, PROT_READ | PROT_WRITE, flags | fixed, fd, 0);

    if ((ptr == MAP_FAILED) || ((at != NULL) && (ptr != at))) {
        mc_fail("mmap of %zu bytes at %p: %s", len, at, strerror(errno));
    }
    return ptr;
}

/* Both neighbours exchange len bytes at once; both ends are checked. */
static void exchange(const char *what, void *tx, void *rx, size_t len)
{
    int turn = ++turn_count;

    mc_fill(tx, len, mc_seed(mc_rank, 1, turn));
    MPI_Sendrecv(tx, len, MPI_BYTE, mc_right, 1, rx, len, MPI_BYTE, mc_left,
                 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    mc_check(what, rx, len, mc_seed(mc_left, 1, turn));
    mc_check("source", tx, len, mc_seed(mc_rank, 1, turn));
}

static void test_unmap_and_map_again(void)
{
    static const size_t page_counts[] = {1, 2, 4, 16, 64, 256, 1024};
    void                *tx, *rx;
    size_t              len;
    int                 i, turn;

    for (i = 0; i < 7; ++i) {
        len = page_counts[i] * 4096;
        tx  = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        rx  = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        for (turn = 0; turn < 20; ++turn) {
            exchange("mapped again", tx, rx, len);
            munmap(tx, len);
            tx = map_new(tx, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            if (turn & 1) {
                munmap(rx, len);
                rx = map_new(rx, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
            }
        }
        munmap(tx, len);
        munmap(rx, len);
    }
}

/* Thrown-away pages read as zero: never as what was there before. */
static void test_dontneed(void)
{
    size_t  len = 300 * 4096;
    uint8_t *tx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    uint8_t *rx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    int     turn;
    size_t  i;

    for (turn = 0; turn < 10; ++turn) {
        exchange("before madvise", tx, rx, len);
        madvise(tx, len, MADV_DONTNEED);
        madvise(rx, len, MADV_DONTNEED);
        MPI_Sendrecv(tx, len, MPI_BYTE, mc_right, 2, rx, len, MPI_BYTE,
                     mc_left, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (i = 0; i < len; ++i) {
            if (rx[i] != 0) {
                mc_fail("byte %zu of a page thrown away is 0x%02x, 0 wanted",
                        i, rx[i]);
            }
        }
        mc_count();
    }
    munmap(tx, len);
    munmap(rx, len);
}

/* Files, private (copy on write) and shared, in turn at one address. */
static void test_files(void)
{
    size_t  len  = 40 * 4096;
    void    *rx  = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    void    *at  = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    uint8_t *text = malloc(len);
    int     i, fd;

    for (i = 0; i < 20; ++i) {
        fd = memfd_create("mpi_mem", 0);
        mc_fill(text, len, mc_seed(mc_rank, 3, i));
        if ((fd < 0) || (write(fd, text, len) != (ssize_t)len)) {
            mc_fail("memfd of %zu bytes: %s", len, strerror(errno));
        }
        munmap(at, len);
        at = map_new(at, len, (i & 1) ? MAP_PRIVATE : MAP_SHARED, fd);

        MPI_Sendrecv(at, len, MPI_BYTE, mc_right, 3, rx, len, MPI_BYTE,
                     mc_left, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        mc_check("file", rx, len, mc_seed(mc_left, 3, i));
        exchange("into a file mapping", rx, at, len);
        if (pread(fd, text, len, 0) != (ssize_t)len) {
            mc_fail("reading a memfd: %s", strerror(errno));
        }
        mc_check("file after the transfer", text, len,
                 (i & 1) ? mc_seed(mc_rank, 3, i) :
                           mc_seed(mc_left, 1, turn_count));
        close(fd);
    }
    munmap(at, len);
    munmap(rx, len);
    free(text);
}

static void test_mremap(void)
{
    size_t len = 100 * 4096;
    void   *tx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    void   *rx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    void   *room, *old, *again;
    int    i, found = 0;

    for (i = 0; i < 20; ++i) {
        exchange("before mremap", tx, rx, len);
        room = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
        old  = tx;
        tx   = mremap(old, len, len, MREMAP_MAYMOVE | MREMAP_FIXED, room);
        if (tx == MAP_FAILED) {
            mc_fail("mremap of %zu bytes: %s", len, strerror(errno));
        }
        exchange("after mremap", tx, rx, len);
        /* MPI may have taken what was left for itself meanwhile: all ranks
         * exchange, but not all at that address */
        again = mmap(old, len, PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        found += (again == old);
        exchange("at the address left by mremap", again, rx, len);
        munmap(again, len);
    }
    MC_REQUIRE(found > 0, "the address left by mremap was never free, of %d",
               i);
    munmap(tx, len);
    munmap(rx, len);
}

/* Buffers of a heap whose pieces come and go, split and move. */
static void test_heap(void)
{
    uint64_t mine  = 77 + mc_rank;
    uint64_t both  = 99;
    uint8_t  *slot[SLOTS] = {NULL};
    size_t   cap[SLOTS]   = {0};
    int      i, a, b;
    size_t   len;

    for (i = 0; i < TURNS * 4; ++i) {
        a = mc_random(&mine, SLOTS);
        b = (a + 1 + mc_random(&mine, SLOTS - 1)) % SLOTS;
        if (mc_random(&mine, 3) == 0) {
            free(slot[a]);
            slot[a] = NULL;
            cap[a]  = 0;
        }
        len = 1 + mc_random(&both, 1u << (4 + mc_random(&both, 17)));
        if (cap[a] < len) {
            cap[a]  = len + mc_random(&mine, MAX_LEN / 4);
            slot[a] = realloc(slot[a], cap[a]);
        }
        if (cap[b] < len) {
            cap[b]  = len + mc_random(&mine, MAX_LEN / 4);
            slot[b] = realloc(slot[b], cap[b]);
        }
        exchange("heap", slot[a], slot[b], len);
        if (mc_random(&mine, 16) == 0) {
            malloc_trim(0);
        }
    }
    for (i = 0; i < SLOTS; ++i) {
        free(slot[i]);
    }
}

/* A buffer that is only readable is good enough to send from. */
static void test_read_only(void)
{
    size_t len = 64 * 4096;
    void   *tx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    void   *rx = map_new(NULL, len, MAP_PRIVATE | MAP_ANONYMOUS, -1);

    mc_fill(tx, len, mc_seed(mc_rank, 5, 0));
    mprotect(tx, len, PROT_READ);
    MPI_Sendrecv(tx, len, MPI_BYTE, mc_right, 5, rx, len, MPI_BYTE, mc_left,
                 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    mc_check("from read-only memory", rx, len, mc_seed(mc_left, 5, 0));
    munmap(tx, len);
    munmap(rx, len);
}

int main(int argc, char **argv)
{
    mc_init(&argc, &argv, MPI_THREAD_SINGLE);
    test_unmap_and_map_again();
    test_dontneed();
    test_files();
    test_mremap();
    test_heap();
    test_read_only();
    return mc_finish();
}
