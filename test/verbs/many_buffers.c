/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two processes that communicate through many different buffers of 1 MiB, none
 * of which is ever freed or used twice: each is sent and received into once, is
 * checked, and then leaves memory as it would under pressure (MADV_PAGEOUT).
 * What each process has in memory and what is pinned is printed every so many
 * buffers, in KiB; a side that dies ends the table with one line. With "alone"
 * nothing is sent: what the buffers themselves cost.
 */
#define _GNU_SOURCE
#include "../failure/fail_ucp.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define SIZE   (1ul << 20)
#define WORDS  (SIZE / sizeof(uint64_t))
#define PAGE   (4096 / sizeof(uint64_t))   /* in words */
#define TAG    1

typedef struct {
    const char *file;
    const char *key;
} figure_t;

/* Of the process, then of the whole machine. VmRSS leaves out what each thread
 * has counted for itself, up to 256 KiB. */
static const figure_t figures[] = {
    {"/proc/self/smaps_rollup", "Rss:"}, {"/proc/self/status", "VmPin:"},
    {"/proc/self/status", "VmLck:"},     {"/proc/self/status", "VmPTE:"},
    {"/proc/self/status", "RssShmem:"},  {"/proc/self/status", "VmSwap:"},
    {"/proc/vmstat", "nr_foll_pin_acquired"},
    {"/proc/vmstat", "nr_foll_pin_released"},
    {"/proc/meminfo", "MemTotal:"},      {"/proc/meminfo", "MemFree:"},
    {"/proc/meminfo", "Buffers:"},       {"/proc/meminfo", "Cached:"},
    {"/proc/meminfo", "Slab:"}
};

enum {
    RSS, PIN, LCK, PTE, SHMEM, SWAP, ACQUIRED, RELEASED, TOTAL, FREE, BUFFERS,
    CACHED, SLAB, NUM_FIGURES
};

static unsigned count, step;
static int is_alone;
static volatile unsigned *done;   /* buffers, of both sides together */

static long read_figure(const figure_t *figure)
{
    const size_t length = strlen(figure->key);
    FILE         *file  = fopen(figure->file, "r");
    long         value  = -1;
    char         line[256];

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        if (strncmp(line, figure->key, length) == 0) {
            value = atol(line + length);
        }
    }
    if (value < 0) {
        fu_fail("%s has no %s", figure->file, figure->key);
    }
    fclose(file);
    return value;
}

static void print_figures(int side, unsigned used, double begin)
{
    long value[NUM_FIGURES];
    int  i;

    for (i = 0; i < NUM_FIGURES; ++i) {
        value[i] = read_figure(&figures[i]);
    }
    printf("%d %u %ld %ld %ld %ld %ld %ld %ld %ld %ld %.0f\n", side, used,
           value[RSS], value[PIN], value[LCK], value[PTE], value[SHMEM],
           value[SWAP], (value[ACQUIRED] - value[RELEASED]) * 4, value[SLAB],
           value[TOTAL] - value[FREE] - value[BUFFERS] - value[CACHED],
           fu_now() - begin);
    fflush(stdout);
}

static uint64_t word(unsigned number, int side, size_t i)
{
    return ((((uint64_t)number * 2) + side) * WORDS + i) *
           0x9e3779b97f4a7c15ull;
}

static void fill(uint64_t *data, unsigned number, int side)
{
    size_t i;

    for (i = 0; i < WORDS; ++i) {
        data[i] = word(number, side, i);
    }
}

static void check(const uint64_t *data, unsigned number, int side)
{
    size_t i;

    for (i = 0; i < WORDS; ++i) {
        if (data[i] != word(number, side, i)) {
            fu_fail("buffer %u: word %zu of %zu is 0x%lx, 0x%lx wanted", number,
                    i, WORDS, data[i], word(number, side, i));
        }
    }
}

/* What stays in it: each page holds one word only, which costs zram nothing */
static uint64_t remainder_word(unsigned number, size_t i)
{
    return word(number, 0, i / PAGE);
}

static void leave(uint64_t *data, unsigned number)
{
    size_t i;

    for (i = 0; i < WORDS; ++i) {
        data[i] = remainder_word(number, i);
    }
    madvise(data, SIZE, MADV_PAGEOUT);
}

static void check_remainder(const uint64_t *data, unsigned number)
{
    size_t i;

    for (i = 0; i < WORDS; ++i) {
        if (data[i] != remainder_word(number, i)) {
            fu_fail("buffer %u, back from swap: word %zu is 0x%lx", number, i,
                    data[i]);
        }
    }
}

