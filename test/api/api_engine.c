/* SPDX-License-Identifier: BSD-3-Clause */
/* libnprdma in a process that has opened UCX over nprdma. What is mapped for
 * peers shows in nprdma_scan(): it counts those of the mapped pages that are
 * not in memory any more. */
#include "api_check.h"

#include "../failure/fail_ucp.h"

#include <nprdma/nprdma.h>

#include <errno.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define PAGE   ((size_t)4096)
#define PAGES  16
#define SIZE   (PAGES * PAGE)

#define END_OF_SPACE ((void*)~(uintptr_t)4095)

static fu_node_t node;


static void open_ucx(void)
{
    API_EQ(fu_node_open(&node), UCS_OK);
}

static char *map_pages(int prot)
{
    char *mem = mmap(NULL, SIZE, prot, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

    API_TRUE(mem != MAP_FAILED);
    /* one huge page at the first touch would bring all of them in */
    API_EQ(madvise(mem, SIZE, MADV_NOHUGEPAGE), 0);
    return mem;
}

static unsigned count_resident(char *mem)
{
    unsigned char resident[PAGES];
    unsigned i, count = 0;

    API_EQ(mincore(mem, SIZE, resident), 0);
    for (i = 0; i < PAGES; ++i) {
        count += resident[i] & 1;
    }
    return count;
}

/* How many pages of the memory peers reach. Loses its contents. */
static int64_t count_mapped(char *mem)
{
    int64_t count;

    API_EQ(madvise(mem, SIZE, MADV_DONTNEED), 0);
    count = nprdma_scan(mem, SIZE);
    API_EQ(nprdma_scan(mem, SIZE), 0);
    return count;
}

static uint64_t count_swap_outs(void)
{
    nprdma_counters_t counters;

    API_EQ(nprdma_get_counters(&counters, sizeof(counters)), 0);
    return counters.swap_outs;
}

/* Found as soon as UCX has it, and not before */
static void found(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);

    API_EQ(nprdma_version(NULL, NULL, NULL), -ENOTCONN);
    API_EQ(nprdma_set_order(NPRDMA_ORDER_BEFORE), -ENOTCONN);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), -ENOTCONN);
    open_ucx();
    API_EQ(nprdma_version(NULL, NULL, NULL), 0);
    API_EQ(nprdma_set_order(NPRDMA_ORDER_BEFORE), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
}

static void prefetch(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, NPRDMA_PREFETCH_WRITE), 0);
    API_EQ(count_resident(mem), PAGES);
    API_EQ(nprdma_scan(mem, SIZE), 0);
    API_EQ(madvise(mem + (2 * PAGE), 3 * PAGE, MADV_DONTNEED), 0);
    API_EQ(nprdma_scan(mem, SIZE), 3);
    API_EQ(count_mapped(mem), PAGES - 3);

    /* two pages are touched by one page's length between two */
    API_EQ(nprdma_prefetch(mem + (5 * PAGE) - 1, 2, 0), 0);
    API_EQ(count_resident(mem), 2);
    API_EQ(count_mapped(mem), 2);
    API_EQ(nprdma_prefetch(mem, 0, 0), 0);
    API_EQ(count_mapped(mem), 0);

    /* for reading is not for writing */
    API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, NPRDMA_PREFETCH_WRITE), 0);
    API_EQ(count_mapped(mem), PAGES);
}

/* Contents stay what they were */
static void contents(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);

    open_ucx();
    fu_fill(mem, SIZE, 1);
    API_EQ(nprdma_prefetch(mem, SIZE, NPRDMA_PREFETCH_WRITE), 0);
    fu_check("after nprdma_prefetch", mem, SIZE, 1);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    fu_check("after nprdma_notify_swap_out", mem, SIZE, 1);
    API_EQ(nprdma_notify_swap_in(mem, SIZE), 0);
    fu_check("after nprdma_notify_swap_in", mem, SIZE, 1);
    API_EQ(nprdma_scan(mem, SIZE), 0);
    fu_check("after nprdma_scan", mem, SIZE, 1);
}

