/* SPDX-License-Identifier: BSD-3-Clause */
/* How long a cache line takes from one CPU to another: a virtual machine's may
 * be moved to cores that are far from each other, and everything that two ranks
 * share takes times as long then, whatever moves it. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define LINE_BATCHES 5
#define LINE_TURNS   2000u

/* Counts up: odd by the first CPU, even by the second */
static _Alignas(128) _Atomic uint32_t line_turn;

/* 0, or what went wrong on the other CPU */
static _Atomic int line_error;


static int line_pin(int cpu)
{
    cpu_set_t set;

    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    return pthread_setaffinity_np(pthread_self(), sizeof(set), &set);
}

static double line_ns(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (now.tv_sec * 1e9) + now.tv_nsec;
}

/* Wait for the other CPU. Returns 0 if it has given up. */
static int line_wait(uint32_t turn)
{
    while (atomic_load_explicit(&line_turn, memory_order_acquire) != turn) {
        if (atomic_load_explicit(&line_error, memory_order_relaxed) != 0) {
            return 0;
        }
    }
    return 1;
}

static void *line_answer(void *arg)
{
    const int *cpu = arg;
    const int ret  = line_pin(*cpu);
    uint32_t i;

    if (ret != 0) {
        atomic_store(&line_error, ret);
        return NULL;
    }

    for (i = 0; i < (LINE_BATCHES * LINE_TURNS); ++i) {
        line_wait((2 * i) + 1);
        atomic_store_explicit(&line_turn, (2 * i) + 2, memory_order_release);
    }
    return NULL;
}

/* The least of some batches, one way, or -1: line_error says why */
static double line_measure(void)
{
    double least = -1, begin, one;
    uint32_t turn = 0;
    int batch;

    for (batch = 0; batch < LINE_BATCHES; ++batch) {
        begin = line_ns();
        do {
            atomic_store_explicit(&line_turn, turn + 1, memory_order_release);
            turn += 2;
            if (!line_wait(turn)) {
                return -1;
            }
        } while ((turn % (2 * LINE_TURNS)) != 0);
        one   = (line_ns() - begin) / (2 * LINE_TURNS);
        least = ((least < 0) || (one < least)) ? one : least;
    }
    return least;
}

static void line_die(const char *what, int error)
{
    fprintf(stderr, "line: %s: %s\n", what, strerror(error));
    exit(1);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    int cpus[2], ret;
    double least;

    if ((argc != 2) ||
        (sscanf(argv[1], "%d,%d", &cpus[0], &cpus[1]) != 2)) {
        fprintf(stderr, "usage: line CPU,CPU\n"
                "Prints how many ns a cache line takes from one to the "
                "other.\n");
        return 1;
    }

    if ((cpus[0] == cpus[1]) || (cpus[0] < 0) || (cpus[1] < 0) ||
        (cpus[0] >= CPU_SETSIZE) || (cpus[1] >= CPU_SETSIZE)) {
        line_die("two CPUs", EINVAL);
    }

    ret = line_pin(cpus[0]);
    if (ret != 0) {
        line_die("the first CPU", ret);
    }

    ret = pthread_create(&thread, NULL, line_answer, &cpus[1]);
    if (ret != 0) {
        line_die("a thread", ret);
    }

    least = line_measure();
    pthread_join(thread, NULL);
    if (least < 0) {
        line_die("the second CPU", line_error);
    }

    printf("%.1f\n", least);
    return 0;
}
