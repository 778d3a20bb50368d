/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Shared by the fuzz targets: an input is a list of records, each one thing
 * that a hostile peer does, and the world in which it does them has three
 * parts:
 *
 *   ours       memory that is shared with peers, alone in its arena
 *   theirs     what stands for the peer's own memory, alone in another arena
 *   all else   nobody's but ours: whoever reaches it on a peer's word aborts
 *
 * Both ends are one process, so process_vm_* are wrapped and judge each call.
 */
#ifndef NP_FUZZ_H_
#define NP_FUZZ_H_

#include "nprdma/start.h"
#include "nprdma/dev/soft/peer.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/proto/soft/sop.h"

#define FUZZ_OURS      UINT64_C(0x200000000000)
#define FUZZ_THEIRS    UINT64_C(0x210000000000)
#define FUZZ_PAGES     64
#define FUZZ_SIZE      (FUZZ_PAGES * 4096)
#define FUZZ_RECORDS   96

typedef struct fuzz_record {
    uint8_t  op;
    uint8_t  a;
    uint16_t b;
    uint32_t c;
    uint64_t d;
} fuzz_record_t;

/** The rest of an input */
typedef struct fuzz_input {
    const uint8_t *data;
    size_t        size;
    unsigned      taken;
} fuzz_input_t;

/** Some memory that no path may leave */
typedef struct fuzz_region {
    const void *base;
    size_t     size;
} fuzz_region_t;

#define FUZZ_REGIONS   64

/** By a target: the shared memory of its connections now. Returns how many. */
unsigned fuzz_get_regions(fuzz_region_t *regions);

/** May what we do for a peer only touch what is shared? Not so of an initiator,
 *  who reaches where its key says, and not here. */
extern int fuzz_is_target;

/** Engine, memory, quiet log; once */
void fuzz_start(void);

/** Next record; a short one is filled with zeroes. Returns 0 at the end. */
int fuzz_next(fuzz_input_t *input, fuzz_record_t *record);

/** An address that a hostile peer may name: of all three parts, and edges */
uint64_t fuzz_address(uint64_t d);

/** A descriptor that somebody may send, by number: owned by fuzz.c */
int fuzz_fd(unsigned which);

/** Says what is wrong, and aborts */
void fuzz_fail(const char *what, const void *ptr, size_t len)
        __attribute__((noreturn));

/** Aborts unless [ptr, ptr + len) is memory that a transfer may touch */
void fuzz_check_local(const void *ptr, size_t len);

#endif
