/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Two ports of one process, over an RNIC that is not there (mock_verbs.h), with
 * the kernel module or without: what tests of the engine's half of verbs have
 * in common. Each test is a child of its own.
 */
#ifndef MOCKED_H_
#define MOCKED_H_

#include "mock_kmod.h"
#include "mock_verbs.h"

#include "nprdma/face/rnic.h"
#include "nprdma/start.h"

#include "../engine/tap.h"

#define MOCKED_AREA  (4ul << 20)

/** Where area and mine are */
#define MOCKED_AREA_AT  UINT64_C(0x300000000000)
#define MOCKED_MINE_AT  UINT64_C(0x310000000000)

#define MOCKED_LIMIT 60.0   /* seconds that anything may take */

typedef struct mocked_comp {
    unsigned     count;
    ucs_status_t status;
} mocked_comp_t;

extern np_vport_t *ours, *theirs;
extern np_vlink_t link_;             /* from ours to theirs */
extern ucs_status_t down;            /* link_ has failed */
extern uint8_t *area;                /* memory that theirs gives away */
extern uint8_t *mine;                /* memory of ours */
extern np_key_t *key;                /* of area */
extern unsigned num_messages;        /* that came to theirs */

/** What is done within a completion, or NULL */
extern void (*mocked_completed)(mocked_comp_t *comp);

/** Changes of the engine's settings before mocked_start() */
extern void (*mocked_engine)(np_engine_config_t *config);

/** Engine, ports and a link that is connected. Changes of the port's settings
 *  may be made by @a change, or NULL. Returns 0: something is wrong. */
int mocked_start(np_service_mode_t service, int has_module,
                 void (*change)(np_vport_config_t *config));

/** All that is there ends */
void mocked_end(void);

/** Both are in progress, or ours alone */
void mocked_progress(void);

/** Until it is so; 0: it does not become so. Whoever computes makes no
 *  progress. */
int mocked_wait(int (*is_so)(const void *arg), const void *arg,
                const np_vport_t *computes);

int mocked_is_done(const void *comp);  /* of a mocked_comp_t */

/** One-sided from now on: views have been exchanged, pages are mapped, known */
int mocked_warm(void);

/** A put or get, begun; retried while there is no room. @return its status */
ucs_status_t mocked_begin(np_dir_t dir, void *bytes, size_t len, void *remote,
                          mocked_comp_t *comp);

/** And to its end; @return how it has ended */
ucs_status_t mocked_move(np_dir_t dir, void *bytes, size_t len, void *remote);

ucs_status_t mocked_flush(void);

/** Seconds */
double mocked_now(void);

/** Try until there is room */
#define MOCKED_POST(_status, _call) \
    do { \
        double _end = mocked_now() + MOCKED_LIMIT; \
        while (((_status = (_call)) == UCS_ERR_NO_RESOURCE) && \
               (mocked_now() < _end)) { \
            mocked_progress(); \
        } \
    } while (0)

#endif
