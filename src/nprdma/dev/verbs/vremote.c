/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Views of others.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vremote.h"

#include <stdlib.h>
#include <string.h>


static np_vremote_t *np_vremote_find(np_vlink_t *link, uint32_t arena)
{
    np_vremote_t **from, *remote;

    for (from = &link->remotes; *from != NULL; from = &remote->next) {
        remote = *from;
        if (np_arena_of(remote->va) == arena) {
            *from         = remote->next; /* the last one is the first */
            remote->next  = link->remotes;
            link->remotes = remote;
            return remote;
        }
    }
    return NULL;
}

static np_vremote_t *np_vremote_add(np_vlink_t *link, uint32_t arena)
{
    np_vremote_t *remote = calloc(1, sizeof(*remote));

    if (remote != NULL) {
        remote->va    = np_arena_at(arena);
        remote->link  = link;
        remote->next  = link->remotes;
        link->remotes = remote;
    }
    return remote;
}

static void np_vremote_ask(np_vlink_t *link, np_vremote_t *remote)
{
    np_vctl_t ctl = {
        .msg   = {.kind = NP_VMSG_VIEWS},
        .views = {.addr = remote->va}
    };

    /* one is left for the operation that asks on its way */
    if (np_conn_has_credits(link->conn, 2) &&
        np_conn_send_copied(link->conn, &ctl.msg, sizeof(ctl))) {
        remote->state = NP_VREMOTE_ASKED;
        remote->count = 0;
    }
}

/* It is not READY */
static __attribute__((noinline)) void
np_vremote_miss(np_vlink_t *link, np_vremote_t *remote)
{
    if ((remote->state == NP_VREMOTE_UNKNOWN) ||
        ((remote->state == NP_VREMOTE_LATER) &&
         (np_clock_coarse() >= remote->again))) {
        np_vremote_ask(link, remote);
    }
}

np_vremote_t *np_vremote_get(np_vlink_t *link, uint64_t va, uint64_t len)
{
    uint32_t arena       = np_arena_of(va);
    np_vremote_t *remote = link->remotes;
    uint64_t first, last;

    if ((remote == NULL) || (np_arena_of(remote->va) != arena)) {
        remote = np_vremote_find(link, arena);
    }
    if (remote == NULL) {
        remote = np_vremote_add(link, arena);
        if (remote == NULL) {
            return NULL;
        }
    }

    if (ucs_unlikely(remote->state != NP_VREMOTE_READY)) {
        np_vremote_miss(link, remote);
        return NULL;
    }

    first = va - remote->va;
    last  = first + len - 1;
    return (((first ^ last) >> remote->shift) | (last >= remote->len)) ? NULL :
           remote; /* one branch for both */
}

np_entries_t
np_vremote_entries(const np_vremote_t *remote, uint64_t va, uint64_t len)
{
    uint64_t page     = (va - remote->va) >> NP_PAGE_SHIFT;
    uint64_t left     = np_page_count(va, len), count;
    np_entries_t seen = NP_ENTRIES_NONE;
    const np_vblock_t *block;

    for (; left > 0; left -= count, page += count) {
        block = remote->blocks[page / NP_VREMOTE_BLOCK];
        if (block == NULL) {
            seen.bits = 0;
            return seen;
        }

        count = ucs_min(left, NP_VREMOTE_BLOCK - (page % NP_VREMOTE_BLOCK));
        np_entries_add_run(block->entries, page % NP_VREMOTE_BLOCK, count,
                           &seen);
    }
    return seen;
}

void np_vremote_look(const np_vremote_t *remote, uint64_t va, uint64_t len,
                     void *buffer, np_rop_t *op, uint32_t number)
{
    np_conn_read_entries(remote->link->conn, buffer,
                         (np_place_t){va, remote->table}, len, op, number);
}

/* A block of which nothing is known: a new one, or the link's oldest. NULL:
 * there is no memory */
