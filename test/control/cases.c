/* SPDX-License-Identifier: BSD-3-Clause */
/* All combinations, and why some of them are left out. */
#include "control.h"

#include <stdio.h>
#include <string.h>

#define COUNT(_array)  (sizeof(_array) / sizeof((_array)[0]))

static const data_op_t ops[] = {
    {"tag_1k",  KIND_TAG,   1024,       8},
    {"tag_64k", KIND_TAG,   64 * 1024,  4},
    {"tag_1m",  KIND_TAG,   1 << 20,    2},
    {"tag_4m",  KIND_TAG,   4 << 20,    2},
    {"am_1k",   KIND_AM,    1024,       8},
    {"am_256k", KIND_AM,    256 * 1024, 4},
    {"put_4k",  KIND_PUT,   4096,       8},
    {"put_1m",  KIND_PUT,   1 << 20,    2},
    {"get_4k",  KIND_GET,   4096,       8},
    {"get_1m",  KIND_GET,   1 << 20,    2},
    {"fetch_8", KIND_FETCH, 8,          8}
};

static const control_t controls[] = {
    {"close_force@init",    CONTROL_CLOSE_FORCE,    INITIATOR},
    {"close_force@target",  CONTROL_CLOSE_FORCE,    TARGET},
    {"close_flush@init",    CONTROL_CLOSE_FLUSH,    INITIATOR},
    {"close_flush@target",  CONTROL_CLOSE_FLUSH,    TARGET},
    {"unmap@init",          CONTROL_UNMAP,          INITIATOR},
    {"unmap@target",        CONTROL_UNMAP,          TARGET},
    {"rkey_destroy@init",   CONTROL_RKEY_DESTROY,   INITIATOR},
    {"cancel@init",         CONTROL_CANCEL,         INITIATOR},
    {"cancel@target",       CONTROL_CANCEL,         TARGET},
    {"worker_destroy@init", CONTROL_WORKER_DESTROY, INITIATOR},
    {"worker_destroy@target", CONTROL_WORKER_DESTROY, TARGET},
    {"cleanup@init",        CONTROL_CLEANUP,        INITIATOR},
    {"cleanup@target",      CONTROL_CLEANUP,        TARGET},
    {"munmap@target",       CONTROL_MUNMAP,         TARGET},
    {"protect@target",      CONTROL_PROTECT,        TARGET},
    {"kill@init",           CONTROL_KILL,           INITIATOR},
    {"kill@target",         CONTROL_KILL,           TARGET},
    {"exit@init",           CONTROL_EXIT,           INITIATOR},
    {"exit@target",         CONTROL_EXIT,           TARGET}
};

static const char *moments[NUM_MOMENTS] = {"cold",      "posted", "progress1",
                                           "progress8", "local",  "remote"};

static const char *stages[] = {"open",    "connect", "post",  "moment",
                               "control", "settle",  "again", "close",
                               "done"};

/* Why a combination is left out; NULL if it is not */
static const char *left_out(const case_t *c)
{
    kind_t kind        = c->op->kind;
    control_id_t id    = c->control->id;
    int is_passive     = (kind == KIND_PUT) || (kind == KIND_GET) ||
                         (kind == KIND_FETCH);
    int is_before_end  = (c->moment != MOMENT_LOCAL) &&
                         (c->moment != MOMENT_REMOTE);

    if ((id == CONTROL_CLOSE_FORCE) && !c->peer_errors) {
        return "ucp.h: a forced close needs UCP_ERR_HANDLING_MODE_PEER on both "
               "sides";
    }
    if ((id == CONTROL_RKEY_DESTROY) && !is_passive) {
        return "no key is used";
    }
    if ((id == CONTROL_RKEY_DESTROY) && (c->moment != MOMENT_REMOTE)) {
        return "ucp.h: a key must be kept until all operations that use it are "
               "flushed; UCP reads it again for what waits";
    }
    if ((id == CONTROL_CANCEL) && !is_before_end) {
        return "all requests have been freed: nothing to cancel";
    }
    if ((id == CONTROL_CANCEL) && (c->control->actor == TARGET) &&
        is_passive) {
        return "the target has no request";
    }
    if ((id == CONTROL_CANCEL) && (kind == KIND_AM) &&
        (c->control->actor == TARGET) && (c->moment == MOMENT_COLD)) {
        return "the target's requests begin with its progress";
    }
    if ((c->control->actor == TARGET) && is_passive &&
        (c->moment == MOMENT_LOCAL)) {
        return "the target sees no completion of its own";
    }
    if (((id == CONTROL_MUNMAP) || (id == CONTROL_PROTECT)) &&
        is_before_end && ((strcmp(c->op->name, "tag_1k") == 0) ||
                          (strcmp(c->op->name, "am_1k") == 0))) {
        return "UCP or the program itself copies into the buffer, in its own "
               "process: its own segmentation fault";
    }
    return NULL;
}

int case_get(unsigned i, case_t *c, const char **reason)
{
    unsigned mode = i % 2, moment, control;

    i       /= 2;
    moment   = i % NUM_MOMENTS;
    i       /= NUM_MOMENTS;
    control  = i % COUNT(controls);
    i       /= COUNT(controls);
    if (i >= COUNT(ops)) {
        return 0;
    }

    c->op          = &ops[i];
    c->control     = &controls[control];
    c->moment      = moment;
    c->peer_errors = (mode == 1);
    *reason        = left_out(c);
    return 1;
}

void case_name(const case_t *c, char *name, size_t size)
{
    snprintf(name, size, "%s/%s/%s/%s", c->op->name, c->control->name,
             moments[c->moment], c->peer_errors ? "peer" : "none");
}

const char *stage_name(stage_t stage)
{
    return stages[stage];
}

int control_leaves_workers(const control_t *control)
{
    return (control->id != CONTROL_WORKER_DESTROY) &&
           (control->id != CONTROL_CLEANUP) &&
           (control->id != CONTROL_KILL) && (control->id != CONTROL_EXIT);
}
