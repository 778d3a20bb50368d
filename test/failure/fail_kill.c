/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A peer is killed in the middle of transfers. The survivor must get an error,
 * all its requests must end, what did arrive must be right, and it must still
 * be able to talk to another peer.
 */
#include "fail_ucp.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define ERR_MODE    UCP_ERR_HANDLING_MODE_PEER
#define WINDOW      8
#define BEFORE      20     /* operations done before the kill */
#define DATA_TAG    1
#define SECOND_TAG  2

typedef enum {
    KILL_RECEIVER,
    KILL_SENDER,
    KILL_PUT,
    KILL_GET,
    KILL_IDLE,
    KILL_LAST
} kill_mode_t;

static const char *mode_names[KILL_LAST] = {"receiver", "sender", "put",
                                            "get", "idle"};

/* Where the victim's memory is, for put and get. */
typedef struct {
    uint64_t address;
    size_t   rkey_size;
    char     rkey[256];
} target_t;

static size_t size;

static void victim_main(fu_peer_t *parent, kill_mode_t mode)
{
    ucp_mem_map_params_t params = {0};
    fu_node_t            node;
    target_t             target = {0};
    ucp_mem_h            memh;
    void                 *buf, *rkey;
    ucs_status_ptr_t     req;

    if (fu_node_open(&node) != UCS_OK) {
        fu_fail("the victim cannot open its worker");
    }
    buf = malloc(size);
    fu_fill(buf, size, 1);
    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = buf;
    params.length     = size;
    if ((ucp_mem_map(node.context, &params, &memh) != UCS_OK) ||
        (ucp_rkey_pack(node.context, memh, &rkey, &target.rkey_size) !=
         UCS_OK) || (target.rkey_size > sizeof(target.rkey))) {
        fu_fail("the victim cannot map and pack %zu bytes", size);
    }
    memcpy(target.rkey, rkey, target.rkey_size);
    target.address = (uintptr_t)buf;
    if (fu_connect(&node, parent, ERR_MODE) != UCS_OK) {
        fu_fail("the victim cannot connect");
    }
    fu_oob_send(parent, &target, sizeof(target));

    for (;;) {
        if (mode == KILL_SENDER) {
            req = fu_send(parent, buf, size, DATA_TAG);
        } else if (mode == KILL_RECEIVER) {
            req = fu_recv(&node, buf, size, DATA_TAG);
        } else {
            req = NULL;
            ucp_worker_progress(node.worker);
        }
        if (req != NULL) {
            fu_wait(&node, req, "the victim's transfer");
        }
    }
}

/* Answers one exchange, whenever it comes. */
static void second_main(fu_peer_t *parent)
{
    fu_node_t node;
    char      *buf = malloc(size);

    if ((fu_node_open(&node) != UCS_OK) ||
        (fu_connect(&node, parent, ERR_MODE) != UCS_OK)) {
        fu_fail("the second peer cannot connect");
    }
    /* The victim's turn may take long: wait without a bound of our own. */
    fu_oob_recv(parent, buf, 1);
    if (fu_wait(&node, fu_recv(&node, buf, size, SECOND_TAG), "receive") !=
        UCS_OK) {
        fu_fail("the second peer's receive failed");
    }
    fu_check("at the second peer", buf, size, 5);
    fu_fill(buf, size, 6);
    if (fu_wait(&node, fu_send(parent, buf, size, SECOND_TAG), "send") !=
        UCS_OK) {
        fu_fail("the second peer's send failed");
    }
    fu_oob_recv(parent, buf, 1);
    fu_disconnect(parent);
    fu_node_close(&node);
    _exit(0);
}

static ucs_status_ptr_t start_one(kill_mode_t mode, fu_peer_t *victim,
                                  const target_t *target, ucp_rkey_h rkey,
                                  void *buf)
{
    ucp_request_param_t param = {0};

    switch (mode) {
    case KILL_RECEIVER:
        return fu_send(victim, buf, size, DATA_TAG);
    case KILL_SENDER:
        memset(buf, 0, size);
        return fu_recv(victim->node, buf, size, DATA_TAG);
    case KILL_PUT:
        return ucp_put_nbx(victim->ep, buf, size, target->address, rkey,
                           &param);
    default:
        memset(buf, 0, size);
        return ucp_get_nbx(victim->ep, buf, size, target->address, rkey,
                           &param);
    }
}

/*
 * Keeps WINDOW operations going until one fails or the error handler is
 * called; kills the victim after BEFORE of them. Then all must end.
 */
