/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What two processes share over soft0: the layout of a link's segment and of
 * a port's page, and the messages on the link's socket.
 *
 * A link goes one way. Its segment is made by the initiator:
 *
 *   np_link_shm_t | data slots | control slots | inline areas | payload
 *
 * Both map it up to the end of the payload that a link uses at first. All of it
 * is mapped, elsewhere, when the link becomes wide: few do, and a mapping of
 * that size would have a page of page tables to itself.
 *
 * Each ring has one writer (the initiator writes slots) and one reader (the
 * target writes the head). What the target has to say about a request in the
 * data ring it writes into the request's own slot before the head passes it; to
 * one in the control ring it gives an answer when it has one, in any order.
 */

#ifndef NP_SOFT_WIRE_H_
#define NP_SOFT_WIRE_H_

#include "tlb.h"

#include "../../np.h"

#define NP_LINK_MAGIC       0x6b6e696cu

/** Slots of the control ring, and requests that may wait for an answer: a power
 *  of two */
#define NP_CTL_SLOTS        16

/** Bytes of data that a control request may carry. The areas lie in pages of
 *  their own: what was never used costs no memory. */
#define NP_INLINE_SIZE      (16 * 1024)

/** Copies of one link that both sides may work on at once */
#define NP_LINK_SHARES      2

/** Bits of a port's activity map; rings beyond share bits */
#define NP_PORT_ACTIVITY    512

/** Payload bytes that fit into a slot */
#define NP_SLOT_INLINE      56

typedef enum np_slot_kind {
    NP_SLOT_NONE,
    NP_SLOT_AM,         /**< active message, whole in the slot */
    NP_SLOT_AM_LONG,    /**< active message in the payload area */
    NP_SLOT_PUT,        /**< write for a target that we may not reach; or, with
                             NP_CARRY_LENT as its id, to what it has lent */
    NP_SLOT_GET,        /**< the same for a read */
    NP_SLOT_ATOMIC,     /**< control: atomic, executed by the target's CPU */
    NP_SLOT_FAULT,      /**< control: bring memory in and finish a transfer */
    NP_SLOT_SHARE,      /**< control, no answer: help with a copy */
    NP_SLOT_SEGMENT,    /**< control, no answer: send me an allocated segment */
    NP_SLOT_WHEN,       /**< control, timing model: when is it registered? */
    NP_SLOT_WIDE        /**< control, no answer: map all of the payload area */
} np_slot_kind_t;

/** Most bytes of a write or read that fit into its slot */
#define NP_SLOT_RMA_INLINE  32

/** Write or read: its bytes are in the slot if they fit, else in the payload
 *  area */
typedef struct np_slot_rma {
    uint64_t addr;
    uint32_t offset;    /**< in the payload area, if that has the bytes */
    int32_t  status;    /**< written by the target */
    uint32_t epoch;     /**< with NP_CARRY_LENT: of what is waited for */
    uint32_t is_past;   /**< the target writes there past the caches */
    uint8_t  data[NP_SLOT_RMA_INLINE];
} np_slot_rma_t;

/** What a FAULT asks for, and how the data is to move */
enum {
    NP_FAULT_PUT    = 1u << 0, /**< the initiator writes; else it reads */
    NP_FAULT_INLINE = 1u << 1, /**< data in the request's inline area */
    NP_FAULT_RETRY  = 1u << 2, /**< only bring it in: the answer is READY */
    NP_FAULT_COPY   = 1u << 3  /**< by the CPU, whatever the entries say; only
                                    with INLINE may it lie in two arenas */
};

typedef struct np_slot_fault {
    uint64_t local;     /**< address at the initiator, if not INLINE */
    uint64_t remote;    /**< address at the target */
    uint32_t len;       /**< bytes, at most NP_FAULT_MAX; INLINE:
                             NP_INLINE_SIZE */
    uint32_t flags;     /**< NP_FAULT_.. */
    uint32_t epoch;     /**< of the link: nothing is moved in another one */
} np_slot_fault_t;

