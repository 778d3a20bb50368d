/* SPDX-License-Identifier: BSD-3-Clause */
/* The kernel refuses process_vm_* at a moment when transfers are under way that
 * have not needed it yet. */

#include "pair.h"
#include "sandbox.h"
#include "tap.h"

#include "nprdma/start.h"
#include "nprdma/mem/key.h"
#include "nprdma/mem/mapper.h"
#include "nprdma/proto/ep.h"

#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#define REFUSED_PAGE  4096ul

/* So many transfers find their page absent. The first one asks for it; the
 * others wait, and look again before they ask. */
#define REFUSED_COUNT 3
#define REFUSED_LEN   100ul

static np_dir_t refused_dir;
static np_single_copy_t refused_mode;

/* What all of them end with */
static int refused_have_ended(const ucs_status_t *done, ucs_status_t status)
{
    int i;

    for (i = 0; i < REFUSED_COUNT; ++i) {
        if (done[i] != status) {
            return 0;
        }
    }
    return 1;
}

static int refused_child(void)
{
    const int is_get     = refused_dir == NP_DIR_GET;
    const int is_vm_only = refused_mode == NP_SINGLE_COPY_VM;
    ucs_status_t done[REFUSED_COUNT] = {UCS_INPROGRESS, UCS_INPROGRESS,
                                        UCS_INPROGRESS};
    uint8_t *theirs, ours[REFUSED_COUNT * REFUSED_LEN];
    np_packed_key_t packed;
    np_arenas_t arenas;
    np_key_t *key;
    pair_t pair;
    np_iov_t iov;
    unsigned i;

    TAP_CHILD_CHECK(pair_open_child(&pair));
    np_engine.config.single_copy = refused_mode;
    theirs = mmap(NULL, REFUSED_PAGE, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(theirs, is_get ? 0x5a : 0, REFUSED_PAGE);
    memset(ours, is_get ? 0 : 0x5a, sizeof(ours));
    TAP_CHILD_CHECK(np_arenas_share((uintptr_t)theirs, REFUSED_PAGE,
                                    &arenas) == UCS_OK);
    np_key_pack_arenas(&packed, arenas);
    packed.engine_id = ++pair.link.flight.engine_id; /* another process */
    TAP_CHILD_CHECK(np_key_unpack(&packed, &key) == UCS_OK);
    TAP_CHILD_CHECK(np_mapper_fault_in((uintptr_t)ours, sizeof(ours), 1) ==
                    UCS_OK);

    for (i = 0; i < REFUSED_COUNT; ++i) {
        iov = (np_iov_t){ours + (i * REFUSED_LEN), REFUSED_LEN};
        TAP_CHILD_CHECK(np_ep_move(refused_dir, &pair.link.flight, key, &iov,
                                   1, (uintptr_t)theirs + (i * REFUSED_LEN),
                                   &done[i]) == UCS_INPROGRESS);
    }

    if ((sandbox_deny(SYS_process_vm_readv) != 0) ||
        (sandbox_deny(SYS_process_vm_writev) != 0)) {
        return 77;
    }

    for (i = 0; (i < PROGRESS_MAX) && !refused_have_ended(done, UCS_OK); ++i) {
        pair_progress(pair.target);
        pair_progress(pair.initiator);
    }

    if (is_vm_only) { /* what had been asked for needs it no more */
        TAP_CHILD_CHECK((done[0] == UCS_OK) &&
                        (done[REFUSED_COUNT - 1] == UCS_ERR_UNSUPPORTED));
    } else {
        TAP_CHILD_CHECK(refused_have_ended(done, UCS_OK));
        TAP_CHILD_CHECK(memcmp(ours, theirs, sizeof(ours)) == 0);
        TAP_CHILD_CHECK(ours[0] == 0x5a);
    }
    pair_close(&pair);
    return 0;
}

void test_refused_children(void)
{
    static const char *why = "no seccomp filter here";

    refused_mode = NP_SINGLE_COPY_AUTO;
    refused_dir  = NP_DIR_GET;
    tap_child_check(refused_child, "refused meanwhile: gets take another way",
                    why);
    refused_dir  = NP_DIR_PUT;
    tap_child_check(refused_child, "refused meanwhile: puts take another way",
                    why);
    refused_mode = NP_SINGLE_COPY_VM;
    tap_child_check(refused_child, "refused meanwhile: an error if no other "
                    "way is allowed", why);
}
