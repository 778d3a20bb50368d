/* SPDX-License-Identifier: BSD-3-Clause */
/* What the parts of the simulation know of each other. */
#ifndef SIM_INSIDE_H_
#define SIM_INSIDE_H_

#include "sim.h"

#define SIM_PAGE  4096ul

/** What is under way */
extern sim_op_t sim_ops[SIM_OPS];
extern unsigned sim_num_ops;

/** Instead of chance: what the next operations are about */
typedef struct sim_shape {
    int      is_set;
    size_t   len;      /* at most what the call takes */
    uint64_t offset;
    unsigned pieces;   /* of the program's buffer */
} sim_shape_t;

extern sim_shape_t sim_shape;

/* The model (sim_model.c) */

/** If steps are to be told */
void sim_tell(const char *format, ...) __attribute__((format(printf, 1, 2)));

void sim_fill(uint8_t *bytes, size_t len);

/** New memory for the present life of a link */
void sim_open_area(unsigned from, unsigned to);
void sim_open_process(unsigned p);

/** Is what a link's operations up to this one have written there? What later
 *  ones have written may be as well. */
void sim_check_area(unsigned from, unsigned to, uint64_t upto,
                    const char *when);

/** All memory, when nothing is under way */
void sim_check_all(void);

/** NULL: too many are under way */
sim_op_t *sim_op_get(sim_kind_t kind, unsigned from, unsigned to);
void sim_op_put(sim_op_t *op);

/** Buffers for so many bytes; returns 0: there is no room */
int sim_pool_get(sim_op_t *op, size_t len, unsigned count);

/** An operation has begun; and writes these bytes. @a is_exact: nothing else is
 *  ever seen of it. */
void sim_begun(const sim_op_t *op);
void sim_written(const sim_op_t *op, uint64_t offset, const void *bytes,
                 size_t len, int is_exact);

/** Its buffers are the program's again, with whatever is in them */
void sim_give_back(const sim_op_t *op);

/* Operations (sim_ops.c); each may be refused for now */

void sim_put_copied(unsigned from, unsigned to);
void sim_put_packed(unsigned from, unsigned to);
void sim_move(np_dir_t dir, unsigned from, unsigned to);
void sim_get_unpacked(unsigned from, unsigned to);
void sim_atomic(unsigned from, unsigned to);
void sim_send(unsigned from, unsigned to);
void sim_flush(unsigned from, unsigned to);
void sim_flush_port(unsigned from);
void sim_fence(unsigned from, unsigned to);
void sim_fence_port(unsigned from);

/** A get of memory that is not there */
void sim_get_bad(unsigned from, unsigned to);

/** The link's life ends, and its next one begins, with another area */
void sim_reopen(unsigned from, unsigned to);

/** Nothing goes wrong any more: all that has begun ends (sim_world.c) */
void sim_settle_down(void);

#endif