/** Most bytes of one FAULT */
#define NP_FAULT_MAX        (1024 * 1024)

typedef struct np_slot_share {
    uint32_t index;
    uint32_t generation;
} np_slot_share_t;

typedef struct np_slot_segment {
    uint64_t id;
} np_slot_segment_t;

/** The timing model's question (mem/model.h) */
typedef struct np_slot_when {
    uint64_t remote;    /**< address at the target */
    uint64_t len;
    uint32_t is_write;
} np_slot_when_t;

/**
 * One line of a ring. word: bits 0..31 sequence (index + 1), 32..47 bytes of
 * payload, 48..55 np_slot_kind_t, 56..63 active message id; of a control
 * request the number of its answer. It is stored last, with release, and read
 * first, with acquire.
 */
typedef struct np_slot {
    _Atomic uint64_t word;
    union {
        uint8_t           data[NP_SLOT_INLINE];
        uint32_t          offset;               /* NP_SLOT_AM_LONG */
        np_slot_rma_t     rma;
        np_atomic_t       atomic;
        np_slot_fault_t   fault;
        np_slot_share_t   share;
        np_slot_segment_t segment;
        np_slot_when_t    when;
    };
} NP_LINE_ALIGNED np_slot_t;

_Static_assert(sizeof(np_slot_t) == NP_LINE, "a slot is a line");

/** Answer to a control request. Written by the target alone, word last. */
typedef struct np_answer {
    /* bits 0..31 sequence of the request, which may be 0, 32..39 minus its
     * ucs_status_t, 63 NP_ANSWER_GIVEN; release, acquire */
    _Atomic uint64_t word;
    uint64_t         result;  /**< atomic: the value before; FAULT: bytes from
                                   its beginning that are done, if not all;
                                   WHEN: of the first chunk, np_clock() */
    uint64_t         last;    /**< WHEN: of the last chunk */
} NP_LINE_ALIGNED np_answer_t;

/** Set in the word of every answer: a word of zeroes is none */
#define NP_ANSWER_GIVEN     UCS_BIT(63)

/** What moves data on behalf of a link: each marks its own word while units are
 *  in flight (odd), so that a page goes only when they have landed */
typedef enum np_mover {
    NP_MOVER_INITIATOR,
    NP_MOVER_TARGET,      /**< in its progress */
    NP_MOVER_SERVICE,     /**< the target's first service thread */
    NP_MOVER_SLEEPER,     /**< the second: each word has one writer */
    NP_MOVER_LAST
} np_mover_t;

typedef struct np_moving {
    _Atomic uint32_t word;   /**< written by the mover */
    _Atomic uint32_t ended;  /**< written by the other end, once: nothing is to
                                  be moved any more, and what is in flight now
                                  counts as not moved */
} NP_LINE_ALIGNED np_moving_t;

/** What a copy is that both sides may work on */
typedef struct np_share_args {
    uint64_t initiator_va;
    uint64_t target_va;
    uint64_t len;
    uint32_t chunk;     /**< bytes */
    uint32_t chunks;
    uint32_t dir;       /**< np_dir_t, seen by the initiator */
    int32_t  cpu;       /**< where the initiator runs, or -1 */
    uint32_t is_open;   /**< the initiator's memory may be used through the
                             kernel, whatever its views say */
} np_share_args_t;

/**
 * A copy that both sides may work on in chunks. The initiator claims from the
 * front, the target from the back.
 */
typedef struct np_share {
    np_share_args_t  args;   /**< written by the initiator before its offer */

    /* claimed by both: bits 0..23 from the front, 24..47 from the back,
     * 48..63 generation */
    _Atomic uint64_t claim NP_LINE_ALIGNED;

    /* written by the target */
    _Atomic uint32_t done NP_LINE_ALIGNED; /**< chunks from the back */
    int32_t          status;               /**< of the last of them, which is
                                                the end if it is an error */
    uint32_t         moved;                /**< its bytes, from its beginning,
                                                that were moved then */
} NP_LINE_ALIGNED np_share_t;

