/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A timeline of transfers: what was posted, prepared, asked for and moved, and
 * when. Off by default, and then one load of a constant for each step; on
 * (UCX_NPRDMA_TRACE) a record for each, which is written out when the process
 * ends.
 */

#ifndef NP_TRACE_H_
#define NP_TRACE_H_

#include "clock.h"
#include "np.h"

/** X(NAME, text): what is recorded */
#define NP_TRACE_LIST(X) \
    X(POST_SEND,  "post send")  /* the program has announced a buffer */ \
    X(POST_RECV,  "post recv") \
    X(MESSAGE,    "message")    /* an active message of UCP's: size and id */ \
    X(PREPARE,    "prepare")    /* part of an announced buffer */ \
    X(FAULT_IN,   "fault in")   /* pages of our own, for any use */ \
    X(GET,        "get")        /* a transfer, from its post to its end */ \
    X(PUT,        "put") \
    X(MOVE,       "move")       /* bytes, by the initiator */ \
    X(HELP,       "help")       /* bytes, by the target of a shared copy */ \
    X(FAULT,      "FAULT")      /* from the request to its answer */ \
    X(SERVE,      "serve")      /* a peer's request, until it is done */ \
    X(REGISTER,   "register")   /* memory with an RDMA device, or modelled */ \
    X(DEREGISTER, "deregister") \
    X(LINK,       "link")       /* bytes on the model's link */ \
    X(UNLOAD,     "unload")     /* a put that is left to the target's CPU */

typedef enum np_trace_kind {
    NP_TRACE_NONE,
#define NP_TRACE_ENUM(_name, _text) NP_TRACE_##_name,
    NP_TRACE_LIST(NP_TRACE_ENUM)
#undef NP_TRACE_ENUM
    NP_TRACE_LAST
} np_trace_kind_t;

/** Constant once the engine has started */
extern int np_trace_is_on;

/**
 * Begin to record.
 *
 * @param [in] name  Of the file; "%p" stands for the process id, "%h" for the
 *                   host; without %p, ".<pid>" is appended. NULL or empty: off.
 *
 * @return UCS_OK; UCS_ERR_NO_MEMORY.
 */
ucs_status_t np_trace_start(const char *name);

/** A record of what lasted from @a begin to @a end. Any thread. When the buffer
 *  is full nothing more is recorded. */
void np_trace_record(np_trace_kind_t kind, uint64_t begin, uint64_t end,
                     uint64_t va, uint64_t len);


/** When something begins; 0 if nothing is recorded */
static UCS_F_ALWAYS_INLINE uint64_t np_trace_begin(void)
{
    return ucs_unlikely(np_trace_is_on) ? np_clock() : 0;
}

/** It has ended: @a va and @a len say what it was about. @a begin of 0 is
 *  now. */
static UCS_F_ALWAYS_INLINE void
np_trace(np_trace_kind_t kind, uint64_t begin, uint64_t va, uint64_t len)
{
    uint64_t now;

    if (ucs_unlikely(np_trace_is_on)) {
        now = np_clock();
        np_trace_record(kind, (begin == 0) ? now : begin, now, va, len);
    }
}

#endif
