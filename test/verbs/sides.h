/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Two processes of one host, each with a port of an RNIC: what tests and
 * benchmarks of the engine have in common.
 */

#ifndef SIDES_H_
#define SIDES_H_

#include "nprdma/face/rnic.h"

#define LIMIT  60.0   /* seconds that anything may take */

typedef struct side {
    np_vdev_addr_t  dev;
    np_vport_addr_t port;
    uint64_t        area;
    np_packed_key_t key;
} side_t;

typedef struct comp {
    unsigned     count;
    ucs_status_t status;
} comp_t;

extern np_vport_t *port;
extern np_vlink_t link_;
extern ucs_status_t down;    /* of a link: it has failed */
extern size_t max_message;

/* Seconds */
double now(void);

/* The first port of an RNIC, set up as most want it. Returns 0: none is up. */
int find_port(np_vport_config_t *config);

/* @a am may be NULL */
void open_port(const np_vport_config_t *config,
               void (*am)(void *arg, uint8_t id, void *data, unsigned len));

/* Memory of ours that peers may reach, and how to reach us */
void *make_area(side_t *side, size_t size);

/* The same at that address, where nothing is; NULL: anywhere */
void *make_area_at(side_t *side, void *at, size_t size);

/* Another process that is target(), and dies with this one; fd: to talk with
 * it, as it does by its own. Returns its pid. */
pid_t start_target(int (*target)(const np_vport_config_t *config, int fd),
                   const np_vport_config_t *config, int *fd);

/* Both tell the other one how to reach them */
int exchange_sides(int fd, const side_t *ours, side_t *theirs);

/* exchange_sides, and link_ to the other one; returns the key of its area */
np_key_t *link_sides(int fd, const side_t *ours, side_t *theirs);

/* The end of both, and of the port */
void leave_sides(np_key_t *key);

/* Waits for the end of a target; has it returned 0? */
int has_ended_well(pid_t pid);

/* Memory that a process and its targets have in common, all 0 */
void *share_memory(size_t size);

/* Progress until it is so; 0: not within LIMIT, or a link has failed */
int wait_until(int (*condition)(const void *arg), const void *arg);

/* Of a comp_t */
int is_done(const void *arg);

/* Every page goes to swap; 0: one does not. (It may wait in some processor's
 * batch, which that one alone empties.) */
int page_out(void *pages, size_t len);

/* Bytes that differ by seed and place; is_right says which one is not */
void fill(uint8_t *data, uint64_t seed, size_t len);
int is_right(const uint8_t *data, uint64_t seed, size_t len);

/* Try until there is room */
#define POST(_status, _call) \
    do { \
        double _end = now() + LIMIT; \
        while (((_status = (_call)) == UCS_ERR_NO_RESOURCE) && \
               (now() < _end) && (down == UCS_OK)) { \
            np_vport_progress(port); \
        } \
    } while (0)

#endif