/** Has the target mapped all of a link's segment? */
typedef enum np_wide {
    NP_WIDE_UNKNOWN, /**< not yet */
    NP_WIDE_YES,
    NP_WIDE_NO       /**< it cannot */
} np_wide_t;

/** First page of a link's segment */
typedef struct np_link_shm {
    /* written by the initiator before the segment is sent */
    uint32_t         magic;
    uint32_t         version;
    uint32_t         data_slots;
    uint32_t         payload_size;
    uint32_t         payload_first; /**< of these, what is mapped at first */

    /* written by the target: slots below the head may be used again */
    _Atomic uint32_t data_head NP_LINE_ALIGNED;
    _Atomic uint32_t ctl_head NP_LINE_ALIGNED;

    /* written by the target, seldom: 1 if it looks at the rings all the time,
     * 0 if it must be told (see np_link_notify); always if not both can have a
     * barrier in the other (np_barrier_peers) */
    _Atomic uint32_t polled NP_LINE_ALIGNED;
    _Atomic uint32_t accepted;           /**< the answer is on the socket */
    _Atomic uint32_t left;               /**< it has closed its port in peace */
    _Atomic uint32_t wide;               /**< np_wide_t, for NP_SLOT_WIDE */

    /* written by the target: odd while it reads or writes what it has lent */
    _Atomic uint32_t lending NP_LINE_ALIGNED;

    /* written by the initiator when it gives up what is outstanding */
    _Atomic uint32_t epoch NP_LINE_ALIGNED;

    /* written by the initiator when it does not wait any more for what the
     * target has lent: that of other numbers is not moved for it */
    _Atomic uint32_t lent_epoch;

    np_share_t       shares[NP_LINK_SHARES];
    np_moving_t      moving[NP_MOVER_LAST];
    np_answer_t      answers[NP_CTL_SLOTS];
} NP_LINE_ALIGNED np_link_shm_t;

/** The segment of a port, mapped by every process that is connected with it */
typedef struct np_port_shm {
    /* written by the owner when it goes to sleep, and by the one that wakes
     * it */
    _Atomic uint32_t armed;
    uint32_t         tlb_mode; /* np_tlb_mode_t of the owner; constant */

    /* 1: a service thread waits for its bell; set by it, cleared by the one
     * that rings */
    _Atomic uint32_t service_armed NP_LINE_ALIGNED;

    /* written by the service threads: 1 if they saw the owner take requests.
     * relaxed: a hint, for peers that would ring. */
    _Atomic uint32_t is_attended;

    /* a bit for each ring that is not polled; set by its writer, cleared by the
     * owner */
    _Atomic uint64_t activity[NP_PORT_ACTIVITY / 64] NP_LINE_ALIGNED;

    /* of its model; in pages that are never touched unless that is on */
    np_tlb_cache_t   tlb NP_LINE_ALIGNED;
} NP_LINE_ALIGNED np_port_shm_t;

typedef enum np_msg_type {
    NP_MSG_CONNECT = 1,  /**< with the segment, the initiator's port and its
                              directory of arenas */
    NP_MSG_ACCEPT,       /**< with the target's port and its directory of
                              arenas */
    NP_MSG_SEGMENT,      /**< with an allocated segment */
    NP_MSG_WAKE,         /**< the owner of the port or link, which sleeps */
    NP_MSG_RING          /**< the service threads of the port; the owner takes
                              it as well */
} np_msg_type_t;

