/* SPDX-License-Identifier: BSD-3-Clause */
/* A target that helps with a copy, and hangs up in the middle of a chunk: the
 * copy ends when nobody writes into its buffer any more, and not before. Each
 * case is a child with a clock. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "pair.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/pause.h"
#include "nprdma/dev/soft/claim.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/mem/table.h"
#include "nprdma/proto/ep.h"
#include "nprdma/proto/soft/sop.h"
#include "nprdma/proto/soft/rma.h"

#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#define HELPED_SIZE     (8 * UCS_MBYTE)
#define HELPED_CHUNK    UCS_MBYTE
#define HELPED_HIS      0x5a
#define HELPED_AFTER    0x77

/* s; a case takes a tenth of one */
#define HELPED_PATIENCE 60

/* ms that the helper leaves to an initiator that does not wait for it. Shorter
 * than what one that does wait has patience for. */
#define HELPED_WAIT     100

/* What the helper says of itself before it helps */
typedef struct helped_hello {
    np_port_addr_t  addr;
    np_packed_key_t key;
    uint64_t        va;
} helped_hello_t;

static np_port_t *helped_port;
static int helped_sock;      /* of the helper, to the initiator */
static int helped_is_killed; /* the helper dies in the middle of its chunk */
static int helped_is_paused; /* it has been there */


static int helped_start_engine(void)
{
    const np_engine_config_t config = {
        .share_min   = UCS_MBYTE,
        .share_chunk = HELPED_CHUNK
    };

    alarm(HELPED_PATIENCE);
    return np_engine_init(&config) == UCS_OK;
}

static int helped_tell(int sock)
{
    return write(sock, "", 1) == 1;
}

static int helped_hear(int sock)
{
    char byte;

    return read(sock, &byte, 1) == 1;
}

/* In the middle of the helper's first chunk, none of which has arrived. It
 * hangs up, and goes on when the initiator has the end of its copy, or cannot
 * have it. */
static void helped_pause(np_pause_point_t point)
{
    np_peer_t *peer = helped_port->peers[0];
    struct pollfd pfd = {.fd = helped_sock, .events = POLLIN};
    np_share_t *share;

    if ((point != NP_PAUSE_UNIT_IN_FLIGHT) || helped_is_paused) {
        return;
    }

    helped_is_paused = 1;
    share            = &peer->shm->shares[0];
    if (!helped_tell(helped_sock)) {
        _exit(1);
    }

    shutdown(peer->fd, SHUT_RDWR);
    while (!np_claim_is_over(share, share->args.chunks,
                             np_claim_generation(atomic_load(&share->claim)))) {
    }
    if (helped_is_killed) {
        raise(SIGKILL);
    }
    poll(&pfd, 1, HELPED_WAIT);
}

/* The helper: it helps when it is told to, and says when it has come to an
 * end */
