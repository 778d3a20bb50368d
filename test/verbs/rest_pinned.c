/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What one process has pinned when it is at rest: before it opened UCP, with a
 * worker, with so many peers, and after transfers with each. Its child has a
 * worker for each of them. Prints the figures in KiB.
 */
#define _GNU_SOURCE
#include "../failure/fail_ucp.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define SIZE  (4ul << 20)
#define TAG   1

static long pinned_kib(void)
{
    FILE *file = fopen("/proc/self/status", "r");
    long kib   = -1;
    char line[256];

    while ((file != NULL) && (fgets(line, sizeof(line), file) != NULL)) {
        sscanf(line, "VmPin: %ld kB", &kib);
    }
    if (kib < 0) {
        fu_fail("/proc/self/status has no VmPin");
    }
    fclose(file);
    return kib;
}

static void require(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fu_fail("%s: %s", what, ucs_status_string(status));
    }
}

static void give(fu_node_t *node, fu_peer_t *peer, uint8_t *data, int number)
{
    fu_fill(data, SIZE, number);
    require(fu_wait(node, fu_send(peer, data, SIZE, TAG), "send"), "send");
}

static void take(fu_node_t *node, uint8_t *data, int number)
{
    memset(data, 0, SIZE);
    require(fu_wait(node, fu_recv(node, data, SIZE, TAG), "receive"),
            "receive");
    fu_check("a message", data, SIZE, number);
}

static void child_main(fu_peer_t *parent, int count)
{
    fu_node_t *nodes = calloc(count, sizeof(*nodes));
    fu_peer_t *peers = calloc(count, sizeof(*peers));
    uint8_t   *data  = malloc(SIZE);
    int       i;

    for (i = 0; i < count; ++i) {
        peers[i] = *parent;
        require(fu_node_open(&nodes[i]), "a worker of the child");
        require(fu_connect(&nodes[i], &peers[i], UCP_ERR_HANDLING_MODE_NONE),
                "an endpoint of the child");
    }
    for (i = 0; i < count; ++i) {
        take(&nodes[i], data, i);
        give(&nodes[i], &peers[i], data, count + i);
    }
    fu_oob_recv(parent, data, 1);
    _exit(0);
}

int main(int argc, char **argv)
{
    int       count = (argc == 2) ? atoi(argv[1]) : 0;
    long      kib[4];
    fu_peer_t child, *peers;
    fu_node_t node;
    uint8_t   *data;
    double    end;
    int       i;

    if (count <= 0) {
        fprintf(stderr, "usage: rest_pinned PEERS\n");
        return 2;
    }
    if (getenv("NPRDMA_TEST_SECONDS") != NULL) {
        fu_wait_seconds = atoi(getenv("NPRDMA_TEST_SECONDS"));
    }
    if (fu_fork(&child) == 0) {
        child_main(&child, count);
    }
    data   = malloc(SIZE);
    kib[0] = pinned_kib();
    require(fu_node_open(&node), "a worker");
    kib[1] = pinned_kib();
    peers  = calloc(count, sizeof(*peers));
    for (i = 0; i < count; ++i) {
        peers[i] = child;
        require(fu_connect(&node, &peers[i], UCP_ERR_HANDLING_MODE_NONE),
                "an endpoint");
    }
    kib[2] = pinned_kib();
    for (i = 0; i < count; ++i) {
        give(&node, &peers[i], data, i);
        take(&node, data, count + i);
    }
    end = fu_now() + fu_wait_seconds;
    do { /* what is given back later */
        ucp_worker_progress(node.worker);
        kib[3] = pinned_kib();
    } while ((kib[3] != kib[1]) && (fu_now() < end));
    printf("%d peers: %ld KiB pinned before, %ld with a worker, %ld with "
           "endpoints, %ld after transfers of %lu MiB\n", count, kib[0],
           kib[1], kib[2], kib[3], (count * SIZE * 2) >> 20);
    if ((kib[3] != kib[1]) || (kib[2] != kib[1])) {
        fu_fail("peers or transfers have pinned memory");
    }
    fu_oob_send(&child, "", 1);
    fu_reap(&child);
    return 0;
}