static void run_window(kill_mode_t mode, fu_peer_t *victim,
                       const target_t *target, ucp_rkey_h rkey)
{
    int              reads = (mode == KILL_SENDER) || (mode == KILL_GET);
    ucs_status_ptr_t reqs[WINDOW];
    void             *bufs[WINDOW];
    double           end;
    int              i, done = 0, killed = 0, errors = 0;
    ucs_status_t     status;

    for (i = 0; i < WINDOW; ++i) {
        bufs[i] = malloc(size);
        fu_fill(bufs[i], size, 1);
        reqs[i] = start_one(mode, victim, target, rkey, bufs[i]);
    }

    end = fu_now() + fu_wait_seconds;
    for (i = 0; (victim->failure == UCS_OK) && (errors == 0);
         i = (i + 1) % WINDOW) {
        if (fu_now() > end) {
            fu_fail("%s, %zu bytes: after %d operations neither an error "
                    "nor an end in %d s", mode_names[mode], size, done,
                    fu_wait_seconds);
        }
        ucp_worker_progress(victim->node->worker);
        status = UCS_PTR_IS_PTR(reqs[i]) ? ucp_request_check_status(reqs[i]) :
                                           UCS_PTR_STATUS(reqs[i]);
        if (status == UCS_INPROGRESS) {
            continue;
        }
        if (UCS_PTR_IS_PTR(reqs[i])) {
            ucp_request_free(reqs[i]);
        }
        if (status == UCS_OK) {
            ++done;
            if (reads) {
                fu_check(mode_names[mode], bufs[i], size, 1);
            }
        } else if (!killed) {
            fu_fail("%s: operation %d: %s, while the peer was alive",
                    mode_names[mode], done, ucs_status_string(status));
        } else {
            ++errors;
        }
        reqs[i] = (victim->failure != UCS_OK) || (errors > 0) ? NULL :
                  start_one(mode, victim, target, rkey, bufs[i]);
        if (!killed && (done >= BEFORE)) {
            kill(victim->pid, SIGKILL);
            killed = 1;
            end    = fu_now() + fu_wait_seconds;
        }
    }

    fu_wait_failure(victim);
    for (i = 0; i < WINDOW; ++i) {
        if ((mode == KILL_SENDER) && UCS_PTR_IS_PTR(reqs[i])) {
            /* UCP does not know from whom an unmatched receive was to come */
            ucp_request_cancel(victim->node->worker, reqs[i]);
        }
        status = fu_wait(victim->node, reqs[i], mode_names[mode]);
        if ((status == UCS_OK) && reads && (reqs[i] != NULL)) {
            fu_check(mode_names[mode], bufs[i], size, 1);
        }
    }
    if (UCS_PTR_STATUS(fu_send(victim, bufs[0], 8, DATA_TAG)) == UCS_OK) {
        fu_fail("a send to a dead peer was accepted after its error handler");
    }
    for (i = 0; i < WINDOW; ++i) {
        free(bufs[i]);
    }
}

static void survivor_main(kill_mode_t mode, fu_peer_t *victim,
                          fu_peer_t *second)
{
    fu_node_t  node;
    target_t   target;
    ucp_rkey_h rkey;
    char       *buf = malloc(size);

    if (fu_node_open(&node) != UCS_OK) {
        fu_fail("the survivor cannot open its worker");
    }
    if ((fu_connect(&node, victim, ERR_MODE) != UCS_OK) ||
        (fu_connect(&node, second, ERR_MODE) != UCS_OK)) {
        fu_fail("the survivor cannot connect");
    }
    fu_oob_recv(victim, &target, sizeof(target));
    if (ucp_ep_rkey_unpack(victim->ep, target.rkey, &rkey) != UCS_OK) {
        fu_fail("the victim's key cannot be unpacked");
    }

    if (mode == KILL_IDLE) {
        fu_wait(&node, fu_send(victim, buf, 8, DATA_TAG), "first message");
        kill(victim->pid, SIGKILL);
        fu_wait_failure(victim);
    } else {
        run_window(mode, victim, &target, rkey);
    }
    waitpid(victim->pid, NULL, 0);
    ucp_rkey_destroy(rkey);
    fu_disconnect(victim);

    fu_fill(buf, size, 5);
    fu_oob_send(second, "", 1);
    if (fu_wait(&node, fu_send(second, buf, size, SECOND_TAG), "send") !=
        UCS_OK) {
        fu_fail("a send to the second peer failed");
    }
    memset(buf, 0, size);
    if (fu_wait(&node, fu_recv(&node, buf, size, SECOND_TAG), "receive") !=
        UCS_OK) {
        fu_fail("a receive from the second peer failed");
    }
    fu_check("from the second peer", buf, size, 6);
    fu_oob_send(second, "", 1);
    fu_disconnect(second);
    fu_reap(second);
    printf("killed in %s, %zu bytes: %s\n", mode_names[mode], size,
           ucs_status_string(victim->failure));
    fu_node_close(&node);
    free(buf);
}

int main(int argc, char **argv)
{
    fu_peer_t victim, second;
    int       mode = KILL_LAST;

    if (argc == 3) {
        for (mode = 0; mode < KILL_LAST; ++mode) {
            if (strcmp(argv[1], mode_names[mode]) == 0) {
                break;
            }
        }
        size = strtoul(argv[2], NULL, 0);
    }
    if ((mode == KILL_LAST) || (size == 0)) {
        fprintf(stderr,
                "usage: fail_kill receiver|sender|put|get|idle BYTES\n");
        return 2;
    }

    if (fu_fork(&victim) == 0) {
        victim_main(&victim, mode);
    }
    if (fu_fork(&second) == 0) {
        close(victim.oob);
        second_main(&second);
    }
    survivor_main(mode, &victim, &second);
    return 0;
}