static void rights(void)
{
    char *mem = map_pages(PROT_READ);

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, NPRDMA_PREFETCH_WRITE), -EFAULT);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    API_EQ(nprdma_notify_swap_in(mem, SIZE), 0); /* for reading */
    API_EQ(count_mapped(mem), PAGES);

    API_EQ(mprotect(mem, SIZE, PROT_NONE), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), -EFAULT);
    API_EQ(nprdma_notify_swap_in(mem, SIZE), -EFAULT);

    API_EQ(munmap(mem, SIZE), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), -EFAULT);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    API_EQ(nprdma_scan(mem, SIZE), 0);
}

static void bad_ranges(void)
{
    const nprdma_swapper_t swapper = {NULL, NULL};
    char *mem                      = map_pages(PROT_READ | PROT_WRITE);
    void *wrap                     = END_OF_SPACE;

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, 2), -EINVAL);
    API_EQ(nprdma_prefetch(wrap, SIZE, 0), -EINVAL);
    API_EQ(nprdma_prefetch(mem, SIZE_MAX, 0), -EINVAL);
    API_EQ(nprdma_notify_swap_out(wrap, SIZE), -EINVAL);
    API_EQ(nprdma_notify_swap_in(wrap, SIZE), -EINVAL);
    API_EQ(nprdma_scan(wrap, SIZE), -EINVAL);
    API_EQ(nprdma_register_swapper(wrap, SIZE, &swapper), -EINVAL);
    API_EQ(nprdma_unregister_swapper(wrap, SIZE), -EINVAL);
    API_EQ(nprdma_register_swapper(mem, SIZE, &swapper), -EINVAL);
    API_EQ(nprdma_register_swapper(mem, SIZE, NULL), -EINVAL);
}

static void swap_out(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);
    uint64_t before;

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, NPRDMA_PREFETCH_WRITE), 0);
    before = count_swap_outs();
    API_EQ(nprdma_notify_swap_out(mem + PAGE, 3 * PAGE), 0);
    API_EQ(count_swap_outs(), before + 1);
    API_EQ(nprdma_notify_swap_out(mem + (6 * PAGE) - 1, 2), 0);
    API_EQ(nprdma_notify_swap_out(mem, 0), 0);
    API_EQ(count_mapped(mem), PAGES - 5);
}

static void swap_in(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);

    open_ucx();
    mem[3 * PAGE] = 1;
    API_EQ(nprdma_notify_swap_in(mem + (3 * PAGE), PAGE), 0);
    API_EQ(count_mapped(mem), 1);
}

/* A pool of the program that keeps its pages away until somebody asks */
typedef struct pool {
    char     *mem;
    unsigned calls;
    void     *va;       /* what was asked for last */
    size_t   len;
    int      write;
    int      ret;       /* what to answer */
    int      notifies;  /* tell that they are in, from within */
} pool_t;

static int pool_swap_in(void *arg, void *va, size_t len, int write)
{
    pool_t *pool = arg;

    ++pool->calls;
    pool->va    = va;
    pool->len   = len;
    pool->write = write;
    API_EQ(nprdma_unregister_swapper(pool->mem, SIZE), -EDEADLK);
    API_EQ(nprdma_prefetch(pool->mem, SIZE, 0), -EDEADLK);
    if (pool->ret == 0) {
        API_EQ(mprotect(va, len, PROT_READ | PROT_WRITE), 0);
        memset(va, 0x5a, len);
        if (pool->notifies) {
            API_EQ(nprdma_notify_swap_in(va, len), 0);
        }
    }
    return pool->ret;
}

static void pool_open(pool_t *pool)
{
    const nprdma_swapper_t swapper = {pool_swap_in, pool};

    memset(pool, 0, sizeof(*pool));
    pool->mem = map_pages(PROT_NONE);
    API_EQ(nprdma_register_swapper(pool->mem, SIZE, &swapper), 0);
}

static void swapper(void)
{
    pool_t pool;

    open_ucx();
    pool_open(&pool);
    API_EQ(nprdma_prefetch(pool.mem + PAGE, 2 * PAGE, NPRDMA_PREFETCH_WRITE),
           0);
    API_TRUE(pool.calls > 0);
    API_TRUE((char*)pool.va >= pool.mem + PAGE);
    API_TRUE((char*)pool.va + pool.len <= pool.mem + (3 * PAGE));
    API_TRUE(pool.write);
    API_EQ(pool.mem[PAGE], 0x5a);
    API_EQ(pool.mem[3 * PAGE - 1], 0x5a);
    API_EQ(count_mapped(pool.mem), 2);

    /* what cannot be brought in */
    pool.ret = -1;
    API_EQ(nprdma_prefetch(pool.mem + (8 * PAGE), PAGE, 0), -EFAULT);

    /* and not any more */
    API_EQ(nprdma_unregister_swapper(pool.mem, SIZE), 0);
    pool.calls = 0;
    pool.ret   = 0;
    API_EQ(nprdma_prefetch(pool.mem + (9 * PAGE), PAGE, 0), -EFAULT);
    API_EQ(pool.calls, 0);
}

