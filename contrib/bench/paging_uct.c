/* SPDX-License-Identifier: BSD-3-Clause */
/* The paging benchmark's transfers, through the public UCT API. */
#include "paging.h"

#include <ucs/async/async_fwd.h>

#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define PAGING_WINDOW    64

static void paging_check(ucs_status_t status, const char *name,
                         const char *what)
{
    if (status != UCS_OK) {
        bench_die("%s: %s: %s", name, what, ucs_status_string(status));
    }
}

paging_shared_t *paging_share(void)
{
    paging_shared_t *shared;

    shared = mmap(NULL, sizeof(*shared), PROT_READ | PROT_WRITE,
                  MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) {
        bench_die("no memory to meet in: %m");
    }
    return shared;
}

static void paging_md_open(paging_tl_t *tl)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    uct_component_h *components;
    uct_md_config_t *config;
    unsigned num, i;

    paging_check(uct_query_components(&components, &num), tl->name,
                 "uct_query_components");
    for (i = 0; i < num; ++i) {
        paging_check(uct_component_query(components[i], &attr), tl->name,
                     "uct_component_query");
        if (strcmp(attr.name, tl->name) == 0) {
            tl->component = components[i];
        }
    }
    uct_release_component_list(components);
    if (tl->component == NULL) {
        bench_die("UCX knows no component '%s': run it with nprdma-run, and "
                  "see ucx_info -d", tl->name);
    }

    paging_check(uct_md_config_read(tl->component, NULL, NULL, &config),
                 tl->name, "uct_md_config_read");
    paging_check(uct_md_open(tl->component, tl->name, config, &tl->md),
                 tl->name, "uct_md_open");
    uct_config_release(config);
    paging_check(uct_md_query(tl->md, &tl->md_attr), tl->name,
                 "uct_md_query");
}

static void paging_iface_open(paging_tl_t *tl, ucs_async_context_t *async)
{
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                      UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE
    };
    uct_tl_resource_desc_t *resources;
    uct_iface_config_t *config;
    unsigned num;

    paging_check(uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &tl->worker),
                 tl->name, "uct_worker_create");
    paging_check(uct_md_query_tl_resources(tl->md, &resources, &num),
                 tl->name, "uct_md_query_tl_resources");
    if (num == 0) {
        bench_die("%s has no device here", tl->name);
    }

    params.mode.device.tl_name  = resources[0].tl_name;
    params.mode.device.dev_name = resources[0].dev_name;
    paging_check(uct_md_iface_config_read(tl->md, resources[0].tl_name, NULL,
                                          NULL, &config), tl->name,
                 "uct_md_iface_config_read");
    paging_check(uct_iface_open(tl->md, tl->worker, &params, config,
                                &tl->iface), tl->name, "uct_iface_open");
    uct_config_release(config);
    uct_release_tl_resource_list(resources);
    paging_check(uct_iface_query(tl->iface, &tl->attr), tl->name,
                 "uct_iface_query");
    uct_iface_progress_enable(tl->iface,
                              UCT_PROGRESS_SEND | UCT_PROGRESS_RECV);
}

void paging_tl_open(paging_tl_t *tl, const char *name, bench_rank_t *rank,
                    paging_shared_t *shared, void *local, size_t len)
{
    static ucs_async_context_t *async;
    uct_ep_params_t params = {
        .field_mask = UCT_EP_PARAM_FIELD_IFACE |
                      UCT_EP_PARAM_FIELD_DEV_ADDR |
                      UCT_EP_PARAM_FIELD_IFACE_ADDR
    };
    char *mine = shared->blobs[rank->rank], *peer = shared->blobs[!rank->rank];

    memset(tl, 0, sizeof(*tl));
    tl->name  = name;
    tl->local = local;
    if (async == NULL) {
        paging_check(ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK,
                                              &async), name,
                     "ucs_async_context_create");
    }

    paging_md_open(tl);
    paging_iface_open(tl, async);
    if ((tl->attr.device_addr_len + tl->attr.iface_addr_len) > PAGING_BLOB) {
        bench_die("%s: addresses of more than %d bytes", name, PAGING_BLOB);
    }
    if (tl->md_attr.cap.flags & UCT_MD_FLAG_REG) {
        paging_check(uct_md_mem_reg(tl->md, local, len, UCT_MD_MEM_ACCESS_RMA,
                                    &tl->local_memh), name, "uct_md_mem_reg");
    }

    paging_check(uct_iface_get_device_address(tl->iface,
                                              (uct_device_addr_t*)mine), name,
                 "uct_iface_get_device_address");
    paging_check(uct_iface_get_address(tl->iface, (uct_iface_addr_t*)
                                       (mine + tl->attr.device_addr_len)),
                 name, "uct_iface_get_address");
    bench_barrier(rank);

    params.iface      = tl->iface;
    params.dev_addr   = (uct_device_addr_t*)peer;
    params.iface_addr = (uct_iface_addr_t*)(peer + tl->attr.device_addr_len);
    if (!uct_iface_is_reachable(tl->iface, params.dev_addr,
                                params.iface_addr)) {
        bench_die("%s does not reach the other rank", name);
    }
    paging_check(uct_ep_create(&params, &tl->ep), name, "uct_ep_create");
    bench_barrier(rank);
}