static void finish(fu_node_t *node, ucs_status_ptr_t req, const char *what)
{
    const ucs_status_t status = fu_wait(node, req, what);

    if (status != UCS_OK) {
        fu_fail("%s: %s", what, ucs_status_string(status));
    }
}

static void exchange(fu_peer_t *peer, uint64_t *data, unsigned number, int side)
{
    fu_node_t *node = peer->node;
    int       turn;

    for (turn = 0; turn < 2; ++turn) {
        if (turn == side) {
            fill(data, number, side);
            finish(node, fu_send(peer, data, SIZE, TAG), "send");
        } else {
            finish(node, fu_recv(node, data, SIZE, TAG), "receive");
            check(data, number, !side);
        }
    }
}

static uint64_t *new_buffer(void)
{
    void *data = mmap(NULL, SIZE, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    if (data == MAP_FAILED) {
        fu_fail("mmap: %s", strerror(errno));
    }
    return data;
}

/* A page that was on its way through a list of some processor stayed */
static void leave_again(uint64_t **buffers, unsigned used)
{
    unsigned i;

    for (i = (used > (2 * step)) ? used - (2 * step) : 0; i < used; ++i) {
        madvise(buffers[i], SIZE, MADV_PAGEOUT);
    }
}

static void meet(fu_peer_t *peer)
{
    char byte = 0;

    fu_oob_send(peer, &byte, 1);
    fu_oob_recv(peer, &byte, 1);
}

static void run(fu_peer_t *peer, int side)
{
    const double begin = fu_now();
    uint64_t     **buffers = calloc(count, sizeof(*buffers));
    unsigned     i;

    for (i = 0; i < count; ++i) {
        buffers[i] = new_buffer();
        if (!is_alone) {
            exchange(peer, buffers[i], i, side);
        }
        leave(buffers[i], i);
        done[side] = i + 1;
        if (((i + 1) % step) == 0) {
            leave_again(buffers, i + 1);
            meet(peer);
            print_figures(side, i + 1, begin);
        }
    }
    for (i = 0; i < count; i += step) {
        check_remainder(buffers[i], i);
    }
}

static void run_with_peer(fu_peer_t *peer, int side)
{
    fu_node_t node;

    if ((fu_node_open(&node) != UCS_OK) ||
        (fu_connect(&node, peer, UCP_ERR_HANDLING_MODE_NONE) != UCS_OK)) {
        fu_fail("no endpoint");
    }
    run(peer, side);
    fu_disconnect(peer);
    meet(peer); /* both have closed it before one leaves */
    fu_node_close(&node);
}

static pid_t start(int side, int fds[2])
{
    fu_peer_t peer = {.oob = fds[side]};
    pid_t     pid  = fork();

    if (pid == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        close(fds[!side]);
        (is_alone ? run : run_with_peer)(&peer, side);
        exit(0);
    }
    if (pid < 0) {
        fu_fail("fork: %s", strerror(errno));
    }
    return pid;
}

/* Both end well, or the first that does not takes the other one with it */
static int await(const pid_t pids[2])
{
    int i, side, status;

    for (i = 0; i < 2; ++i) {
        side = wait(&status) == pids[1];
        if (status != 0) {
            printf("# ended after %u buffers: side %d %s %d\n", done[side],
                   side, WIFSIGNALED(status) ? "was killed by signal" :
                   "failed with exit code",
                   WIFSIGNALED(status) ? WTERMSIG(status) :
                   WEXITSTATUS(status));
            kill(pids[!side], SIGKILL);
            return 1;
        }
    }
    printf("# ended after all %u buffers\n", done[0]);
    return 0;
}

int main(int argc, char **argv)
{
    pid_t pids[2];
    int   fds[2];

    count    = (argc > 1) ? atoi(argv[1]) : 10000;
    step     = (argc > 2) ? atoi(argv[2]) : 100;
    is_alone = (argc > 3) && (strcmp(argv[3], "alone") == 0);
    if ((count == 0) || (step == 0) || (argc > (is_alone ? 4 : 3))) {
        fprintf(stderr, "usage: many_buffers [COUNT [STEP [alone]]]\n");
        return 2;
    }
    if (getenv("NPRDMA_TEST_SECONDS") != NULL) {
        fu_wait_seconds = atoi(getenv("NPRDMA_TEST_SECONDS"));
    }
    done = mmap(NULL, 2 * sizeof(*done), PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if ((done == MAP_FAILED) ||
        (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0)) {
        fu_fail("main: %s", strerror(errno));
    }
    printf("# side buffers rss pin lck pte shmem swap pinned slab used "
           "seconds\n");
    fflush(stdout);
    pids[0] = start(0, fds);
    pids[1] = start(1, fds);
    close(fds[0]);
    close(fds[1]);
    return await(pids);
}