/** A message on a link's socket */
typedef struct np_msg {
    uint32_t type;
    uint32_t version;
    uint64_t engine_id;   /**< CONNECT: the initiator's */
    uint64_t cookie;      /**< CONNECT: the target's, proof of its address */
    uint64_t size;        /**< CONNECT, SEGMENT: bytes of the segment */
    uint64_t part;        /**< CONNECT: of these, what is mapped at first */
    uint64_t segment_id;  /**< SEGMENT */
    uint64_t start_time;  /**< CONNECT: of the initiator, as
                               np_host_proc_start_time */
    uint32_t bit;         /**< ACCEPT: bit in the target's activity map */
    uint32_t has_tables;  /**< CONNECT, ACCEPT: is there a directory of arenas?
                               Else its descriptor is of any memory: one that is
                               no memfd ends the connection */
    uint32_t has_barrier; /**< CONNECT, ACCEPT: see np_engine_has_barrier */
    uint32_t reserved;
} np_msg_t;


static UCS_F_ALWAYS_INLINE uint64_t
np_slot_word(uint32_t index, uint32_t len, uint8_t kind, uint8_t id)
{
    return (uint64_t)(uint32_t)(index + 1) | ((uint64_t)len << 32) |
           ((uint64_t)kind << 48) | ((uint64_t)id << 56);
}

static UCS_F_ALWAYS_INLINE uint32_t np_word_len(uint64_t word)
{
    return (word >> 32) & 0xffff;
}

static UCS_F_ALWAYS_INLINE uint8_t np_word_kind(uint64_t word)
{
    return word >> 48;
}

static UCS_F_ALWAYS_INLINE uint8_t np_word_id(uint64_t word)
{
    return word >> 56;
}

static inline size_t np_link_shm_inline_offset(uint32_t data_slots)
{
    return ucs_align_up_pow2(sizeof(np_link_shm_t), (size_t)4096) +
           ucs_align_up_pow2(((size_t)data_slots + NP_CTL_SLOTS) *
                             sizeof(np_slot_t), (size_t)4096);
}

static inline size_t np_link_shm_payload_offset(uint32_t data_slots)
{
    return np_link_shm_inline_offset(data_slots) +
           ((size_t)NP_CTL_SLOTS * NP_INLINE_SIZE);
}

/** Bytes up to the end of so much payload */
static inline size_t np_link_shm_size(uint32_t data_slots, uint32_t payload)
{
    return np_link_shm_payload_offset(data_slots) +
           ucs_align_up_pow2((size_t)payload, (size_t)4096);
}

static inline uint64_t np_answer_word(uint32_t sequence, ucs_status_t status)
{
    return NP_ANSWER_GIVEN | sequence | ((uint64_t)(uint8_t)-status << 32);
}

/** Is it the answer to the request of this sequence? */
static inline int np_answer_is_to(uint64_t word, uint32_t sequence)
{
    return (word & NP_ANSWER_GIVEN) && ((uint32_t)word == sequence);
}

static inline ucs_status_t np_answer_status(uint64_t word)
{
    return np_status_of_peer(-(int32_t)((word >> 32) & 0xff));
}

static inline np_slot_t *np_link_shm_data(void *shm)
{
    return UCS_PTR_BYTE_OFFSET(shm, ucs_align_up_pow2(sizeof(np_link_shm_t),
                                                      (size_t)4096));
}

static inline np_slot_t *np_link_shm_ctl(void *shm, uint32_t data_slots)
{
    return np_link_shm_data(shm) + data_slots;
}

static inline uint8_t *np_link_shm_inline(void *shm, uint32_t data_slots)
{
    return UCS_PTR_BYTE_OFFSET(shm, np_link_shm_inline_offset(data_slots));
}

static inline uint8_t *np_link_shm_payload(void *shm, uint32_t data_slots)
{
    return UCS_PTR_BYTE_OFFSET(shm, np_link_shm_payload_offset(data_slots));
}

/** What the initiator says of its segment, before anybody sees it */
static inline void
np_link_shm_init(np_link_shm_t *shm, uint32_t data_slots, uint32_t first,
                 uint32_t payload)
{
    shm->magic         = NP_LINK_MAGIC;
    shm->version       = NP_WIRE_VERSION;
    shm->data_slots    = data_slots;
    shm->payload_size  = payload;
    shm->payload_first = first;
}

#endif