static void paging_flush(paging_tl_t *tl)
{
    ucs_status_t status;

    while (((status = uct_ep_flush(tl->ep, 0, NULL)) == UCS_INPROGRESS) ||
           (status == UCS_ERR_NO_RESOURCE)) {
        uct_worker_progress(tl->worker);
    }
    paging_check(status, tl->name, "uct_ep_flush");
}

void paging_tl_close(paging_tl_t *tl, bench_rank_t *rank)
{
    paging_flush(tl);
    bench_barrier(rank);
    uct_ep_destroy(tl->ep);
    bench_barrier(rank);
    uct_iface_close(tl->iface);
    uct_worker_destroy(tl->worker);
    if (tl->md_attr.cap.flags & UCT_MD_FLAG_REG) {
        uct_md_mem_dereg(tl->md, tl->local_memh);
    }
    uct_md_close(tl->md);
    bench_barrier(rank);
}

static void paging_mem_expose(paging_mem_t *mem, paging_tl_t *tl,
                              paging_shared_t *shared, void *ptr)
{
    uct_alloc_method_t method     = UCT_ALLOC_METHOD_MD;
    uct_mem_alloc_params_t params = {
        .field_mask = UCT_MEM_ALLOC_PARAM_FIELD_FLAGS |
                      UCT_MEM_ALLOC_PARAM_FIELD_MDS |
                      UCT_MEM_ALLOC_PARAM_FIELD_MEM_TYPE |
                      UCT_MEM_ALLOC_PARAM_FIELD_NAME,
        .flags      = UCT_MD_MEM_ACCESS_RMA,
        .mem_type   = UCS_MEMORY_TYPE_HOST,
        .mds        = {.mds = &tl->md, .count = 1},
        .name       = "paging"
    };

    if (ptr == NULL) {
        paging_check(uct_mem_alloc(mem->len, &method, 1, &params, &mem->alloc),
                     tl->name, "uct_mem_alloc");
        mem->ptr  = mem->alloc.address;
        mem->memh = mem->alloc.memh;
    } else {
        mem->ptr = ptr;
        paging_check(uct_md_mem_reg(tl->md, ptr, mem->len,
                                    UCT_MD_MEM_ACCESS_RMA, &mem->memh),
                     tl->name, "uct_md_mem_reg");
    }

    if (tl->md_attr.rkey_packed_size > PAGING_BLOB) {
        bench_die("%s: a key of more than %d bytes", tl->name, PAGING_BLOB);
    }
    paging_check(uct_md_mkey_pack(tl->md, mem->memh, shared->blobs[0]),
                 tl->name, "uct_md_mkey_pack");
    shared->address = (uintptr_t)mem->ptr;
}

void paging_mem_open(paging_mem_t *mem, paging_tl_t *tl, bench_rank_t *rank,
                     paging_shared_t *shared, void *ptr, size_t len)
{
    memset(mem, 0, sizeof(*mem));
    mem->len       = len;
    mem->is_direct = ptr == NULL;
    bench_barrier(rank);
    if (rank->rank == PAGING_TARGET) {
        paging_mem_expose(mem, tl, shared, ptr);
    }
    bench_barrier(rank);
    mem->address = shared->address;
    if (rank->rank == PAGING_INITIATOR) {
        paging_check(uct_rkey_unpack(tl->component, shared->blobs[0],
                                     &mem->key), tl->name, "uct_rkey_unpack");
    }
    bench_barrier(rank);
}

