/* SPDX-License-Identifier: BSD-3-Clause */
/* Tests of the engine's parts, without UCX's transport layer above them. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/start.h"

#include <errno.h>
#include <sys/uio.h>

unsigned tap_count, tap_failures;

void tap_vm_check(int (*function)(void), const char *what)
{
    char byte = 0;
    const struct iovec iov = {&byte, sizeof(byte)};

    if ((process_vm_readv(getpid(), &iov, 1, &iov, 1, 0) < 0) &&
        (errno == ENOSYS)) {
        printf("ok %u - %s # SKIP no process_vm_readv here\n", ++tap_count,
               what);
    } else {
        TAP_CHECK(tap_child(function), "%s", what);
    }
}

int main(void)
{
    const np_engine_config_t config = {
        .share_min   = 256 * 1024,
        .share_chunk = 128 * 1024,
        .prepare     = NP_PREPARE_MODE_BOTH,
        .prepare_min = 8192,
        .prepare_max = 1 << 20
    };
    np_engine_config_t other = config;

    setvbuf(stdout, NULL, _IOLBF, 0);
    test_table_children();
    test_populate_children();
    test_service_children();
    test_crowded_children();
    test_foreign_children();
    test_discard_children();
    test_process_children();
    test_barrier_children();
    test_drain_children();
    test_helped_children();
    test_lent_children();
    test_lent_put_children();
    test_lent_move_children();
    test_refused_children();
    test_stranger_children();

    TAP_CHECK(np_engine_init(&config) == UCS_OK, "the engine starts");
    TAP_CHECK(np_engine_init(&config) == UCS_OK, "the same settings again");
    other.share_min = 1;
    TAP_CHECK(np_engine_init(&other) == UCS_ERR_INVALID_PARAM,
              "other settings are refused");

    test_prepare();
    test_signature();
    test_overlap();
    test_table();
    test_model();
    test_mapper();
    test_mapper_race();
    test_mapper_swarm();
    test_mem();
    test_stage();
    test_tlb();
    test_touch();
    test_yield();
    test_ring();
    test_room();
    test_fill();
    test_link();
    test_hostile();
    test_chunks();
    test_stranger();

    printf("1..%u\n", tap_count);
    return tap_failures != 0;
}