static np_vblock_t *np_vremote_block(np_vlink_t *link)
{
    np_vblock_t *block;

    if (link->num_blocks < NP_VREMOTE_BLOCKS) {
        block = malloc(sizeof(*block));
        if (block == NULL) {
            return NULL;
        }
        ++link->num_blocks;
    } else {
        block        = ucs_list_extract_head(&link->blocks, np_vblock_t, list);
        *block->home = NULL;
    }

    ucs_list_add_tail(&link->blocks, &block->list);
    memset(block->entries, 0, sizeof(block->entries));
    return block;
}

void np_vremote_learn(np_vremote_t *remote, uint64_t va, uint64_t len,
                      const uint32_t *entries)
{
    uint64_t page       = (va - remote->va) >> NP_PAGE_SHIFT;
    const uint64_t last = (va + len - 1 - remote->va) >> NP_PAGE_SHIFT;
    np_vblock_t **home;

    for (; page <= last; ++page) {
        home = &remote->blocks[page / NP_VREMOTE_BLOCK];
        if (*home == NULL) {
            *home = np_vremote_block(remote->link);
            if (*home == NULL) {
                return;
            }
            (*home)->home = home;
        }
        (*home)->entries[page % NP_VREMOTE_BLOCK] = (entries == NULL) ? 0 :
                                                    *entries++;
    }
}

/* It has no views, for a time or for good */
static void np_vremote_refused(np_vremote_t *remote, ucs_status_t status)
{
    ucs_debug("nprdma: a peer gives no views of its memory at %#lx: %s",
              remote->va, ucs_status_string(status));
    if (status == UCS_ERR_NO_RESOURCE) {
        remote->delay = (remote->delay == 0) ? NP_VIEWS_RETRY_MIN :
                        ucs_min(2 * remote->delay, NP_VIEWS_RETRY_MAX);
        remote->again = np_clock_coarse() + remote->delay;
        remote->state = NP_VREMOTE_LATER;
    } else {
        remote->state = NP_VREMOTE_REFUSED;
    }
}

/* Is that a place of such a row, and the next one? */
static int
np_vremote_is_next(const np_vremote_t *remote, const np_vviews_t *views)
{
    const uint64_t arena = NP_ARENA_SIZE;

    return (views->addr == remote->va) && (views->len > 0) &&
           (views->len <= arena) && ucs_is_pow2(views->size) &&
           (views->size >= NP_KMOD_PART_MIN) && (views->size <= arena) &&
           (views->index == remote->count) &&
           (views->index < ((views->len + views->size - 1) / views->size)) &&
           ((views->index == 0) || ((views->len == remote->len) &&
                                    (views->size == (UINT64_C(1) <<
                                                     remote->shift))));
}

ucs_status_t np_vremote_told(np_vlink_t *link, const np_vviews_t *views)
{
    np_vremote_t *remote = np_vremote_find(link, np_arena_of(views->addr));

    if ((remote == NULL) || (remote->state != NP_VREMOTE_ASKED)) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (views->status != UCS_OK) {
        np_vremote_refused(remote, np_status_of_peer(views->status));
        return UCS_OK;
    }

    if (!np_vremote_is_next(remote, views)) {
        return UCS_ERR_INVALID_PARAM;
    }

    remote->len                   = views->len;
    remote->shift                 = ucs_ilog2(views->size);
    remote->table                 = views->table;
    remote->keys[remote->count++] = (np_vremote_keys_t){
        .read  = views->read,
        .write = views->write
    };
    if (((uint64_t)remote->count << remote->shift) >= remote->len) {
        remote->state = NP_VREMOTE_READY;
    }
    return UCS_OK;
}

void np_vremote_lost(np_vlink_t *link)
{
    np_vremote_t *remote;

    for (remote = link->remotes; remote != NULL; remote = remote->next) {
        if (remote->state == NP_VREMOTE_ASKED) {
            remote->state = NP_VREMOTE_UNKNOWN;
        }
    }
}

void np_vremote_cleanup(np_vlink_t *link)
{
    np_vremote_t *remote;

    while (link->num_blocks > 0) {
        free(ucs_list_extract_head(&link->blocks, np_vblock_t, list));
        --link->num_blocks;
    }

    while (link->remotes != NULL) {
        remote        = link->remotes;
        link->remotes = remote->next;
        free(remote);
    }
}
