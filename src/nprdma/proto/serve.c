/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a target does for its peers. A peer is trusted with what it was given:
 * every address is checked here, and the kernel does the copying.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "serve.h"

#include "atomic.h"
#include "entries.h"
#include "help.h"

#include "../dev/soft/dma.h"
#include "../mem/access.h"
#include "../mem/alloc.h"
#include "../mem/mapper.h"
#include "../mem/swapper.h"
#include "../pause.h"

#include <string.h>
#include <unistd.h>

/* Times that a target tries again by itself when its pages go meanwhile */
#define NP_SERVE_ROUNDS 4

/* Times that a swapper may take a page away before it is copied */
#define NP_SERVE_COPY_ROUNDS 64


static void np_serve_segment(np_peer_t *peer, uint64_t id)
{
    np_msg_t msg = {
        .type       = NP_MSG_SEGMENT,
        .version    = NP_WIRE_VERSION,
        .segment_id = id
    };
    size_t size;
    int fd;

    fd = np_alloc_dup_fd(id, &size);
    if (fd >= 0) {
        msg.size = size;
        (void)np_sock_send(peer->fd, &msg, &fd, 1); /* else it asks again */
        close(fd);
    }
}

int np_serve_note(np_peer_t *peer, const np_slot_t *slot, uint64_t word)
{
    switch (np_word_kind(word)) {
    case NP_SLOT_SHARE:
        return np_help_begin(peer, &slot->share);
    case NP_SLOT_SEGMENT:
        np_serve_segment(peer, slot->segment.id);
        return 1;
    case NP_SLOT_RELEASE:
        atomic_fetch_sub_explicit(&peer->holds,
                                  ucs_min(atomic_load(&peer->holds),
                                          slot->release.count),
                                  memory_order_relaxed);
        return 1;
    default:
        return 0;
    }
}

static ucs_status_t
np_serve_copy_bytes(np_peer_t *peer, const np_slot_fault_t *fault,
                    uint8_t *area)
{
    ucs_status_t status;

    if (atomic_load_explicit(&peer->shm->epoch, memory_order_relaxed) !=
        fault->epoch) {
        return UCS_ERR_CANCELED;
    }

    status = np_access_check_again(fault->remote, fault->len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    return (fault->flags & NP_FAULT_PUT) ?
           np_access_write(fault->remote, area, fault->len) :
           np_access_read(area, fault->remote, fault->len);
}

/* Copy if no page of it may go just now: a program that swaps by itself expects
 * its frames to be left alone. UCS_ERR_NO_PROGRESS: some may. */
static ucs_status_t
np_serve_copy_try(np_peer_t *peer, const np_slot_fault_t *fault, uint8_t *area,
                  np_moving_t *moving)
{
    np_dir_t dir        = (fault->flags & NP_FAULT_PUT) ? NP_DIR_PUT :
                          NP_DIR_GET;
    const uint64_t end  = fault->remote + fault->len;
    ucs_status_t status = UCS_OK;
    const np_table_t *table;
    uint64_t va;

    np_moving_begin(moving);
    for (va = fault->remote; va < end; va = (va | (NP_PAGE_SIZE - 1)) + 1) {
        table = np_table_find(va >> NP_ARENA_SHIFT);
        if ((table != NULL) && !np_dma_is_mapped(table, va, 1, dir)) {
            status = UCS_ERR_NO_PROGRESS;
            break;
        }
    }

    if (status == UCS_OK) {
        status = np_serve_copy_bytes(peer, fault, area);
    }
    np_moving_end(moving);
    return status;
}

/* The CPU copies: pages that the OS takes come back by themselves, those of a
 * swapper are asked for.
 * UCS_ERR_NO_PROGRESS: it is not inside the message: ask once more, so that it
 * is; UCS_ERR_NO_RESOURCE: the swapper takes it away again each time. */
static ucs_status_t np_serve_copy(np_peer_t *peer, const np_slot_fault_t *fault,
                                  uint8_t *area, np_moving_t *moving)
{
    ucs_status_t status;
    unsigned round;

    if (!(fault->flags & NP_FAULT_INLINE)) {
        return UCS_ERR_NO_PROGRESS; /* the initiator's pages may go as well */
    }

    for (round = 0; round < NP_SERVE_COPY_ROUNDS; ++round) {
        status = np_serve_copy_try(peer, fault, area, moving);
        if (status != UCS_ERR_NO_PROGRESS) {
            return status;
        }

        status = np_mapper_fault_in(fault->remote, fault->len,
                                    !!(fault->flags & NP_FAULT_PUT));
        NP_PAUSE(SERVE_MAPPED);
        if ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE)) {
            return status;
        }
    }

    if (np_swap_range_touches(fault->remote, fault->len)) {
        return UCS_ERR_NO_RESOURCE;
    }

    np_moving_begin(moving);
    status = np_serve_copy_bytes(peer, fault, area);
    np_moving_end(moving);
    return status;
}

