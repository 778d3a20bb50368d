/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * soft0's operations: what a link has outstanding, and what may start.
 */

#ifndef NP_SOP_H_
#define NP_SOP_H_

#include "../order.h"

#include "../../dev/soft/chunks.h"
#include "../../dev/soft/flow.h"
#include "../../mem/entries.h"
#include "../../mem/key.h"
#include "../../iov.h"

typedef struct np_sop np_sop_t;

/** A transfer in pieces; see copy.c */
typedef struct np_copy {
    np_dir_t    dir;
    void        *own;         /**< a buffer, which ends with it; or NULL */
    np_unpack_t unpack;       /**< takes what a get has brought there, or
                                   NULL */
    void        *arg;
    size_t      iovcnt;
    uint64_t    remote;
    size_t      len;
    np_window_t *window;      /**< NULL: by process_vm_*, or rings */
    void        *window_addr; /**< of remote */
    int         by_rings;
    int         is_lent;      /**< of these, by what the target has lent; if it
                                   does not come, in another way */
    size_t      left;         /**< of that, from this offset on */
    int         has_asked;    /**< a part of it was not there: a FAULT was
                                   sent */
    unsigned    pending;      /**< pieces that others work on */
    unsigned    todo_next;    /**< first range of todo that is left */
    unsigned    rounds;       /**< times that a FAULT had to be repeated */
    uint16_t    misses;       /**< by the model of a translation cache */
    uint16_t    is_due;       /**< all has moved, in link->dues */
    uint64_t    retry_at;     /**< not before; np_clock(). Under that model,
                                   once all has moved: not complete before */
    np_chunks_t chunks;       /**< what this side moves next */
    np_iov_t    iov[NP_MAX_IOV];
    np_ranges_t todo;         /**< what did not arrive, and is not asked for
                                   yet; offsets into the transfer */
} np_copy_t;

/** A FAULT; see fault.c */
typedef struct np_fault {
    np_sop_t     *copy;       /**< whose piece this is, or NULL */
    size_t       offset;      /**< in the copy */
    np_entries_t ours;        /**< our entries when it was sent */
    void         *buffer;     /**< read without a copy: where to, or NULL:
                                   unpack */
    np_unpack_t  unpack;
    void         *arg;
} np_fault_t;

struct np_sop {
    np_op_t          super;       /**< first member */
    union {
        struct {
            np_sop_t     *copy;   /**< whose piece this is, or NULL */
            void         *buffer; /**< what is lent: the program's, or NULL: it
                                       was copied, or unpack takes it */
            np_unpack_t  unpack;
            void         *arg;
            size_t       len;
            size_t       offset;  /**< in the copy */
            uint64_t     addr;
            np_carry_t   carry;
        } rma;
        struct {                  /* a request */
            np_ask_t     ask;
            np_fault_t   fault;
        };
        struct {
            ucs_list_link_t queue; /**< of its link's */
            np_copy_t       copy;
        };
    };
};

/** Hooks that proto gives to its port */
extern const np_port_ops_t np_proto_ops;

/** Close a port that was opened with these */
void np_proto_close(np_port_t *port);

/** An operation from the free list; NULL if there is no memory */
static inline np_sop_t *np_sop_get(np_port_t *port, np_op_kind_t kind,
                                   void *comp)
{
    return (np_sop_t*)np_op_get(&port->flights, kind, comp);
}

/** It has not been posted, and will not be */
static inline void np_sop_put(np_port_t *port, np_sop_t *op)
{
    np_op_put(&port->flights, &op->super);
}

/** It is outstanding from now on */
void np_sop_post(np_link_t *link, np_sop_t *op);

/**
 * Begin a request that will be answered. There is room (np_mail_has_room). The
 * caller fills in op->ask.
 *
 * @return the operation; NULL if there is no memory (logged).
 */
np_sop_t *np_sop_ask(np_link_t *link, np_op_kind_t kind, void *comp);

/** Send it: it is outstanding from now on */
void np_sop_send(np_link_t *link, np_sop_t *op);

/** It is not sent after all */
void np_sop_take_back(np_link_t *link, np_sop_t *op);

/** Move what only our own progress moves; returns how many completed */
unsigned np_port_work_slow(np_port_t *port);

static UCS_F_ALWAYS_INLINE unsigned np_port_work(np_port_t *port)
{
    if (ucs_likely(ucs_list_is_empty(&port->flights.busy) &&
                   ucs_list_is_empty(&port->flights.down))) {
        return 0;
    }

    return np_port_work_slow(port);
}

#endif