static void swapper_ranges(void)
{
    const nprdma_swapper_t other = {pool_swap_in, NULL};
    pool_t pool;

    open_ucx();
    pool_open(&pool);
    API_EQ(nprdma_register_swapper(pool.mem, SIZE, &other), -EEXIST);
    API_EQ(nprdma_register_swapper(pool.mem + SIZE - PAGE, PAGE, &other),
           -EEXIST);
    API_EQ(nprdma_unregister_swapper(pool.mem, SIZE - PAGE), -ENOENT);
    API_EQ(nprdma_unregister_swapper(pool.mem, SIZE), 0);
    API_EQ(nprdma_unregister_swapper(pool.mem, SIZE), -ENOENT);
    API_EQ(nprdma_register_swapper(pool.mem + 1, PAGE, &other), -EINVAL);
    API_EQ(nprdma_register_swapper(pool.mem, PAGE + 1, &other), -EINVAL);
    API_EQ(nprdma_register_swapper(pool.mem, 0, &other), -EINVAL);
}

/* Notifications do not ask the swapper back */
static void swapper_notifies(void)
{
    pool_t pool;

    open_ucx();
    pool_open(&pool);
    API_EQ(mprotect(pool.mem, PAGE, PROT_READ | PROT_WRITE), 0);
    API_EQ(nprdma_notify_swap_in(pool.mem, PAGE), 0);
    API_EQ(pool.calls, 0);
    API_EQ(count_mapped(pool.mem), 1);

    pool.notifies = 1;
    API_EQ(nprdma_prefetch(pool.mem + PAGE, PAGE, 0), 0);
    API_EQ(pool.calls, 1);
    API_EQ(count_mapped(pool.mem), 1);

    /* a notification of one page is no notification of the next */
    API_EQ(nprdma_prefetch(pool.mem + (2 * PAGE), PAGE, 0), 0);
    API_EQ(pool.calls, 2);
}

static void *order_of_thread(void *arg)
{
    (void)arg;
    API_EQ(nprdma_get_order(), 0);
    API_EQ(nprdma_set_order(NPRDMA_ORDER_AFTER), 0);
    API_EQ(nprdma_get_order(), NPRDMA_ORDER_AFTER);
    return NULL;
}

static void order(void)
{
    const unsigned both = NPRDMA_ORDER_BEFORE | NPRDMA_ORDER_AFTER;
    pthread_t thread;

    open_ucx();
    API_EQ(nprdma_get_order(), 0);
    API_EQ(nprdma_set_order(both), 0);
    API_EQ(nprdma_get_order(), both);
    API_EQ(nprdma_set_order(4), -EINVAL);
    API_EQ(nprdma_get_order(), both);
    API_EQ(pthread_create(&thread, NULL, order_of_thread, NULL), 0);
    API_EQ(pthread_join(thread, NULL), 0);
    API_EQ(nprdma_get_order(), both);
    API_EQ(nprdma_set_order(0), 0);
    API_EQ(nprdma_get_order(), 0);
}

static void hint(void)
{
    open_ucx();
    API_EQ(nprdma_get_hint(), 0);
    API_EQ(nprdma_set_hint(NPRDMA_HINT_HOT), 0);
    API_EQ(nprdma_get_hint(), NPRDMA_HINT_HOT);
    API_EQ(nprdma_set_order(NPRDMA_ORDER_AFTER), 0);
    API_EQ(nprdma_get_hint(), NPRDMA_HINT_HOT);
    API_EQ(nprdma_set_hint(NPRDMA_HINT_HOT | 2), -EINVAL);
    API_EQ(nprdma_get_hint(), NPRDMA_HINT_HOT);
    API_EQ(nprdma_set_hint(0), 0);
    API_EQ(nprdma_get_hint(), 0);
    API_EQ(nprdma_get_order(), NPRDMA_ORDER_AFTER);
    API_EQ(nprdma_set_order(0), 0);
}

