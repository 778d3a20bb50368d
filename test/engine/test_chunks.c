/* SPDX-License-Identifier: BSD-3-Clause */
/* Which bytes of a large copy come next: alone, through rings, and under the
 * timing model. */

#include "pair.h"
#include "tap.h"

#include "nprdma/dev/soft/chunks.h"
#include "nprdma/mem/arena.h"

#include <string.h>
#include <sys/mman.h>

#define CHUNKS_LEN (3 * UCS_MBYTE + 4096)

/* So slow that nothing arrives while it is looked at */
static np_model_config_t chunks_model = {
    .order    = NP_MODEL_OVERLAP,
    .rate     = 12.5e9,
    .latency  = 1e-6,
    .reg      = 16e-6,
    .reg_rate = 1e9,
    .slowdown = 1e6
};

static uint8_t *chunks_ours, *chunks_his;
static np_iov_t chunks_iov;
static pair_t chunks_pair;
static np_chunks_t chunks;
static size_t chunks_offset, chunks_len;


static void chunks_init(void)
{
    np_chunks_init(&chunks, NP_DIR_PUT, &chunks_iov, 1, (uintptr_t)chunks_his,
                   CHUNKS_LEN);
}

static ucs_status_t chunks_next(void)
{
    return np_chunks_next(&chunks_pair.link, &chunks, &chunks_offset,
                          &chunks_len);
}

static int chunks_is_over(int is_ok)
{
    return np_chunks_is_over(&chunks_pair.link, &chunks, is_ok);
}

/* Move the rest of a copy by at most @a most bytes; returns whether that is all
 * of it, each byte once */
static int chunks_move(size_t done, size_t most)
{
    while (chunks_next() == UCS_OK) {
        if ((chunks_offset != done) || (chunks_len == 0)) {
            return 0;
        }
        np_chunks_moved(&chunks, ucs_min(chunks_len, most));
        done += ucs_min(chunks_len, most);
    }
    return np_chunks_is_claimed(&chunks) && (done == CHUNKS_LEN);
}

/* In one process nothing is shared */
static void chunks_alone(void)
{
    chunks_init();
    np_chunks_plan(&chunks);
    TAP_CHECK(chunks_move(0, 100000) && !np_chunks_is_shared(&chunks) &&
              chunks_is_over(1), "chunks: each byte once");

    chunks_init();
    np_chunks_rest(&chunks);
    TAP_CHECK(chunks_move(0, 4096) && chunks_is_over(1),
              "chunks: each byte once through rings");

    chunks_init();
    np_chunks_plan(&chunks);
    TAP_CHECK(chunks_next() == UCS_OK, "chunks: some are moved");
    np_chunks_moved(&chunks, 4097);
    np_chunks_rest(&chunks);
    TAP_CHECK(chunks_move(4097, 65536) && chunks_is_over(1),
              "chunks: and the others through rings");

    chunks_init();
    np_chunks_stop(&chunks);
    TAP_CHECK(np_chunks_is_claimed(&chunks) && chunks_is_over(0),
              "chunks: nothing is left of what was stopped");
}

/* A copy under the model that has asked its target about this address */
static void chunks_ask(uint64_t addr)
{
    TAP_CHECK(np_model_start(&chunks_model) == UCS_OK, "chunks: a model");
    np_chunks_init(&chunks, NP_DIR_PUT, &chunks_iov, 1, addr, CHUNKS_LEN);
    np_chunks_plan(&chunks);
    TAP_CHECK((chunks_next() == UCS_INPROGRESS) &&
              np_chunks_is_timed(&chunks) &&
              (chunks_pair.link.answers_used == 1) &&
              (chunks_next() == UCS_INPROGRESS),
              "chunks: the target is asked once");
}

static void chunks_timed(void)
{
    const np_model_config_t off = {.order = NP_MODEL_OFF};

    chunks_ask((uintptr_t)chunks_his);
    pair_progress(chunks_pair.target);
    TAP_CHECK((chunks_next() == UCS_OK) &&
              (chunks_pair.link.answers_used == 0),
              "chunks: both sides have it registered");
    TAP_CHECK(chunks_move(0, CHUNKS_LEN) && !chunks_is_over(1),
              "chunks: the link takes its time");
    TAP_CHECK(chunks_is_over(0), "chunks: nobody waits for what has failed");

    chunks_ask((uintptr_t)chunks_his);
    np_chunks_stop(&chunks);
    TAP_CHECK(!chunks_is_over(0), "chunks: an answer that has not come");
    pair_progress(chunks_pair.target);
    TAP_CHECK(chunks_is_over(0) && (chunks_pair.link.answers_used == 0),
              "chunks: and one that has");

    chunks_ask((uintptr_t)chunks_his);
    np_model_start(&off);
    pair_progress(chunks_pair.target);
    TAP_CHECK(chunks_next() == UCS_ERR_INVALID_PARAM,
              "chunks: a target that has no model");
    np_chunks_stop(&chunks);
    TAP_CHECK(chunks_is_over(0), "chunks: that was all");

    chunks_ask(4096);
    pair_progress(chunks_pair.target);
    TAP_CHECK(chunks_next() == UCS_ERR_INVALID_ADDR,
              "chunks: a target that has no such memory");
    np_model_start(&off);
}

void test_chunks(void)
{
    np_arenas_t arenas;

    chunks_ours = mmap(NULL, 2 * CHUNKS_LEN, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    chunks_his  = chunks_ours + CHUNKS_LEN;
    chunks_iov  = (np_iov_t){chunks_ours, CHUNKS_LEN};
    TAP_CHECK((np_arenas_share((uintptr_t)chunks_ours, 2 * CHUNKS_LEN,
                               &arenas) == UCS_OK) &&
              (np_mapper_fault_in((uintptr_t)chunks_ours, 2 * CHUNKS_LEN, 1) ==
               UCS_OK), "chunks: memory");
    pair_open("chunks", &chunks_pair);
    chunks_alone();
    chunks_timed();
    pair_close(&chunks_pair);
    np_mapper_unmap((uintptr_t)chunks_ours, 2 * CHUNKS_LEN);
    munmap(chunks_ours, 2 * CHUNKS_LEN);
}
