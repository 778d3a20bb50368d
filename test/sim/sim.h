/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One seed, one world: several processes' halves of the engine in one process,
 * over a device that does what the seed says, when the seed says it. They move
 * random bytes between their memories, while pages go and come back and queue
 * pairs fail; a naive model of memory says what must be where. Nothing else
 * decides: no thread, and no clock but the simulation's own. So a seed that has
 * found something finds it again.
 *
 * Each process has an area for every other one, in which only that one writes:
 * what is in it depends on the order of one link's operations alone, which is
 * what the engine promises. An area lies across the border of two arenas.
 */
#ifndef SIM_H_
#define SIM_H_

#include "nprdma/np.h"
#include "nprdma/iov.h"
#include "nprdma/mem/key.h"
#include "nprdma/proto/ep.h"

#include <sys/types.h>

#define SIM_PROCESSES  3u
#define SIM_LINKS      (SIM_PROCESSES * SIM_PROCESSES)  /* of two, each way */
#define SIM_AREA       (192ul << 10)  /* bytes that one may write at another */
#define SIM_POOL       (512ul << 10)  /* bytes of a process's own buffers */
#define SIM_PUT_MAX    (160ul << 10)  /* of one transfer */
#define SIM_LIVES      4u            /* of a link, each with its own area */
#define SIM_OPS        512u           /* that are under way at a time */
#define SIM_MESSAGE    64u            /* bytes of the largest active message */

typedef enum sim_kind {
    SIM_PUT,
    SIM_GET,
    SIM_UNPACK,
    SIM_ATOMIC,
    SIM_FLUSH,
    SIM_FLUSH_PORT
} sim_kind_t;

/** What is under way for a link, or, SIM_FLUSH_PORT, for a process */
typedef struct sim_op {
    int        is_used;
    sim_kind_t kind;
    unsigned   from, to;
    uint64_t   number;     /* of the link's operations */
    uint64_t   offset;     /* in the area */
    size_t     len;
    np_iov_t   iov[3];     /* its buffers in the pool */
    size_t     iovcnt;
    uint8_t    *expected;  /* bytes that it must bring */
    uint64_t   value;      /* SIM_ATOMIC: what it must bring */
    uint64_t   result;
    int        is_bad;     /* it must fail */
    unsigned   life[SIM_PROCESSES]; /* of the links that it is about */
    uint64_t   upto[SIM_PROCESSES]; /* flushes: operations before it */
} sim_op_t;

#define SIM_WRITES  4u     /* to one byte that are remembered */

/** Of one byte, the last first */
typedef struct sim_history {
    uint32_t number[SIM_WRITES];   /* of the operations that wrote it; 0: none,
                                      it was so from the beginning */
    uint8_t  value[SIM_WRITES];
    uint8_t  is_exact[SIM_WRITES]; /* nothing else is ever seen of this one */
} sim_history_t;

typedef struct sim_link {
    unsigned life;
    int      is_ending;    /* what is under way ends as it likes */
    unsigned num_bad;      /* operations under way that must fail */
    uint64_t number;       /* of its last operation */
    uint64_t fence;        /* of the last one before its last fence */
    uint64_t sent;         /* active messages */
    uint64_t received;
    uint8_t  *model;       /* what the area must become */
    sim_history_t *history; /* of each of its bytes */
} sim_link_t;

typedef struct sim_process {
    uint8_t *area[SIM_PROCESSES];  /* for each other one */
    uint8_t *areas[SIM_LIVES][SIM_PROCESSES]; /* all that there have been */
    uint8_t *pool;
    uint8_t *pool_model;
    uint8_t *pool_busy;            /* of each page: transfers that use it */
} sim_process_t;

/** A device, as the simulation sees it. All that return a status: as the
 *  engine's calls. */
typedef struct sim_device {
    /** @a has_views: of memory, in which pages may be absent */
    int          (*open)(int has_views);
    void         (*close)(void);
    np_flights_t *(*links)(unsigned process);
    np_flight_t  *(*link)(unsigned from, unsigned to);
    np_key_t     *(*key)(unsigned from, unsigned to);
    ucs_status_t (*put)(unsigned from, unsigned to, const void *data,
                        size_t len, uint64_t addr);
    ucs_status_t (*unpack)(unsigned from, unsigned to, size_t len,
                           uint64_t addr, sim_op_t *op);
    ucs_status_t (*message)(unsigned from, unsigned to, const void *data,
                            size_t len, unsigned how);
    unsigned     (*progress)(unsigned process);
    /** One step of what moves by itself; 0: there is nothing to do */
    unsigned     (*turn)(void);
    /** The link ends, with whatever is under way, and another one begins,
     *  which uses the area that is the present one. @a is_cancelled: and before
     *  that all of it is cancelled. */
    void         (*reopen)(unsigned from, unsigned to, int is_cancelled);
    /** Something fails that the engine must make good; 0: nothing could */
    int          (*fail)(void);
    void         (*take)(void *va, size_t len);
    void         (*give)(void *va, size_t len, int write);
    /** Pages that go or come are gone, or there; 0: there is none */
    int          (*settle)(void);
    /** All is quiet: is anything left of what the engine had? Says what. */
    int          (*is_clean)(void);
    size_t       max_copied;       /* bytes of put, put_packed, unpack */
    int          can_fail;
} sim_device_t;

extern const sim_device_t *sim;
extern const sim_device_t sim_verbs, sim_soft;
extern sim_process_t sim_processes[SIM_PROCESSES];
extern sim_link_t sim_links[SIM_PROCESSES][SIM_PROCESSES];
extern int sim_is_told;            /* each step is printed */
extern int sim_is_unloading;       /* small puts go by any policy */

/** The world's own seed */
extern uint64_t sim_world;

/* Is what is put next to a hot page? Any answer */
void sim_hint(void);

/** Numbers by the seed */
void sim_seed(uint64_t seed);
uint64_t sim_random(void);
unsigned sim_below(unsigned bound);

/** The world is wrong: says why, and ends it */
void sim_wrong(const char *format, ...)
    __attribute__((noreturn, format(printf, 1, 2)));

/** Is there memory of a process at this address? */
int sim_has_memory(uint64_t va);

/** Where process @a from may write at @a to */
uint64_t sim_addr(unsigned from, unsigned to, uint64_t offset);

/** A key of that area; the world is wrong if there is none */
np_key_t *sim_key(unsigned from, unsigned to);

/** Do this for each two processes; returns 0 if it did so for one of them */
int sim_for_links(int (*each)(unsigned from, unsigned to));

/** What the engine tells */
void sim_complete(void *comp, ucs_status_t status);
void sim_message(unsigned to, const void *data, size_t len);
void sim_take_bytes(void *op, const void *data, size_t len);

/** What a step of the world has done so far */
typedef struct sim_counts {
    unsigned long steps, puts, gets, atomics, messages, flushes, refused;
    unsigned long bad, ends, failures, takes, gives, turns, bytes;
} sim_counts_t;

extern sim_counts_t sim_counts;

/** What a device that has moments inside its calls calls there; NULL: nothing
 *  happens */
extern void (*sim_between)(void);

/** Called when an operation of a process has completed, within that; NULL:
 *  nothing happens */
extern void (*sim_completed)(unsigned from);

/** Make the world, and let it run so many steps, and to its end */
void sim_world_open(int has_views);
void sim_world_step(void);
void sim_world_close(void);

/** Every event at every moment of some operations, and so many pairs of them of
 *  each; in a world that is open. Returns how many runs there were. */
unsigned long sim_sweep(unsigned long pairs);

#endif
