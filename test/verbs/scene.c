/* SPDX-License-Identifier: BSD-3-Clause */
/* The target of the engine's tests, and what it is told. */

#define _GNU_SOURCE
#include "scene.h"

#include "nprdma/mem/arena.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"
#include "nprdma/svc/service.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define PAGE  4096ul

shared_t *shared;
side_t side;
np_key_t *key;
pid_t target_pid;
uint8_t *area;
int is_initiator;

static uint8_t *swap_store;
static uint8_t is_out[SWAPPED / PAGE];
static pthread_mutex_t swap_lock = PTHREAD_MUTEX_INITIALIZER;


/* The first 8 bytes say with what the rest is filled */
void on_am(void *arg, uint8_t id, void *data, unsigned len)
{
    uint64_t seed;

    memcpy(&seed, data, sizeof(seed));
    if (is_initiator) {
        ++shared->returned;
        return;
    }
    if ((id != (uint8_t)(seed % 32)) ||
        !is_right((uint8_t*)data + sizeof(seed), seed, len - sizeof(seed))) {
        ++shared->wrong;
    }
    shared->sum += seed;
    ++shared->received;
}

static int swap_in(void *arg, void *va, size_t len, int write)
{
    size_t i, first = ((uint8_t*)va - area) / PAGE;

    pthread_mutex_lock(&swap_lock);
    for (i = first; i < (first + (len / PAGE)); ++i) {
        if (is_out[i]) {
            mprotect(area + (i * PAGE), PAGE, PROT_READ | PROT_WRITE);
            memcpy(area + (i * PAGE), swap_store + (i * PAGE), PAGE);
            is_out[i] = 0;
        }
    }
    pthread_mutex_unlock(&swap_lock);
    return 0;
}

/* One page after the other loses its frame. Who touches it now has a fault. */
static void *swap_out(void *arg)
{
    unsigned i = 0;

    while (shared->swap) {
        i = (i + 97) % (SWAPPED / PAGE);
        pthread_mutex_lock(&swap_lock);
        if (!is_out[i]) {
            np_mapper_unmap((uintptr_t)area + (i * PAGE), PAGE);
            memcpy(swap_store + (i * PAGE), area + (i * PAGE), PAGE);
            mprotect(area + (i * PAGE), PAGE, PROT_NONE);
            is_out[i] = 1;
            ++shared->swapped;
        }
        pthread_mutex_unlock(&swap_lock);
    }
    return NULL;
}

/* Until shared->swap is 0 again */
static void swap_for_a_while(void)
{
    const np_swapper_t swapper = {.swap_in = swap_in};
    pthread_t thread;

    swap_store = malloc(SWAPPED);
    if ((np_mapper_add_swapper((uintptr_t)area, SWAPPED, &swapper) == UCS_OK) &&
        (pthread_create(&thread, NULL, swap_out, NULL) == 0)) {
        while (shared->swap) {
            np_vport_progress(port);
        }
        pthread_join(thread, NULL);
        swap_in(NULL, area, SWAPPED, 1);
        np_mapper_remove_swapper((uintptr_t)area, SWAPPED);
    }
    free(swap_store);
    shared->swaps = 0;
}

void close_links(np_vlink_t *links)
{
    int i;

    for (i = 0; i < LINKS; ++i) {
        np_ep_close(&links[i].flight);
    }
}

int talk(np_vlink_t *links)
{
    double end = now() + LIMIT;
    int sent[LINKS] = {}, i, left = LINKS;

    for (i = 0; i < LINKS; ++i) {
        np_vlink_init(&links[i], port, &side.dev, &side.port);
    }
    while ((left > 0) && (now() < end) && (down == UCS_OK)) {
        for (i = 0; i < LINKS; ++i) {
            if (!sent[i] && (np_vlink_am_short(&links[i], 1, 1, NULL, 0) ==
                             UCS_OK)) {
                sent[i] = 1;
                --left;
            }
        }
        np_vport_progress(port);
    }
    return left == 0;
}

void skip_numbers(np_conn_t *conn, uint32_t count)
{
    NP_TURN_WAIT(&port->turn);
    conn->tx_seq     += count;
    conn->tx_acked   += count;
    conn->tx_wanted  += count;
    conn->tx_flagged += count;
    conn->rx_seq     += count;
    conn->rx_told    += count;
}

static void skip_all(uint32_t count)
{
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->ready, list) {
        skip_numbers(conn, count);
    }
}

void fail_conn(np_conn_t *conn)
{
    NP_TURN_WAIT(&port->turn);
    np_conn_break(conn);
}

static void fail_all(void)
{
    NP_TURN_WAIT(&port->turn);
    np_conn_t *conn;

    ucs_list_for_each(conn, &port->ready, list) {
        np_conn_break(conn);
    }
}

int target(const np_vport_config_t *config, int fd)
{
    np_vlink_t links[LINKS];
    side_t ours;

    open_port(config, on_am);
    area = make_area(&ours, AREA);
    if (!exchange_sides(fd, &ours, &side)) {
        return 1;
    }
    np_service_start();
    while (!shared->stop) {
        port->config.mischief = shared->mischief;
        if (shared->swap) {
            shared->swaps = 1;
            swap_for_a_while();
        }
        if (shared->connect) {
            shared->connects = 1;
            if (talk(links)) {
                while (shared->connect) {
                    np_vport_progress(port);
                }
            }
            close_links(links);
            shared->connects = 0;
        }
        shared->conns    = kh_size(&port->conns);
        shared->is_quiet = shared->computes && !port->service.is_again &&
                           (port->service.users == 0);
        shared->computes = shared->compute;
        if (!shared->computes) {
            np_vport_progress(port);
        }
        if (shared->skip != 0) {
            skip_all(shared->skip);
            shared->skip = 0;
        }
        if (shared->fail) {
            fail_all();
            shared->fail = 0;
        }
    }
    np_vport_close(port);
    return 0;
}

int has_received(const void *arg)
{
    return shared->received >= *(const uint64_t*)arg;
}

int is_computing(const void *arg)
{
    return shared->computes == *(const int*)arg;
}

int goes_well(ucs_status_t status, const comp_t *comp)
{
    return (status == UCS_OK) ||
           ((status == UCS_INPROGRESS) && wait_until(is_done, comp) &&
            (comp->status == UCS_OK));
}

int flush(void)
{
    comp_t comp = {0, UCS_OK};
    ucs_status_t status;

    POST(status, np_ep_flush(&link_.flight, &comp));
    return goes_well(status, &comp);
}
