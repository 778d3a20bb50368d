/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Small puts that could be one-sided, and go by the target's CPU (unload.h):
 * as messages, which are checked, counted, acknowledged and sent again as
 * others are.
 */

#ifndef NP_RUNLOAD_H_
#define NP_RUNLOAD_H_

#include "rop.h"

#include "../weigh.h"

/** Puts under way are told apart by the lines that they write, by a hash of so
 *  many bits */
#define NP_RUNLOAD_LINE       UINT64_C(64)
#define NP_RUNLOAD_LINE_BITS  8

/** Owner: its link, in turns of its port. Made at first use. */
struct np_runload {
    np_weigh_t weigh;
    uint32_t   seq;      /**< of the put that is timed and has no operation: its
                              message */
    uint32_t   before;   /**< messages up to here have no line */
    uint32_t   lines[1u << NP_RUNLOAD_LINE_BITS]; /**< by their hash: the last
                              message that writes one of them. A number older
                              than half of all seems new: then a transfer waits
                              that need not. */
};

/** Which way does a put take that is no larger than the settings say? There are
 *  views. As np_weigh_decides. */
int np_runload_decides(np_vlink_t *link, uint64_t addr);

/** A put is about to be sent as this message; @a is_unloaded: because that was
 *  decided. Else, if it was asked for, the device cannot do it after all: that
 *  is what it costs to leave it to the device. */
void np_runload_sent(np_vlink_t *link, np_vctl_t *ctl, uint64_t addr,
                     size_t len, int is_unloaded);

/** A put that was asked for is left to the device, and posted as (part of) this
 *  operation. Returns whether to confirm it at once: its time is taken. */
int np_runload_posted(np_vlink_t *link, const np_rop_t *op, uint64_t addr);

/** Such an operation has ended, one-sided or with the target's help; @a
 *  is_right: its time counts */
void np_runload_ended(const np_rop_t *op, int is_right);

/** May what is not acknowledged be a put of this memory? */
int np_runload_is_near(np_vlink_t *link, uint64_t addr, size_t len);

/** Messages have been acknowledged */
void np_runload_acked(np_vlink_t *link);

/** As np_conn_renumber */
void np_runload_renumber(np_vlink_t *link, uint32_t taken, uint32_t seq);

/** The link ends */
void np_runload_cleanup(np_vlink_t *link);

#endif