static void counters(void)
{
    const size_t part = offsetof(nprdma_counters_t, swap_outs) +
                        sizeof(uint64_t);
    char *mem         = map_pages(PROT_READ | PROT_WRITE);
    struct {
        nprdma_counters_t known;
        uint64_t          later;
        uint64_t          guard;
    } counters;

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);

    /* a program that was built with more of them */
    memset(&counters, 0xff, sizeof(counters));
    API_EQ(nprdma_get_counters(&counters.known,
                               offsetof(__typeof__(counters), guard)), 0);
    API_EQ(counters.known.swap_outs, 1);
    API_EQ(counters.later, 0);
    API_EQ(counters.guard, -1);

    /* and one with fewer */
    memset(&counters, 0xff, sizeof(counters));
    API_EQ(nprdma_get_counters(&counters.known, part), 0);
    API_EQ(counters.known.swap_outs, 1);
    API_EQ(counters.known.flushes, -1);
}

static void child_of_engine(char *mem)
{
    API_EQ(nprdma_version(NULL, NULL, NULL), -ENOTCONN);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    API_EQ(nprdma_notify_swap_in(mem, SIZE), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), -ENOTCONN);
    API_EQ(nprdma_scan(mem, SIZE), -ENOTCONN);
    API_EQ(count_swap_outs(), 0);

    /* its own engine has no tables, so peers go through its CPU */
    open_ucx();
    API_EQ(nprdma_version(NULL, NULL, NULL), 0);
    API_EQ(nprdma_prefetch(mem, SIZE, 0), -ENOSPC);
    API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    API_EQ(count_swap_outs(), 1);
    API_EQ(nprdma_scan(mem, SIZE), 0);
}

/* What a forked child does is none of its parent's business */
static void forked(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);
    int status;
    pid_t pid;

    open_ucx();
    API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
    API_EQ(nprdma_notify_swap_out(mem, PAGE), 0);
    pid = fork();
    if (pid == 0) {
        child_of_engine(mem);
        _exit(0);
    }
    API_EQ(waitpid(pid, &status, 0), pid);
    API_EQ(status, 0);
    API_EQ(count_swap_outs(), 1);
    API_EQ(count_mapped(mem), PAGES - 1);
}

static void *use_of_thread(void *arg)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);
    int i;

    (void)arg;
    while (nprdma_version(NULL, NULL, NULL) == -ENOTCONN) {
        API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
    }
    for (i = 0; i < 200; ++i) {
        API_EQ(nprdma_prefetch(mem, SIZE, i % 2), 0);
        API_EQ(count_resident(mem), PAGES);
        API_EQ(nprdma_notify_swap_out(mem, SIZE / 2), 0);
        API_EQ(count_mapped(mem), PAGES / 2);
    }
    return NULL;
}

/* Threads use it while one opens UCX */
static void threads(void)
{
    pthread_t thread[4];
    int i;

    for (i = 0; i < 4; ++i) {
        API_EQ(pthread_create(&thread[i], NULL, use_of_thread, NULL), 0);
    }
    open_ucx();
    for (i = 0; i < 4; ++i) {
        API_EQ(pthread_join(thread[i], NULL), 0);
    }
}

/* What the child of the following offers, and what it is asked for */
typedef struct offer {
    uint64_t va;
    size_t   key_size;
    char     key[1024];
} offer_t;

enum {
    ASK_CALLS = 'c',  /* how often its swapper was called */
    ASK_EVICT = 'e',  /* take the memory away */
    ASK_END   = 'q'
};

static pool_t peer_pool;

static void peer_offer(fu_peer_t *peer)
{
    ucp_mem_map_params_t params = {0};
    offer_t offer               = {0};
    ucp_mem_h memh;
    void *key;

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = peer_pool.mem;
    params.length     = SIZE;
    API_EQ(ucp_mem_map(node.context, &params, &memh), UCS_OK);
    API_EQ(ucp_rkey_pack(node.context, memh, &key, &offer.key_size), UCS_OK);
    API_TRUE(offer.key_size <= sizeof(offer.key));
    memcpy(offer.key, key, offer.key_size);
    offer.va = (uintptr_t)peer_pool.mem;
    fu_oob_send(peer, &offer, sizeof(offer));
    ucp_rkey_buffer_release(key);
}

