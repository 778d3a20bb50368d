/* SPDX-License-Identifier: BSD-3-Clause */
/* A peer that lies about a copy that both sides work on. */

#include "pair.h"
#include "tap.h"

#include "nprdma/engine.h"
#include "nprdma/dev/soft/claim.h"
#include "nprdma/dev/soft/help.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/rma.h"

#include <string.h>
#include <sys/mman.h>

#define HOSTILE_COPY (8 * UCS_MBYTE)

static void *hostile_map(size_t size)
{
    return mmap(NULL, size, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

/* A target claims chunks of a copy, and never does them; then the copy is given
 * up */
static void hostile_claims(void)
{
    uint8_t *ours = hostile_map(HOSTILE_COPY);
    uint8_t *his  = hostile_map(HOSTILE_COPY);
    np_iov_t iov  = {ours, HOSTILE_COPY};
    ucs_status_t done = UCS_INPROGRESS, status;
    np_packed_key_t packed;
    np_arenas_t arenas;
    pair_t pair;
    np_share_t *share;
    np_key_t *key;
    unsigned i;

    pair_open("claims", &pair);
    for (i = 0; (i < PROGRESS_MAX) && (pair.link.target == NULL); ++i) {
        pair_progress(pair.target);
        np_port_housekeep(pair.initiator);
    }

    /* nothing is shared inside one process */
    ++pair.link.flight.engine_id;
    np_arenas_share((uintptr_t)his, HOSTILE_COPY, &arenas);
    np_key_pack_arenas(&packed, arenas);
    packed.engine_id = pair.link.flight.engine_id;
    TAP_CHECK(np_key_unpack(&packed, &key) == UCS_OK, "claims: a key");
    status = np_ep_move(NP_DIR_PUT, &pair.link.flight, key, &iov, 1,
                        (uintptr_t)his, &done);
    TAP_CHECK((status == UCS_INPROGRESS) && (pair.link.shares_used == 1),
              "claims: a copy is shared (%d)", status);

    share = &pair.link.shm->shares[0];
    atomic_fetch_add(&share->claim, UINT64_C(3) << NP_CLAIM_BITS);
    np_link_down(&pair.link, UCS_ERR_ENDPOINT_TIMEOUT);
    for (i = 0; (i < PROGRESS_MAX) && (done == UCS_INPROGRESS); ++i) {
        np_port_work(pair.initiator);
    }
    TAP_CHECK((done != UCS_INPROGRESS) && (done != UCS_OK),
              "claims: the copy ends (%d)", done);
    TAP_CHECK(atomic_load(&pair.link.drain.is_over),
              "claims: its target is given up");
    pair_close(&pair);
    np_key_release(key);
    munmap(ours, HOSTILE_COPY);
    munmap(his, HOSTILE_COPY);
}

/* An initiator that has a copy begun again and again, byte by byte */
static void hostile_claims_again(void)
{
    const uint32_t len            = UCS_MBYTE;
    const np_slot_share_t request = {.index = 0, .generation = 7};
    uint8_t *ours                 = hostile_map(len);
    pair_t pair;
    np_arenas_t arenas;
    np_share_t *share;
    unsigned count;

    pair_open("claims again", &pair);
    np_arenas_share((uintptr_t)ours, len, &arenas);
    share       = &pair.link.shm->shares[0];
    share->args = (np_share_args_t){
        .initiator_va = (uintptr_t)ours,
        .target_va    = (uintptr_t)ours,
        .len          = len,
        .chunk        = 1,
        .chunks       = len,
        .cpu          = -1
    };
    atomic_store(&share->claim, UINT64_C(7) << (2 * NP_CLAIM_BITS));
    np_help_begin(pair.peer, &request);
    np_help_begin(pair.peer, &request);
    TAP_CHECK(ucs_list_length(&pair.target->helps) == 1,
              "claims again: one copy in one place");

    /* its pages are absent: that is for the initiator to change */
    count = np_help_progress(pair.target);
    TAP_CHECK((count == 0) && !ucs_list_is_empty(&pair.target->helps) &&
              !np_help_has_work(pair.target),
              "claims again: it waits for pages: %u", count);
    TAP_CHECK(np_mapper_fault_in((uintptr_t)ours, len, 1) == UCS_OK,
              "claims again: pages to copy");
    count = np_help_progress(pair.target);
    TAP_CHECK((count > 0) &&
              (count <= (NP_COPY_QUANTUM / NP_COPY_CHUNK_MIN)),
              "claims again: so many chunks at a time, no more: %u", count);
    atomic_store(&share->claim, UINT64_C(7) << (2 * NP_CLAIM_BITS));
    np_help_progress(pair.target);
    TAP_CHECK(ucs_list_is_empty(&pair.target->helps),
              "claims again: nothing is done twice");
    pair_close(&pair);
    munmap(ours, len);
}

/* Help of the hostile pair's target with a copy into memory that it may bring
 * in by itself; returns the status that it reports */
static ucs_status_t
hostile_help_open(pair_t *pair, uint64_t initiator, uint8_t *target,
                  uint16_t generation)
{
    const np_slot_share_t request = {.index = 0, .generation = generation};
    np_share_t *share             = &pair->link.shm->shares[0];
    unsigned i;

    share->args   = (np_share_args_t){
        .initiator_va = initiator,
        .target_va    = (uintptr_t)target,
        .len          = HOSTILE_COPY,
        .chunk        = HOSTILE_COPY / 4,
        .chunks       = 4,
        .dir          = NP_DIR_GET,
        .cpu          = -1,
        .is_open      = 1
    };
    share->status = UCS_OK;
    atomic_store(&share->done, 0);
    atomic_store(&share->claim, (uint64_t)generation << (2 * NP_CLAIM_BITS));
    np_help_begin(pair->peer, &request);
    for (i = 0; (i < PROGRESS_MAX) && !ucs_list_is_empty(&pair->target->helps);
         ++i) {
        np_help_progress(pair->target);
    }
    TAP_CHECK(ucs_list_is_empty(&pair->target->helps),
              "open: the help ends, after %u chunks",
              atomic_load(&share->done));
    return share->status;
}

/* An initiator says that its memory can be written as it is: absent, and not
 * there */
static void hostile_open_copy(void)
{
    uint8_t *ours = hostile_map(HOSTILE_COPY);
    uint8_t *his  = hostile_map(HOSTILE_COPY);
    pair_t pair;
    np_arenas_t arenas;
    ucs_status_t status;

    pair_open("open", &pair);
    np_arenas_share((uintptr_t)his, HOSTILE_COPY, &arenas);
    memset(his, 'x', HOSTILE_COPY);
    status = hostile_help_open(&pair, (uintptr_t)ours, his, 1);
    TAP_CHECK((status == UCS_OK) &&
              (memcmp(ours, his, HOSTILE_COPY) == 0),
              "open: absent memory is written (%d)", status);
    TAP_CHECK(!np_mapper_is_mapped((uintptr_t)ours, 1, 1),
              "open: and is not mapped by that");

    munmap(ours, HOSTILE_COPY);
    status = hostile_help_open(&pair, (uintptr_t)ours, his, 2);
    TAP_CHECK(status == UCS_ERR_INVALID_ADDR,
              "open: no memory at all is an error (%d)", status);
    status = hostile_help_open(&pair, UINT64_MAX - 4095, his, 3);
    TAP_CHECK(status != UCS_OK, "open: nor does an address wrap (%d)", status);
    pair_close(&pair);
    np_mapper_unmap((uintptr_t)his, HOSTILE_COPY);
    munmap(his, HOSTILE_COPY);
}

void test_hostile_share(void)
{
    hostile_claims();
    hostile_claims_again();
    hostile_open_copy();
}
