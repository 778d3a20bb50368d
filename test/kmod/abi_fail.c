/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Each allocation that an ioctl or an attachment makes fails once, which needs
 * a kernel with fault injection: the lab's 6.1-debug. It must be an error, or
 * not matter, and nothing may be left.
 */

#include "kmod_abi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#define FAIL_MOST  1000u
#define FAIL_PAGES 8ul

typedef struct fail {
    int      dev, edu, nth;  /* file descriptors */
    char     *memory;
    int      region;         /* made before, destroyed after each try */
    int      result;         /* of the last try: of a kind of its own */
} fail_t;

typedef struct fail_step {
    const char *name;
    int        (*run)(fail_t *fail); /* -errno, or more */
    void       (*undo)(fail_t *fail);
} fail_step_t;

static int fail_open(fail_t *fail)
{
    return fail->result = kmod_open();
}

static void fail_close(fail_t *fail)
{
    close(fail->result);
}

static int fail_create(fail_t *fail)
{
    return fail->result = kmod_create(fail->dev, fail->memory, KMOD_SLICE, 0);
}

static void fail_destroy(fail_t *fail)
{
    kmod_destroy(fail->dev, fail->result);
}

static int fail_view(fail_t *fail)
{
    return fail->result = kmod_export(fail->dev, fail->region,
                                      NPRDMA_EXPORT_READ);
}

static int fail_table(fail_t *fail)
{
    return fail->result = kmod_export(fail->dev, fail->region,
                                      NPRDMA_EXPORT_TABLE);
}

static int fail_fault(fail_t *fail)
{
    return kmod_fault(fail->dev, fail->region, fail->memory,
                      FAIL_PAGES * KMOD_PAGE, NPRDMA_FAULT_WRITE, NULL);
}

static int fail_range(fail_t *fail, unsigned long request)
{
    return kmod_range(fail->dev, request, fail->region, fail->memory,
                      FAIL_PAGES * KMOD_PAGE, 0);
}

static int fail_prefetch(fail_t *fail)
{
    return fail_range(fail, NPRDMA_IOC_PREFETCH);
}

static int fail_swap_out(fail_t *fail)
{
    return fail_range(fail, NPRDMA_IOC_SWAP_OUT);
}

static int fail_swap_in(fail_t *fail)
{
    return fail_range(fail, NPRDMA_IOC_SWAP_IN);
}

/* Its file is made before anything fails */
static int fail_attach(fail_t *fail)
{
    struct edu_attach attach = {.fd = fail->result};
    int ret                  = abi_call(fail->edu, EDU_IOC_ATTACH, &attach);

    close(attach.fd);
    fail->result = attach.slot;
    return ret;
}

static void fail_detach(fail_t *fail)
{
    ioctl(fail->edu, EDU_IOC_DETACH, fail->result);
}

static const fail_step_t fail_steps[] = {
    {"open", fail_open, fail_close},
    {"REGION_CREATE", fail_create, fail_destroy},
    {"REGION_EXPORT of a view", fail_view, fail_close},
    {"REGION_EXPORT of a table", fail_table, fail_close},
    {"FAULT", fail_fault, NULL},
    {"PREFETCH", fail_prefetch, NULL},
    {"SWAP_OUT", fail_swap_out, NULL},
    {"SWAP_IN", fail_swap_in, NULL},
    {"attaching a view", fail_attach, fail_detach}
};

/* The nth allocation of this thread from here on fails; 0: none */
static void fail_set(fail_t *fail, unsigned nth)
{
    char text[16];
    int len = snprintf(text, sizeof(text), "%u", nth);

    if (pwrite(fail->nth, text, len, 0) != len) {
        kmod_bail("fail-nth");
    }
}

static unsigned fail_left(fail_t *fail)
{
    char text[16] = "";

    if (pread(fail->nth, text, sizeof(text) - 1, 0) <= 0) {
        kmod_bail("fail-nth");
    }
    return atoi(text);
}

/* What is done in the background ends by itself */
static int fail_nothing_left(fail_t *fail)
{
    struct nprdma_kernel_counters counters;
    unsigned tries;

    for (tries = 0; tries < 1000; ++tries) {
        counters = kmod_counters(fail->dev);
        if (counters.kernel_bytes == 0) {
            break;
        }
        usleep(10000);
    }
    return (counters.regions == 0) && (counters.attached == 0) &&
           (counters.kernel_bytes == 0) &&
           (counters.gaps == 0) && (counters.mapped == counters.unmapped);
}

/* One try; 1: it was not reached, 0: it was, -1: it was not as it should be */
static int fail_try(fail_t *fail, const fail_step_t *step, unsigned nth)
{
    unsigned left;
    int ret;

    madvise(fail->memory, KMOD_SLICE, MADV_DONTNEED);
    fail->region = kmod_create(fail->dev, fail->memory, KMOD_SLICE, 0);
    if (step->run == fail_attach) {
        kmod_fault(fail->dev, fail->region, fail->memory, KMOD_SLICE / 2, 0,
                   NULL);
        fail->result = kmod_export(fail->dev, fail->region,
                                   NPRDMA_EXPORT_READ);
    }
    fail_set(fail, nth);
    ret  = step->run(fail);
    left = fail_left(fail);
    fail_set(fail, 0);
    if ((ret >= 0) && (step->undo != NULL)) {
        step->undo(fail);
    }
    kmod_destroy(fail->dev, fail->region);
    if (!fail_nothing_left(fail)) {
        printf("# %s: allocation %u leaves something\n", step->name, nth);
        return -1;
    }
    if ((ret < 0) && ((left != 0) || ((ret != -ENOMEM) && (ret != -EFAULT)))) {
        printf("# %s: allocation %u: %s\n", step->name, nth, strerror(-ret));
        return -1;
    }
    return left != 0;
}

static void fail_step(fail_t *fail, const fail_step_t *step)
{
    unsigned nth = 0;
    int ret      = 0;

    while ((ret == 0) && (nth < FAIL_MOST)) {
        ret = fail_try(fail, step, ++nth);
    }
    TAP_CHECK((ret > 0) && (nth > 1),
              "%s: each of %u allocations may fail", step->name, nth - 1);
}

void abi_fail(int dev, int edu, char *memory)
{
    fail_t fail = {
        .dev    = dev,
        .edu    = edu,
        .memory = memory,
        .nth    = open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC)
    };
    unsigned i;

    if (fail.nth < 0) {
        printf("# this kernel cannot make allocations fail\n");
        return;
    }
    for (i = 0; i < sizeof(fail_steps) / sizeof(fail_steps[0]); ++i) {
        if ((edu >= 0) || (fail_steps[i].run != fail_attach)) {
            fail_step(&fail, &fail_steps[i]);
        }
    }
    close(fail.nth);
}