/* The data ring's way to memory that the program swaps by itself, or may
 * deregister meanwhile */
static ucs_status_t
np_serve_rma_swapped(np_peer_t *peer, const np_slot_rma_t *rma, uint8_t kind,
                     uint32_t len)
{
    const np_slot_fault_t fault = {
        .remote = rma->addr,
        .len    = len,
        .flags  = NP_FAULT_INLINE | ((kind == NP_SLOT_PUT) ? NP_FAULT_PUT : 0),
        .epoch  = atomic_load_explicit(&peer->shm->epoch, memory_order_relaxed)
    };
    ucs_status_t status;

    status = np_mapper_fault_in(rma->addr, len, kind == NP_SLOT_PUT);
    NP_PAUSE(SERVE_MAPPED);
    return ((status != UCS_OK) && (status != UCS_ERR_NO_RESOURCE) &&
            (status != UCS_ERR_EXCEEDS_LIMIT)) ? status :
           np_serve_copy(peer, &fault, peer->data.payload + rma->offset,
                         &peer->shm->moving[NP_MOVER_TARGET]);
}

static ucs_status_t
np_serve_rma(np_peer_t *peer, const np_slot_rma_t *rma, uint8_t kind,
             uint32_t len)
{
    uint8_t *data = peer->data.payload + rma->offset;
    uint64_t addr = rma->addr;
    ucs_status_t status;

    status = np_access_check(addr, len);
    if (status != UCS_OK) {
        return status;
    }

    if (ucs_unlikely(np_region_is_exact() ||
                     np_swap_range_touches(addr, len))) {
        return np_serve_rma_swapped(peer, rma, kind, len);
    }

    return (kind == NP_SLOT_PUT) ? np_access_write(addr, data, len) :
           np_access_read(data, addr, len);
}

void np_serve_data(np_peer_t *peer, np_slot_t *slot, uint64_t word)
{
    /* Read once: what the peer writes after the check does not count */
    const np_slot_rma_t rma = {
        .addr   = *(const volatile uint64_t*)&slot->rma.addr,
        .offset = *(const volatile uint32_t*)&slot->rma.offset
    };
    uint32_t len = np_word_len(word);

    slot->rma.status = np_ring_rx_has_payload(&peer->data, rma.offset, len) ?
                       np_serve_rma(peer, &rma, np_word_kind(word), len) :
                       UCS_ERR_INVALID_PARAM;
}

/* Move between the message and our memory, through our own views */
static ucs_status_t
np_serve_move_inline(np_peer_t *peer, const np_slot_fault_t *fault,
                     uint8_t *area, np_moving_t *moving, np_ranges_t *absent)
{
    np_iov_t iov = {area, fault->len};
    np_dma_t dma = {
        .dir    = (fault->flags & NP_FAULT_PUT) ? NP_DIR_PUT : NP_DIR_GET,
        .pid    = NP_VM_SELF,
        .table  = np_table_find(fault->remote >> NP_ARENA_SHIFT),
        .moving = moving,
        .epoch     = &peer->shm->epoch,
        .was_epoch = fault->epoch
    };

    return np_dma_move(&dma, &iov, 1, fault->remote, fault->len, absent);
}

/* The reverse transfer: between the initiator's memory and ours, through both
 * sides' views */
