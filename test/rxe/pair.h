/* SPDX-License-Identifier: BSD-3-Clause */
/* Two queue pairs of one process that are connected to each other. */

#ifndef NPRDMA_TEST_PAIR_H_
#define NPRDMA_TEST_PAIR_H_

#include "nprdma/dev/verbs/nic.h"

/** No completion came in time; not a status of libibverbs */
#define PAIR_NOTHING  -1

typedef struct pair {
    np_nic_t      *nic;
    struct ibv_cq *cq;
    struct ibv_qp *qp[2]; /**< 0 asks, 1 answers */
} pair_t;

/** A piece of registered memory on one side */
typedef struct pair_mem {
    uint64_t addr;
    uint32_t key;
} pair_mem_t;

/** Connected; ends the program if that fails. */
void pair_open(pair_t *pair, np_nic_t *nic);

void pair_close(pair_t *pair);

/** A Read or Write is posted; ends the program if that fails. */
void pair_post(pair_t *pair, enum ibv_wr_opcode opcode, pair_mem_t local,
               pair_mem_t remote, size_t len);

/** The next completion: its ibv_wc_status, or PAIR_NOTHING */
int pair_wait(pair_t *pair);

/** One operation, until its completion: its ibv_wc_status, or PAIR_NOTHING */
int pair_write(pair_t *pair, pair_mem_t local, pair_mem_t remote, size_t len);
int pair_read(pair_t *pair, pair_mem_t local, pair_mem_t remote, size_t len);
int pair_add(pair_t *pair, pair_mem_t local, pair_mem_t remote, uint64_t add);
int pair_swap(pair_t *pair, pair_mem_t local, pair_mem_t remote,
              uint64_t compare, uint64_t swap);

/** A message from 0 into a buffer of 1; the status of the receiver, or of the
 *  sender if that is an error */
int pair_send(pair_t *pair, pair_mem_t from, pair_mem_t into, size_t len);

#endif