static void peer_serve(fu_peer_t *peer)
{
    const double end = fu_now() + fu_wait_seconds;
    unsigned answer;
    char ask;

    do {
        ask = 0;
        while (recv(peer->oob, &ask, 1, MSG_DONTWAIT) != 1) {
            ucp_worker_progress(node.worker);
            API_TRUE(fu_now() < end);
        }
        if (ask == ASK_EVICT) {
            API_EQ(nprdma_notify_swap_out(peer_pool.mem, SIZE), 0);
            API_EQ(madvise(peer_pool.mem, SIZE, MADV_DONTNEED), 0);
            API_EQ(mprotect(peer_pool.mem, SIZE, PROT_NONE), 0);
        }
        answer = peer_pool.calls;
        fu_oob_send(peer, &answer, sizeof(answer));
    } while (ask != ASK_END);
}

static unsigned peer_ask(fu_peer_t *peer, char ask)
{
    unsigned answer;

    fu_oob_send(peer, &ask, 1);
    fu_oob_recv(peer, &answer, sizeof(answer));
    return answer;
}

static void peer_get(fu_peer_t *peer, ucp_rkey_h rkey, uint64_t va)
{
    static char mem[SIZE];
    ucp_request_param_t param = {0};
    size_t i;

    memset(mem, 0, SIZE);
    API_EQ(fu_wait(&node, ucp_get_nbx(peer->ep, mem, SIZE, va, rkey, &param),
                   "get"), UCS_OK);
    for (i = 0; i < SIZE; ++i) {
        API_EQ(mem[i], 0x5a);
    }
}

/* A peer reads what is swapped out: the swapper brings it in, once */
static void peer(void)
{
    nprdma_counters_t counters;
    fu_peer_t peer;
    ucp_rkey_h rkey;
    unsigned calls;
    offer_t offer;
    int is_parent = fu_fork(&peer);

    open_ucx();
    API_EQ(fu_connect(&node, &peer, UCP_ERR_HANDLING_MODE_NONE), UCS_OK);
    if (!is_parent) {
        pool_open(&peer_pool);
        peer_offer(&peer);
        peer_serve(&peer);
        _exit(0);
    }

    fu_oob_recv(&peer, &offer, sizeof(offer));
    API_EQ(ucp_ep_rkey_unpack(peer.ep, offer.key, &rkey), UCS_OK);
    peer_get(&peer, rkey, offer.va);
    calls = peer_ask(&peer, ASK_CALLS);
    API_TRUE(calls > 0);
    API_EQ(nprdma_get_counters(&counters, sizeof(counters)), 0);
    API_TRUE(counters.remote_faults > 0);

    peer_get(&peer, rkey, offer.va);
    API_EQ(peer_ask(&peer, ASK_CALLS), calls);

    API_EQ(peer_ask(&peer, ASK_EVICT), calls);
    peer_get(&peer, rkey, offer.va);
    API_TRUE(peer_ask(&peer, ASK_CALLS) > calls);

    peer_ask(&peer, ASK_END);
    ucp_rkey_destroy(rkey);
    fu_reap(&peer);
}

/* Count something, say so, and go on until the input ends; each line of it is
 * one more */
static void serve(void)
{
    char *mem = map_pages(PROT_READ | PROT_WRITE);
    int ch;

    open_ucx();
    do {
        API_EQ(nprdma_prefetch(mem, SIZE, 0), 0);
        API_EQ(nprdma_notify_swap_out(mem, SIZE), 0);
        printf("%d %llu\n", (int)getpid(),
               (unsigned long long)count_swap_outs());
        fflush(stdout);
        ch = getchar();
    } while (ch != EOF);
}

static const api_case_t cases[] = {
    {"found", found},
    {"prefetch", prefetch},
    {"contents", contents},
    {"rights", rights},
    {"bad_ranges", bad_ranges},
    {"swap_out", swap_out},
    {"swap_in", swap_in},
    {"swapper", swapper},
    {"swapper_ranges", swapper_ranges},
    {"swapper_notifies", swapper_notifies},
    {"order", order},
    {"hint", hint},
    {"counters", counters},
    {"forked", forked},
    {"threads", threads},
    {"peer", peer},
    {"serve", serve}
};

API_MAIN(cases)
