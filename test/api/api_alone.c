/* SPDX-License-Identifier: BSD-3-Clause */
/* libnprdma in a process without an engine: every call has its documented
 * answer, and nothing of UCX is loaded for it. */
#include "api_check.h"

#include <nprdma/nprdma.h>
#include <nprdma/nprdma_file.h>
#include <nprdma/nprdma_uapi.h> /* both fit into one program */

#include <dlfcn.h>
#include <errno.h>

static char memory[3 * 4096];


static int swap_in(void *arg, void *va, size_t len, int write)
{
    (void)arg;
    (void)va;
    (void)len;
    (void)write;
    return 0;
}

/* Those that give the same answer whatever is wrong with the engine */
static void expect(int error)
{
    const nprdma_swapper_t swapper = {.swap_in = swap_in};
    unsigned major = 77, minor = 77, patch = 77;
    nprdma_file_t *file = (nprdma_file_t*)memory;
    char text[64];

    API_EQ(nprdma_version(&major, &minor, &patch), error);
    snprintf(text, sizeof(text), "%u.%u.%u", major, minor, patch);
    API_TRUE(strcmp(text, NPRDMA_VERSION) == 0);
    API_EQ(nprdma_version(NULL, NULL, NULL), error);
    API_EQ(nprdma_register_swapper(memory, sizeof(memory), &swapper), error);
    API_EQ(nprdma_unregister_swapper(memory, sizeof(memory)), error);
    API_EQ(nprdma_prefetch(memory, sizeof(memory), 0), error);
    API_EQ(nprdma_scan(memory, sizeof(memory)), error);
    API_EQ(nprdma_set_order(NPRDMA_ORDER_AFTER), error);
    API_EQ(nprdma_get_order(), 0);
    API_EQ(nprdma_set_hint(NPRDMA_HINT_HOT), error);
    API_EQ(nprdma_get_hint(), 0);
    API_EQ(nprdma_file_create(4096, &file), error);
    API_TRUE(file == NULL);
}

static void expect_counters(int error)
{
    struct {
        nprdma_counters_t known;
        uint64_t          later;
        uint64_t          guard;
    } counters;

    memset(&counters, 0xff, sizeof(counters));
    API_EQ(nprdma_get_counters(&counters.known,
                               offsetof(__typeof__(counters), guard)), error);
    API_EQ(counters.known.reads, 0);
    API_EQ(counters.known.tlb_misses, 0);
    API_EQ(counters.later, 0);
    API_EQ(counters.guard, -1);

    API_EQ(nprdma_get_counters(NULL, sizeof(counters.known)), -EINVAL);
    API_EQ(nprdma_get_counters(&counters.known, 0), -EINVAL);
    API_EQ(nprdma_get_counters(&counters.known, 12), -EINVAL);
}

static void none(void)
{
    int i;

    /* again: the second look takes another way */
    for (i = 0; i < 2; ++i) {
        API_EQ(nprdma_notify_swap_out(memory, sizeof(memory)), 0);
        API_EQ(nprdma_notify_swap_in(memory, sizeof(memory)), 0);
        expect(-ENOTCONN);
        expect_counters(-ENOTCONN);
    }

    API_TRUE(dlopen("libucs.so.0", RTLD_NOLOAD | RTLD_LAZY) == NULL);
}

/* Run with a plug-in that has no table, or another one */
static void other(void)
{
    API_EQ(nprdma_notify_swap_out(memory, sizeof(memory)), -EPROTO);
    API_EQ(nprdma_notify_swap_in(memory, sizeof(memory)), -EPROTO);
    expect(-EPROTO);
    expect_counters(-EPROTO);
}

static const api_case_t cases[] = {
    {"none", none},
    {"other", other}
};

API_MAIN(cases)