static ucs_status_t
np_serve_move_reverse(np_peer_t *peer, const np_slot_fault_t *fault,
                      np_moving_t *moving, np_ranges_t *absent)
{
    np_dma_t dma = {
        .dir       = (fault->flags & NP_FAULT_PUT) ? NP_DIR_GET : NP_DIR_PUT,
        .pid       = peer->cred.pid,
        .remote    = peer->remote,
        .moving    = moving,
        .epoch     = &peer->shm->epoch,
        .was_epoch = fault->epoch,
        .has_local = 1
    };
    ucs_status_t status;
    size_t done, len, i;
    np_ranges_t part;
    uint64_t addr;
    np_iov_t iov;

    absent->count = 0;
    for (done = 0; done < fault->len; done += len) {
        addr      = fault->local + done;
        len       = ucs_min(fault->len - done, NP_DMA_MAX);
        len       = ucs_min(len, (((addr >> NP_ARENA_SHIFT) + 1)
                                          << NP_ARENA_SHIFT) - addr);
        iov       = (np_iov_t){(void*)(fault->remote + done), len};
        dma.table = (peer->remote == NULL) ? NULL :
                    np_remote_table(peer->remote, addr >> NP_ARENA_SHIFT);
        status    = np_dma_move(&dma, &iov, 1, addr, len, &part);
        if (status != UCS_OK) {
            return status;
        }

        for (i = 0; i < part.count; ++i) {
            np_ranges_add(absent, done + part.range[i].offset,
                          part.range[i].len);
        }
    }
    return UCS_OK;
}

static int np_serve_fault_is_valid(const np_slot_fault_t *fault)
{
    uint32_t max = (fault->flags & NP_FAULT_INLINE) ? NP_INLINE_SIZE :
                   NP_FAULT_MAX;

    return (fault->len > 0) && (fault->len <= max) &&
           (fault->local <= (UINT64_MAX - fault->len)) &&
           ((fault->remote >> NP_ARENA_SHIFT) ==
            ((fault->remote + fault->len - 1) >> NP_ARENA_SHIFT));
}

/* Narrow a FAULT to what is missing of it */
static void np_serve_narrow(np_slot_fault_t *fault, uint8_t **area,
                            const np_ranges_t *absent)
{
    size_t first = absent->range[0].offset;
    size_t last  = absent->range[absent->count - 1].offset +
                   absent->range[absent->count - 1].len;

    fault->remote += first;
    fault->local  += first;
    fault->len     = last - first;
    *area         += first;
}

/* A copy through the kernel that brings pages in */
typedef struct np_serve_use {
    np_peer_t             *peer;
    const np_slot_fault_t *fault;
    uint8_t               *area;
    np_moving_t           *moving;
} np_serve_use_t;

static ucs_status_t np_serve_use(void *arg)
{
    np_serve_use_t *use = arg;
    ucs_status_t status;

    np_moving_begin(use->moving);
    status = np_serve_copy_bytes(use->peer, use->fault, use->area);
    np_moving_end(use->moving);
    return status;
}

/* Bring in what is asked for, and map it. What travels inside the message is
 * copied with that: bring->is_done */
static ucs_status_t np_serve_bring_in(np_peer_t *peer,
                                      const np_slot_fault_t *fault,
                                      uint8_t *area, np_moving_t *moving,
                                      np_bring_t *bring)
{
    np_serve_use_t use = {peer, fault, area, moving};
    int is_inline      = (fault->flags & (NP_FAULT_INLINE | NP_FAULT_COPY |
                                          NP_FAULT_RETRY)) == NP_FAULT_INLINE;

    *bring = (np_bring_t){.use = np_serve_use, .arg = &use};
    return np_mapper_fault_in_by(fault->remote, fault->len,
                                 !!(fault->flags & NP_FAULT_PUT),
                                 is_inline ? bring : NULL);
}

