/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Control operations while transfers fly: every combination of a data
 * operation, a control operation, a moment and an error handling mode is run by
 * two processes, and what a program sees of it is written down. The idea is
 * that of the NP-RDMA paper, section 4, "Error handling".
 */
#ifndef CONTROL_H_
#define CONTROL_H_

#include <ucp/api/ucp.h>
#include <stddef.h>
#include <stdint.h>

#define WINDOW_MAX   8
#define STATUS_MAX   128

/* What moves data */
typedef enum {
    KIND_TAG,
    KIND_AM,
    KIND_PUT,
    KIND_GET,
    KIND_FETCH
} kind_t;

typedef struct {
    const char *name;
    kind_t     kind;
    size_t     size;     /* of each operation */
    unsigned   window;   /* operations at a time */
} data_op_t;

/* Who does the control operation: the initiator posts the data operations */
typedef enum {
    INITIATOR,
    TARGET,
    NUM_SIDES
} role_t;

typedef enum {
    CONTROL_CLOSE_FORCE,
    CONTROL_CLOSE_FLUSH,
    CONTROL_UNMAP,
    CONTROL_RKEY_DESTROY,
    CONTROL_CANCEL,
    CONTROL_WORKER_DESTROY,
    CONTROL_CLEANUP,
    CONTROL_MUNMAP,
    CONTROL_PROTECT,
    CONTROL_KILL,
    CONTROL_EXIT
} control_id_t;

typedef struct {
    const char   *name;
    control_id_t id;
    role_t       actor;
} control_t;

typedef enum {
    MOMENT_COLD,     /* nothing was ever sent: the endpoints are not
                        connected */
    MOMENT_POSTED,   /* before any progress */
    MOMENT_PROGRESS_1,
    MOMENT_PROGRESS_8,
    MOMENT_LOCAL,    /* after completion at the side that acts */
    MOMENT_REMOTE,   /* after completion at the other side */
    NUM_MOMENTS
} moment_t;

typedef struct {
    const data_op_t *op;
    const control_t *control;
    moment_t        moment;
    int             peer_errors;  /* UCP_ERR_HANDLING_MODE_PEER, or none */
} case_t;

/* How far a side has come: where it was when it died or got stuck */
typedef enum {
    STAGE_OPEN,
    STAGE_CONNECT,
    STAGE_POST,
    STAGE_MOMENT,
    STAGE_CONTROL,
    STAGE_SETTLE,
    STAGE_AGAIN,
    STAGE_CLOSE,
    STAGE_DONE
} stage_t;

typedef enum {
    DATA_RIGHT = 1 << 0,
    DATA_WRONG = 1 << 1,  /* completed well, and not what was sent */
    DATA_LATE  = 1 << 2   /* written after the request had ended */
} data_t;

/* No status yet, or none wanted */
#define STATUS_NONE  ((int)UCS_ERR_LAST - 1)

/* What a side saw; in memory that outlives it */
typedef struct {
    stage_t  stage;
    int      is_late;                /* the moment never came */
    unsigned ended[STATUS_MAX];      /* requests by the status they ended
                                        with */
    unsigned pending;                /* those that never did */
    unsigned abandoned;              /* their worker is gone */
    unsigned data;                   /* of data_t */
    int      failure;                /* what the error handler was told */
    int      control;                /* what the control operation returned */
    int      again;                  /* a message over a new endpoint */
} seen_t;

/* cases.c: the I-th of all combinations; 0 past the last. Those that the API
 * does not define, or that mean nothing, have a reason. */
int case_get(unsigned i, case_t *c, const char **reason);

/* NAME is "op/control/moment/mode" */
void case_name(const case_t *c, char *name, size_t size);
const char *stage_name(stage_t stage);

/* Both sides are alive after it, each with a worker */
int control_leaves_workers(const control_t *control);

/* side.c: runs one side of a case in this process, and ends it. FD is a socket
 * to the other side, BOUND what to wait at most, in seconds. */
void side_run(const case_t *c, role_t role, int fd, double bound,
              seen_t *seen) __attribute__((noreturn));

double time_now(void);

#endif
