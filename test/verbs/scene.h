/* SPDX-License-Identifier: BSD-3-Clause */
/* Two processes, each a port of one RNIC, and what the engine's tests do to
 * them: ours asks, the target answers, computes, swaps, connects or fails when
 * told to. */

#ifndef SCENE_H_
#define SCENE_H_

#include "../engine/tap.h"
#include "sides.h"

#define AREA     (8ul << 20)  /* bytes of each side's memory */
#define SWAPPED  (1ul << 20)  /* of these the target may swap the first by
                                 itself */
#define LINKS    16           /* that are made at once */

/* Shared by both: what the target does and sees */
typedef struct shared {
    _Atomic uint64_t  received;
    _Atomic uint64_t  sum;
    _Atomic uint64_t  wrong;
    _Atomic int       stop;
    _Atomic int       compute;    /* the target is to leave its port alone */
    _Atomic int       computes;   /* and does */
    _Atomic int       fail;       /* its queue pairs are to fail */
    _Atomic uint32_t  skip;       /* so many message numbers */
    _Atomic unsigned  mischief;   /* to its handshake */
    _Atomic int       connect;    /* the target is to make links to us as
                                     well */
    _Atomic int       connects;   /* and has */
    _Atomic int       swap;       /* it is to swap by itself */
    _Atomic int       swaps;      /* and does */
    _Atomic uint64_t  swapped;    /* pages */
    _Atomic uint64_t  returned;   /* messages that came over those */
    _Atomic unsigned  conns;      /* connections that it has */
    _Atomic int       is_quiet;   /* no thread of it looks at its port either */
} shared_t;

extern shared_t *shared;
extern side_t side;          /* the other one */
extern uint8_t *area;        /* our own */
extern np_key_t *key;        /* of the target's area */
extern pid_t target_pid;
extern int is_initiator;

void on_am(void *arg, uint8_t id, void *data, unsigned len);

/* Until it is told to stop */
int target(const np_vport_config_t *config, int fd);

/* One message over each of so many new links, all at once; 0: not all were
 * sent */
int talk(np_vlink_t *links);
void close_links(np_vlink_t *links);

/* As if the link of a connection, or its target, had sent or taken so many
 * messages. Nothing is under way. */
void skip_numbers(np_conn_t *conn, uint32_t count);

/* Its queue pair fails. In our turn: a service thread may be about to replace
 * it. */
void fail_conn(np_conn_t *conn);

/* Waits for what a call that returned @a status has begun; has it gone well? */
int goes_well(ucs_status_t status, const comp_t *comp);
int flush(void);

/* Conditions for wait_until */
int has_received(const void *arg);  /* so many, uint64_t, or more */
int is_computing(const void *arg);  /* 1 or 0, int */

/* Data goes, and comes back right */
void test_move(size_t len, size_t offset);
void test_many(void);
void test_small(void);
void test_atomic(void);

/* While queue pairs fail, links come and go, and messages are too many */
void test_failing(void);
void test_numbers(void);
void test_crowd(void);
void test_closing(void);
void test_forgetting(void);
void test_flood(void);
void test_handshake(int only);
void test_stranger(void);

#endif