static ucs_status_t
np_serve_fault(const np_job_t *job, np_moving_t *moving, np_stats_t *stats)
{
    np_peer_t *peer       = job->peer;
    np_slot_fault_t fault = job->slot.fault;
    int is_write          = !!(fault.flags & NP_FAULT_PUT);
    unsigned bit          = is_write ? NP_ENTRY_WRITE : NP_ENTRY_READ;
    uint8_t *area         = peer->inline_areas +
                            ((size_t)np_word_id(job->word) * NP_INLINE_SIZE);
    np_entries_t before, after;
    np_ranges_t absent;
    ucs_status_t status;
    np_bring_t bring;
    unsigned round;

    if (!np_serve_fault_is_valid(&fault)) {
        return UCS_ERR_INVALID_PARAM;
    }

    status = np_access_check(fault.remote, fault.len);
    if (status != UCS_OK) {
        return status;
    }

    for (round = 0; round < NP_SERVE_ROUNDS; ++round) {
        NP_STATS_INC(stats, fault_ins);
        status = np_serve_bring_in(peer, &fault, area, moving, &bring);
        NP_PAUSE(SERVE_MAPPED);
        if (bring.is_done) {
            return bring.status;
        }

        if ((status == UCS_ERR_EXCEEDS_LIMIT) ||
            (status == UCS_ERR_NO_RESOURCE) ||
            ((status == UCS_OK) && (fault.flags & NP_FAULT_COPY))) {
            break;
        }

        if (status != UCS_OK) {
            return status;
        }

        if (fault.flags & NP_FAULT_RETRY) {
            ++peer->holds;
            return UCS_OK;
        }

        before = np_entries_of(np_table_find(fault.remote >> NP_ARENA_SHIFT),
                               fault.remote, fault.len);
        status = (fault.flags & NP_FAULT_INLINE) ?
                 np_serve_move_inline(peer, &fault, area, moving, &absent) :
                 np_serve_move_reverse(peer, &fault, moving, &absent);
        NP_PAUSE(SERVE_MOVED);
        if (status == UCS_ERR_INVALID_ADDR) {
            /* mapped, and not there: ask for ours anew. If it is the
             * initiator's, it will find out as we do. */
            np_mapper_unmap(fault.remote, fault.len);
            if (round == (NP_SERVE_ROUNDS - 1)) {
                return UCS_ERR_NO_PROGRESS;
            }
            continue;
        } else if (status != UCS_OK) {
            return UCS_ERR_NO_PROGRESS; /* the kernel refuses: another way */
        }

        after = np_entries_of(np_table_find(fault.remote >> NP_ARENA_SHIFT),
                              fault.remote, fault.len);
        if (absent.count == 0) {
            return UCS_OK;
        }

        if (np_entries_held(&before, &after, bit)) {
            return UCS_ERR_NO_PROGRESS; /* then it was a page of the initiator */
        }

        NP_STATS_INC(stats, replays);
        np_serve_narrow(&fault, &area, &absent);
    }

    NP_STATS_INC(stats, copies);
    return np_serve_copy(peer, &fault, area, moving);
}

void np_serve_job(const np_job_t *job, np_mover_t mover, np_stats_t *stats)
{
    np_peer_t *peer     = job->peer;
    np_answer_t *answer = &peer->shm->answers[np_word_id(job->word)];
    np_moving_t *moving = &peer->shm->moving[mover];
    ucs_status_t status;
    uint64_t result = 0;

    if (np_word_kind(job->word) == NP_SLOT_ATOMIC) {
        status = np_atomic_serve(&job->slot.atomic, moving, &result);
        NP_STATS_INC(stats, atomics);
    } else {
        status = np_serve_fault(job, moving, stats);
    }

    answer->result = result;
    /* release: result and data are there */
    atomic_store_explicit(&answer->word,
                          np_answer_word((uint32_t)job->word, status),
                          memory_order_release);
    np_peer_wake_armed(peer);
}

int np_serve_take(np_peer_t *peer, np_job_t *job)
{
    int is_taken = 0;

    if (!ucs_spin_try_lock(&peer->ctl_lock)) {
        return 0; /* somebody else is at it */
    }

    job->word = np_ring_rx_peek(&peer->ctl);
    if (job->word != 0) {
        job->peer = peer;
        memcpy(job->slot.data, np_ring_rx_slot(&peer->ctl)->data,
               sizeof(job->slot.data));
        ++peer->ctl.head;
        np_peer_publish(peer, &peer->ctl);
        is_taken = 1;
    }

    ucs_spin_unlock(&peer->ctl_lock);
    return is_taken;
}

unsigned np_serve_ctl(np_peer_t *peer)
{
    np_stats_t *stats = peer->port->stats;
    unsigned count    = 0;
    np_job_t job;

    while ((count < NP_PORT_BATCH) && np_serve_take(peer, &job)) {
        ++count;
        if (np_job_is_answered(job.word) && np_job_is_valid(job.word)) {
            NP_STATS_INC(stats, served_progress);
            np_serve_job(&job, NP_MOVER_TARGET, stats);
        } else if (np_job_is_answered(job.word) ||
                   !np_serve_note(peer, &job.slot, job.word)) {
            np_peer_malformed(peer, job.word);
            break;
        }
    }

    return count;
}