void paging_mem_close(paging_mem_t *mem, paging_tl_t *tl, bench_rank_t *rank)
{
    bench_barrier(rank);
    if (rank->rank == PAGING_INITIATOR) {
        uct_rkey_release(tl->component, &mem->key);
    }
    bench_barrier(rank);
    if (rank->rank == PAGING_TARGET) {
        if (mem->is_direct) {
            uct_mem_free(&mem->alloc);
        } else {
            uct_md_mem_dereg(tl->md, mem->memh);
        }
    }
}

static void paging_completed(uct_completion_t *comp)
{
    (void)comp; /* the count says it */
}

static void paging_unpack(void *arg, const void *data, size_t len)
{
    memcpy(arg, data, len);
}

/* Does it travel in one piece that the transport copies? On memory that peers
 * map that is the short way of both sides. */
static int paging_is_copied(paging_tl_t *tl, paging_mem_t *mem,
                            paging_dir_t dir, size_t len)
{
    if (!mem->is_direct) {
        return 0;
    }
    return len <= ((dir == PAGING_WRITE) ? tl->attr.cap.put.max_short :
                                           tl->attr.cap.get.max_bcopy);
}

/* Post one; comp is called if INPROGRESS is returned */
static ucs_status_t
paging_post(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir, void *local,
            size_t len, size_t offset, uct_completion_t *comp)
{
    uint64_t address = mem->address + offset;
    uct_rkey_t key   = mem->key.rkey;
    uct_iov_t iov    = {
        .buffer = local,
        .length = len,
        .memh   = tl->local_memh,
        .count  = 1
    };
    ucs_status_t status;

    for (;;) {
        if (dir == PAGING_FADD) {
            status = uct_ep_atomic64_fetch(tl->ep, UCT_ATOMIC_OP_ADD, 1, local,
                                           address, key, comp);
        } else if (paging_is_copied(tl, mem, dir, len)) {
            status = (dir == PAGING_WRITE) ?
                     uct_ep_put_short(tl->ep, local, len, address, key) :
                     uct_ep_get_bcopy(tl->ep, paging_unpack, local, len,
                                      address, key, comp);
        } else {
            status = (dir == PAGING_WRITE) ?
                     uct_ep_put_zcopy(tl->ep, &iov, 1, address, key, comp) :
                     uct_ep_get_zcopy(tl->ep, &iov, 1, address, key, comp);
        }
        if (status != UCS_ERR_NO_RESOURCE) {
            break;
        }
        uct_worker_progress(tl->worker);
    }

    if (status != UCS_INPROGRESS) {
        paging_check(status, tl->name, "a transfer");
    }
    return status;
}

void paging_move(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                 size_t len, size_t offset)
{
    uct_completion_t comp = {
        .func   = paging_completed,
        .count  = 1,
        .status = UCS_OK
    };

    if (paging_post(tl, mem, dir, tl->local, len, offset, &comp) ==
        UCS_INPROGRESS) {
        while (*(volatile int*)&comp.count != 0) {
            uct_worker_progress(tl->worker);
        }
        paging_check(comp.status, tl->name, "a transfer");
    }
    if (dir == PAGING_WRITE) {
        paging_flush(tl);
    }
}

void paging_stream(paging_tl_t *tl, paging_mem_t *mem, paging_dir_t dir,
                   size_t len, size_t stride, size_t count)
{
    uct_completion_t comps[PAGING_WINDOW];
    size_t i;

    for (i = 0; i < PAGING_WINDOW; ++i) {
        comps[i].func   = paging_completed;
        comps[i].count  = 0;
        comps[i].status = UCS_OK;
    }

    for (i = 0; i < count; ++i) {
        uct_completion_t *comp = &comps[i % PAGING_WINDOW];
        size_t offset          = (i * stride) % mem->len;
        char *local            = (char*)tl->local + (offset % (32ul << 20));

        while (*(volatile int*)&comp->count != 0) {
            uct_worker_progress(tl->worker);
        }
        comp->count = 1;
        if (paging_post(tl, mem, dir, local, len, offset, comp) !=
            UCS_INPROGRESS) {
            comp->count = 0;
        }
    }

    for (i = 0; i < PAGING_WINDOW; ++i) {
        while (*(volatile int*)&comps[i].count != 0) {
            uct_worker_progress(tl->worker);
        }
        paging_check(comps[i].status, tl->name, "a transfer");
    }
    paging_flush(tl);
}
