/* SPDX-License-Identifier: BSD-3-Clause */
/* TAP for the tests of the engine's parts. */

#ifndef NPRDMA_TEST_TAP_H_
#define NPRDMA_TEST_TAP_H_

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* Of the whole program; only its main thread tests */
extern unsigned tap_count, tap_failures;

#define TAP_CHECK(_condition, ...) \
    do { \
        int _ok = !!(_condition); \
        \
        ++tap_count; \
        tap_failures += !_ok; \
        printf("%sok %u - ", _ok ? "" : "not ", tap_count); \
        printf(__VA_ARGS__); \
        printf("\n"); \
        if (!_ok) { \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #_condition); \
        } \
    } while (0)

/* In a child's function: the first failure ends it */
#define TAP_CHILD_CHECK(_condition) \
    do { \
        if (!(_condition)) { \
            printf("# %s:%d: %s\n", __FILE__, __LINE__, #_condition); \
            return 1; \
        } \
    } while (0)

/* Runs a function in a child; returns how that has ended, as waitpid(2), or
 * -1 */
static inline int tap_child_status(int (*function)(void))
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        status = function();
        fflush(stdout);
        _exit(status);
    }

    return ((pid > 0) && (waitpid(pid, &status, 0) == pid)) ? status : -1;
}

/* And whether it returned 0 there */
static inline int tap_child(int (*function)(void))
{
    return tap_child_status(function) == 0;
}

/* The same as a check, which is skipped for a reason if the child returns 77 */
static inline void
tap_child_check(int (*function)(void), const char *what, const char *reason)
{
    const int status = tap_child_status(function);

    if (WIFEXITED(status) && (WEXITSTATUS(status) == 77)) {
        printf("ok %u - %s # SKIP %s\n", ++tap_count, what, reason);
    } else {
        TAP_CHECK(status == 0, "%s", what);
    }
}

/* The same where the kernel moves data between processes: an emulator of
 * another processor's programs has no such call (qemu-user) */
void tap_vm_check(int (*function)(void), const char *what);

/* What a process can do but once, in children: before it is done here */
void test_table_children(void);
void test_populate_children(void);
void test_crowded_children(void);
void test_service_children(void);
void test_foreign_children(void);
void test_discard_children(void);
void test_process_children(void);
void test_barrier_children(void);
void test_drain_children(void);
void test_helped_children(void);
void test_lent_children(void);
void test_lent_put_children(void);
void test_lent_move_children(void);
void test_refused_children(void);
void test_stranger_children(void);

/* Before anything makes a directory */
void test_prepare(void);

void test_table(void);
void test_mapper(void);
void test_mapper_race(void);
void test_mapper_swarm(void);
void test_signature(void);
void test_overlap(void);
void test_model(void);
void test_chunks(void);
void test_mem(void);
void test_stage(void);
void test_tlb(void);
void test_touch(void);
void test_yield(void);
void test_ring(void);
void test_room(void);
void test_fill(void);
void test_link(void);
void test_hostile(void);
void test_stranger(void);
void test_hostile_share(void);

#endif
