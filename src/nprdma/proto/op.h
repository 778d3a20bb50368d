/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Operations: what an endpoint has outstanding, and failure.
 *
 * An operation belongs to one of its link's lists until it completes.
 * Operations come from the port's free list.
 */

#ifndef NP_OP_H_
#define NP_OP_H_

#include "../dev/soft/carry.h"
#include "../dev/soft/mail.h"
#include "../dev/soft/share.h"
#include "../mem/entries.h"
#include "../mem/key.h"
#include "../iov.h"
#include "../mem/model.h"

/** What an engine's user provides; port->user points to it */
typedef struct np_user {
    /** An operation that returned UCS_INPROGRESS is complete. Runs in progress;
     *  may start operations. */
    void (*complete)(void *comp, ucs_status_t status);
    /** The link will not work again. Runs in progress, once a link; everything
     *  outstanding has completed with @a status. */
    void (*link_down)(np_link_t *link, ucs_status_t status);
} np_user_t;

typedef enum np_op_kind {
    NP_OP_PUT,        /**< slot; or a piece of a copy */
    NP_OP_GET,        /**< slot; or a piece of a copy */
    NP_OP_ATOMIC,     /**< request */
    NP_OP_FAULT,      /**< request; or a piece of a copy, which is one too */
    NP_OP_COPY,
    NP_OP_FLUSH,      /**< all earlier operations of a link */
    NP_OP_GROUP       /**< several flushes */
} np_op_kind_t;

typedef struct np_op np_op_t;

/** The timing model's part of a copy; see pace.c */
typedef struct np_pace {
    int              has_asked;  /**< the target, when .. */
    int              has_theirs; /**< .. and it has answered */
    uint64_t         posted;     /**< np_clock(), as all times */
    np_model_times_t ours;
    np_model_times_t theirs;
    uint64_t         arrived;    /**< when the last that has moved will have */
} np_pace_t;

/** A transfer in pieces; see copy.c */
typedef struct np_copy {
    np_dir_t    dir;
    np_iov_t    iov[NP_MAX_IOV];
    size_t      iovcnt;
    uint64_t    remote;
    size_t      len;
    np_window_t *window;      /**< NULL: by process_vm_*, or rings */
    void        *window_addr; /**< of remote */
    int         by_rings;
    int         may_share;    /**< the target may be asked to do a part of it */
    int         is_started;
    int         is_claimed;   /**< no piece is left to begin */
    int         has_asked;    /**< a part of it was not there: a FAULT was
                                   sent */
    size_t      chunk;        /**< bytes */
    uint32_t    chunks;
    np_pace_t   pace;
    uint32_t    next;         /**< chunk behind the last that we have claimed */
    size_t      offset;       /**< of what we have claimed: where we are */
    size_t      end;
    np_offer_t  offer;        /**< to the target, to do a part of it */
    unsigned    pending;      /**< pieces that others work on */
    np_ranges_t todo;         /**< what did not arrive, and is not asked for
                                   yet; offsets into the transfer */
    unsigned    todo_next;    /**< first range that is left */
    unsigned    rounds;       /**< times that a FAULT had to be repeated */
    uint64_t    retry_at;     /**< not before; np_clock() */
} np_copy_t;

/** A FAULT; see fault.c */
typedef struct np_fault {
    struct np_op *copy;       /**< whose piece this is, or NULL */
    size_t       offset;      /**< in the copy */
    size_t       len;
    uint32_t     flags;       /**< NP_FAULT_.. */
    uint64_t     remote;
    np_entries_t ours;        /**< our entries when it was sent */
    void         *buffer;     /**< read without a copy: where to, or NULL:
                                   unpack */
    np_unpack_t  unpack;
    void         *arg;
} np_fault_t;

struct np_op {
    ucs_list_link_t  list;
    struct np_op     *next_free;
    uint64_t         sequence;
    void             *comp;       /**< the user's, or NULL */
    np_op_kind_t     kind;
    ucs_status_t     status;      /**< of what is done so far */
    np_ask_t         ask;         /**< of a request */
    uint64_t         begin;       /**< np_trace_begin() of a copy or FAULT */
    int              is_waiting;  /**< a request to be sent again .. */
    unsigned         retries;     /**< .. for the how-manieth time .. */
    uint64_t         retry_at;    /**< .. not before; np_clock() */
    int              is_ordered;  /**< interval is in the link's table */
    np_interval_t    interval;    /**< of the remote side */
    union {
        struct {
            struct np_op *copy;   /**< whose piece this is, or NULL */
            void         *buffer; /**< GET: where to, or NULL: unpack */
            np_unpack_t  unpack;
            void         *arg;
            size_t       len;
            size_t       offset;  /**< in the copy */
            np_carry_t   carry;
        } rma;
        struct {
            void             *result; /**< or NULL */
            np_atomic_t      request;
        } atomic;
        np_copy_t        copy;
        np_fault_t       fault;
        struct {
            struct np_op *group;  /**< or NULL */
        } flush;
        struct {
            unsigned     pending;
        } group;
    };
};

/** Hooks that proto gives to its port */
extern const np_port_ops_t np_proto_ops;

/** Open and close a port with this protocol on it */
ucs_status_t np_proto_open(const np_port_config_t *config,
                           const np_user_t *user, np_port_t **port_p);
void np_proto_close(np_port_t *port);

/** Close a link; what is outstanding is cancelled */
void np_proto_close_link(np_link_t *link);

/** An operation from the free list; NULL if there is no memory */
np_op_t *np_op_get(np_port_t *port, np_op_kind_t kind, void *comp);

/** It is outstanding from now on. If the data ring carries it, its rma.carry is
 *  set, and nothing of the slot is used again before it completes. */
void np_op_post(np_link_t *link, np_link_queue_t queue, np_op_t *op);

/** It is not outstanding any more */
void np_op_unpost(np_link_t *link, np_op_t *op);

void np_op_put(np_port_t *port, np_op_t *op);

/** Tell the user, and give the operation back */
void np_op_complete(np_port_t *port, np_op_t *op);

/** It is done: tell the user. An error that nobody waits for ends the link. */
void np_op_finish(np_link_t *link, np_op_t *op);

/** Complete everything that is outstanding with @a status. Answers may still
 *  come, and the link must not be used again. */
void np_link_cancel(np_link_t *link, ucs_status_t status);

/** Tell the user that a link is down, at the next progress */
void np_link_report(np_link_t *link);

/** Move what only our own progress moves; returns how many completed */
unsigned np_port_work_slow(np_port_t *port);


static UCS_F_ALWAYS_INLINE unsigned np_port_work(np_port_t *port)
{
    if (ucs_likely(ucs_list_is_empty(&port->busy_links) &&
                   ucs_list_is_empty(&port->down_links))) {
        return 0;
    }

    return np_port_work_slow(port);
}

#endif
