/* SPDX-License-Identifier: BSD-3-Clause */
/* One side of a combination, inside its process. */
#ifndef CONTROL_SIDE_H_
#define CONTROL_SIDE_H_

#include "control.h"

/* What the sides tell each other */
typedef enum {
    WORD_READY,      /* receives are posted */
    WORD_WARM,       /* connected: messages went both ways */
    WORD_POSTED,     /* data operations are posted */
    WORD_COMPLETE,   /* all of mine have ended well; what is remote, flushed */
    WORD_SETTLED,    /* nothing will change at my side */
    WORD_AGAIN,      /* the message over the new endpoint has come */
    WORD_CLOSED,
    NUM_WORDS
} word_t;

typedef struct {
    uint8_t word;
    uint8_t num_ok;      /* of WORD_SETTLED: operations that ended well */
    uint8_t is_flushed;  /* and all of them were flushed */
} message_t;

/* A data operation */
typedef struct {
    ucs_status_ptr_t req;
    int              has_ended;
    int              is_marked;  /* the mark is in its buffer: nobody may
                                    write */
} slot_t;

typedef struct {
    const case_t  *c;
    role_t        role;
    double        bound;
    seen_t        *seen;

    int           fd;
    int           is_told[NUM_WORDS];
    message_t     settled;           /* the peer's */
    int           is_peer_gone;
    unsigned      naps;              /* turns with nothing to do */

    ucp_context_h context;
    ucp_worker_h  worker;            /* NULL when destroyed */
    ucp_ep_h      ep;                /* NULL when closed */
    ucp_mem_h     memh;
    ucp_rkey_h    rkey;
    uint64_t      remote;            /* address of the peer's buffer */
    uint8_t       *peer_address;     /* of its worker */

    uint8_t       *buf;
    size_t        len;
    int           is_readable, is_writable;
    slot_t        slots[WINDOW_MAX];
    unsigned      num_slots;         /* of this side */
    unsigned      num_ok;
    unsigned      fetched;           /* a bit for each value */
    ucs_status_ptr_t control_req;
    int           is_flushed;
} side_t;

extern const ucp_request_param_t no_params;

/* Ends the process: what is no result of any combination went wrong */
void side_fail(const char *what) __attribute__((noreturn));

/* One turn of progress, and words from the peer */
void side_turn(side_t *s);

/* transfer.c */
int  transfer_is_one_sided(const case_t *c);
void transfer_open(side_t *s);
void transfer_post(side_t *s);     /* receives, at the target */
void transfer_reap(side_t *s);     /* what has ended */
int  transfer_has_ended(const side_t *s);
void transfer_cancel(side_t *s);
void transfer_abandon(side_t *s);  /* the worker is going */
void transfer_freeze(side_t *s);   /* what has not ended by now is pending */
void transfer_judge(side_t *s);    /* all is over: who wrote what? */

/* What is left of UCP's objects; one may be left alone */
ucs_status_t side_wait(side_t *s, ucs_status_ptr_t req, double seconds);

#endif