static void helped_serve(int sock)
{
    helped_hello_t hello;
    np_arenas_t arenas;
    uint8_t *his;

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    helped_sock = sock;
    his         = mmap(NULL, HELPED_SIZE, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(his, HELPED_HIS, HELPED_SIZE);
    if (!helped_start_engine() ||
        (np_arenas_share((uintptr_t)his, HELPED_SIZE, &arenas) != UCS_OK) ||
        (np_mapper_fault_in((uintptr_t)his, HELPED_SIZE, 0) != UCS_OK)) {
        _exit(1);
    }

    helped_port = pair_port();
    np_port_get_addr(helped_port, &hello.addr);
    np_key_pack_arenas(&hello.key, arenas);
    hello.va = (uintptr_t)his;
    if (write(sock, &hello, sizeof(hello)) != sizeof(hello)) {
        _exit(1);
    }

    while (pair_received == 0) {
        pair_progress(helped_port);
        np_port_housekeep(helped_port);
    }

    np_pause_hook = helped_pause;
    if (!helped_hear(sock)) {
        _exit(1);
    }
    while (!helped_is_paused) {
        pair_progress(helped_port);
    }
    _exit(!helped_hear(sock) || !helped_tell(sock));
}

/* The helper is in the middle of a chunk of a get into @a ours, and the link is
 * up */
static int helped_begin(np_link_t *link, int sock, uint8_t *ours,
                        ucs_status_t *done)
{
    np_iov_t iov = {ours, HELPED_SIZE};
    helped_hello_t hello;
    np_key_t *key;

    TAP_CHILD_CHECK(read(sock, &hello, sizeof(hello)) == sizeof(hello));
    TAP_CHILD_CHECK(helped_start_engine());
    TAP_CHILD_CHECK(np_key_unpack(&hello.key, &key) == UCS_OK);
    helped_port = pair_port();
    np_link_init(link, helped_port, &hello.addr);
    pair_send(link);
    while (link->target == NULL) {
        pair_progress(helped_port);
        np_port_housekeep(helped_port);
    }

    /* all is there, so that nothing is asked for */
    TAP_CHILD_CHECK(np_mapper_fault_in((uintptr_t)ours, HELPED_SIZE, 1) ==
                    UCS_OK);
    *done = UCS_INPROGRESS;
    TAP_CHILD_CHECK(np_ep_move(NP_DIR_GET, &link->flight, key, &iov, 1,
                               hello.va, done) == UCS_INPROGRESS);
    TAP_CHILD_CHECK(ucs_list_is_empty(&link->asks));
    link->shm->shares[0].args.cpu = -1; /* it helps, wherever we run */
    TAP_CHILD_CHECK(helped_tell(sock) && helped_hear(sock));
    np_key_release(key);
    return 0;
}

/* @a is_paged: the helper goes by our views, as where a program pages */
static int helped_child(int is_paged, int is_killed)
{
    ucs_status_t done;
    np_link_t link;
    int sock[2], status;
    uint8_t *ours;
    unsigned i;
    pid_t pid;

    helped_is_killed = is_killed;
    TAP_CHILD_CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, sock) == 0);
    ours = mmap(NULL, HELPED_SIZE, PROT_READ | PROT_WRITE,
                MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    pid  = fork();
    if (pid == 0) {
        close(sock[0]);
        helped_serve(sock[1]);
    }

    close(sock[1]);
    if (is_paged) {
        np_mapper_set_paged(1);
    }
    TAP_CHILD_CHECK(helped_begin(&link, sock[0], ours, &done) == 0);
    TAP_CHILD_CHECK(link.shm->shares[0].args.is_open == !is_paged);
    while (done == UCS_INPROGRESS) {
        pair_progress(helped_port);
        np_port_housekeep(helped_port);
    }
    TAP_CHILD_CHECK(done != UCS_OK);
    TAP_CHILD_CHECK(!atomic_load(&link.drain.is_over)); /* nor given up */

    /* the buffer is the program's again */
    memset(ours, HELPED_AFTER, HELPED_SIZE);
    if (!is_killed) {
        TAP_CHILD_CHECK(helped_tell(sock[0]) && helped_hear(sock[0]));
    }
    TAP_CHILD_CHECK((waitpid(pid, &status, 0) == pid) &&
                    (is_killed ? WIFSIGNALED(status) : (status == 0)));
    for (i = 0; (i < HELPED_SIZE) && (ours[i] == HELPED_AFTER); ++i) {
    }
    TAP_CHILD_CHECK(i == HELPED_SIZE);
    np_ep_close(&link.flight);
    np_proto_close(helped_port);
    return 0;
}

static int helped_child_open(void)
{
    return helped_child(0, 0);
}

static int helped_child_paged(void)
{
    return helped_child(1, 0);
}

static int helped_child_killed(void)
{
    return helped_child(0, 1);
}

void test_helped_children(void)
{
    tap_vm_check(helped_child_open,
              "helped: after a hang-up a copy ends with its helper's chunk");
    tap_vm_check(helped_child_paged,
              "helped: and where the helper goes by our views");
    tap_vm_check(helped_child_killed,
              "helped: or with the helper");
}
