/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Keys: what a peer must hold to reach memory. One packed size for all.
 */

#ifndef NP_KEY_H_
#define NP_KEY_H_

#include "../np.h"
#include "arena.h"
#include "window.h"

/** A key as it travels. Every field is little-endian, as on the host that both
 *  sides share. */
typedef struct np_packed_key {
    uint16_t magic;
    uint16_t version;
    uint32_t arena_first;
    uint32_t arena_count;
    uint32_t is_file;       /**< addresses are offsets in what is at va */
    uint64_t engine_id;     /**< whose memory */
    uint64_t segment_id;    /**< 0, or a segment that may be mapped */
    uint64_t va;            /**< with len: the owner's address of the first byte
                                 of the segment, or of the region */
    uint64_t len;           /**< bytes that the key covers; 0: all of the
                                 arenas */
} __attribute__((packed)) np_packed_key_t;

/** An unpacked key. Owner: the caller that unpacked it. */
typedef struct np_key {
    np_window_t *_Atomic window; /**< the owner's segment, mapped here; set once
                                      with release by the thread that resolves
                                      it */
    uint64_t     first;          /**< first address that the key covers */
    uint64_t     last;           /**< last address that the key covers */
    uint64_t     base;           /**< of the owner's address 0 of the key: 0, or
                                      where it has mapped the file whose offsets
                                      the addresses are */
    uint64_t     engine_id;
    uint64_t     segment_id;
    uint64_t     segment_len;   /**< with segment_id: its bytes */
    unsigned     tried;          /**< segments that had come over its link at
                                      the last look, plus 1; a hint: a race
                                      looks twice */
    int          asked;          /**< the owner was asked for the segment; only
                                      a hint, so a race asks twice */
} np_key_t;

/** Pack a key for @a arenas */
void np_key_pack_arenas(np_packed_key_t *packed, np_arenas_t arenas);

/** Pack a key for [@a va, @a va + @a len), and no more */
void np_key_pack_region(np_packed_key_t *packed, uint64_t va, uint64_t len);

/** Pack a key for the file that is mapped at [@a va, @a va + @a len): its
 *  addresses are offsets */
void np_key_pack_file(np_packed_key_t *packed, uint64_t va, uint64_t len);

/** Pack a key for a segment that peers may map */
void np_key_pack_segment(np_packed_key_t *packed, uint64_t segment_id,
                         uint64_t va, uint64_t len);

/**
 * Unpack a key.
 *
 * @return UCS_OK; UCS_ERR_UNREACHABLE if the bytes are not a key: the only
 *         error after which UCP 1.13 goes on without this key; after others it
 *         releases what was never unpacked; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_key_unpack(const np_packed_key_t *packed, np_key_t **key_p);

void np_key_release(np_key_t *key);

/** 0 if both keys let their holder reach the same memory; else which comes
 *  first in an order that holds while both are there, as memcmp() says it */
int np_key_compare(const np_key_t *key1, const np_key_t *key2);


/** The owner's address of address 0 of a key, which may be UCT_INVALID_RKEY if
 *  nothing is moved */
static UCS_F_ALWAYS_INLINE uint64_t np_key_base(const np_key_t *key)
{
    return (key == (const np_key_t*)UINTPTR_MAX) ? 0 : key->base;
}

/** Is @a key for memory of this engine, and does it cover [va, va + len), in
 *  the key's addresses? The one check that guards every transfer at the
 *  initiator. */
static UCS_F_ALWAYS_INLINE int
np_key_covers(const np_key_t *key, uint64_t engine_id, uint64_t va,
              uint64_t len)
{
    return (key->engine_id == engine_id) && (va >= key->first) &&
           (va <= key->last) && (len <= (key->last - va + 1));
}

#endif
