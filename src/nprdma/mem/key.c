/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Keys: packing, unpacking.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "key.h"

#include "../engine.h"

#include <stdlib.h>
#include <string.h>

#define NP_KEY_MAGIC 0x4b4e /* "NK" */


static void np_key_pack_common(np_packed_key_t *packed, np_arenas_t arenas)
{
    memset(packed, 0, sizeof(*packed));
    packed->magic       = NP_KEY_MAGIC;
    packed->version     = NP_WIRE_VERSION;
    packed->engine_id   = np_engine.id;
    packed->arena_first = arenas.first;
    packed->arena_count = arenas.count;
}

void np_key_pack_arenas(np_packed_key_t *packed, np_arenas_t arenas)
{
    np_key_pack_common(packed, arenas);
}

void np_key_pack_region(np_packed_key_t *packed, uint64_t va, uint64_t len)
{
    np_arenas_t arenas = {0, 0};

    (void)np_arenas_of(va, len, &arenas); /* cannot fail: it was registered */
    np_key_pack_common(packed, arenas);
    packed->va  = va;
    packed->len = len;
}

void np_key_pack_file(np_packed_key_t *packed, uint64_t va, uint64_t len)
{
    np_key_pack_region(packed, va, len);
    packed->is_file = 1;
}

void np_key_pack_segment(np_packed_key_t *packed, uint64_t segment_id,
                         uint64_t va, uint64_t len)
{
    np_key_pack_region(packed, va, len);
    packed->segment_id = segment_id;
}

static int np_packed_key_is_valid(const np_packed_key_t *packed)
{
    np_arenas_t arenas;

    if ((packed->magic != NP_KEY_MAGIC) ||
        (packed->version != NP_WIRE_VERSION) || (packed->engine_id == 0) ||
        (packed->arena_count == 0) ||
        (((uint64_t)packed->arena_first + packed->arena_count) >
         NP_ARENA_MAX)) {
        return 0;
    }

    if (packed->len == 0) {
        return (packed->segment_id == 0) && !packed->is_file;
    }

    return (!packed->is_file || ((packed->is_file == 1) &&
                                 (packed->segment_id == 0))) &&
           (np_arenas_of(packed->va, packed->len, &arenas) == UCS_OK);
}

/* A file's key that is of no use. Without a key UCP would ask the owner's UCP
 * for the access, and that would take the offset for an address: so it is a
 * key, for nothing. */
static ucs_status_t np_key_unpack_nothing(np_key_t **key_p)
{
    np_key_t *key = calloc(1, sizeof(*key));

    if (key == NULL) {
        return UCS_ERR_UNREACHABLE;
    }

    key->first = 1; /* and last is 0 */
    *key_p     = key;
    np_error("a file's key is damaged, or of another version of nprdma than "
             "%u: all that is done with it fails", NP_WIRE_VERSION);
    return UCS_OK;
}

ucs_status_t np_key_unpack(const np_packed_key_t *packed, np_key_t **key_p)
{
    np_key_t *key;

    if ((packed->magic == NP_KEY_MAGIC) && packed->is_file &&
        ((packed->version != NP_WIRE_VERSION) ||
         !np_packed_key_is_valid(packed))) {
        return np_key_unpack_nothing(key_p);
    }

    if ((packed->magic == NP_KEY_MAGIC) &&
        (packed->version != NP_WIRE_VERSION)) {
        np_error("a peer's key has version %u, this process has version %u: "
                 "install the same nprdma for both", packed->version,
                 NP_WIRE_VERSION);
        return UCS_ERR_UNREACHABLE;
    }

    if (!np_packed_key_is_valid(packed)) {
        np_diag("not an nprdma key: its first bytes are %#x %#x",
                packed->magic, packed->version);
        return UCS_ERR_UNREACHABLE;
    }

    key = calloc(1, sizeof(*key));
    if (key == NULL) {
        np_error("no memory for a key of %zu bytes", sizeof(*key));
        return UCS_ERR_NO_MEMORY;
    }

    key->engine_id   = packed->engine_id;
    key->segment_id  = packed->segment_id;
    key->segment_len = packed->len;
    if (packed->is_file) {
        key->base  = packed->va;
        key->last  = packed->len - 1;
    } else if (packed->len > 0) {
        key->first = packed->va;
        key->last  = packed->va + packed->len - 1;
    } else {
        key->first = (uint64_t)packed->arena_first << NP_ARENA_SHIFT;
        key->last  = key->first - 1 +
                     ((uint64_t)packed->arena_count << NP_ARENA_SHIFT);
    }

    *key_p = key;
    return UCS_OK;
}

int np_key_compare(const np_key_t *key1, const np_key_t *key2)
{
    const uint64_t parts1[] = {key1->engine_id, key1->segment_id, key1->base,
                               key1->first, key1->last};
    const uint64_t parts2[] = {key2->engine_id, key2->segment_id, key2->base,
                               key2->first, key2->last};

    return memcmp(parts1, parts2, sizeof(parts1));
}

void np_key_release(np_key_t *key)
{
    np_window_t *window = atomic_load_explicit(&key->window,
                                               memory_order_acquire);

    if (window != NULL) {
        np_window_put(window);
    }
    free(key);
}
