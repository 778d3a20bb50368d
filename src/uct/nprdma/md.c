/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Component and memory domain. To register is to look up arenas, and to note
 * what is large (mem/lent.h): a handle is a tagged integer, or a pointer to
 * memory that we allocated. With exact scope it is a tagged pointer to a
 * region; of a file's place (file.h), always one to its key.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"

#include "../../nprdma/dev/soft/wire.h"
#include "../../nprdma/mem/alloc.h"
#include "../../nprdma/mem/arena.h"
#include "../../nprdma/mem/bypass.h"
#include "../../nprdma/mem/file.h"
#include "../../nprdma/mem/key.h"
#include "../../nprdma/mem/lent.h"
#include "../../nprdma/mem/mapper.h"
#include "../../nprdma/mem/region.h"
#include "../../nprdma/start.h"
#include "../../nprdma/svc/service.h"
#include "../../nprdma/thread_flags.h"

#ifdef HAVE_VERBS
#  include "../../nprdma/dev/verbs/nic.h"
#endif

#include <ucs/sys/sys.h>

#include <stdlib.h>

/* A handle of arenas: bit 0 set, 1..27 first, 28..55 count, 56..63 what is lent
 * (np_lent_begin) */
#define UCT_NPRDMA_MEMH_ARENAS 1ul
#define UCT_NPRDMA_MEMH_FIRST  1
#define UCT_NPRDMA_MEMH_COUNT  28
#define UCT_NPRDMA_MEMH_LENT   56

_Static_assert((NP_ARENA_MAX <= UCS_BIT(UCT_NPRDMA_MEMH_COUNT -
                                        UCT_NPRDMA_MEMH_FIRST)) &&
               (NP_LENT_MAX <= UCS_MASK(64 - UCT_NPRDMA_MEMH_LENT)),
               "a handle has room for all that it says");

/* A handle of a region: bit 1 set, the rest is its address */
#define UCT_NPRDMA_MEMH_REGION 2ul

/* A handle of a file's key: bit 2 set, the rest is its address */
#define UCT_NPRDMA_MEMH_FILE   4ul

/* A look-up, as measured (docs/results/figures.md). Never 0: with 0 UCP would
 * prefer zero-copy for messages that are faster buffered. */
#define UCT_NPRDMA_REG_COST    15e-9

/* Cost of adding a region to a set of a thousand others and removing it */
#define UCT_NPRDMA_REG_COST_EXACT 390e-9


static ucs_status_t
uct_nprdma_md_query(uct_md_h md, uct_nprdma_md_attr_t *attr)
{
    uct_nprdma_md_attr_init(attr);
    UCT_NPRDMA_MD_CAP(attr).flags            = UCT_MD_FLAG_ALLOC |
                                               UCT_MD_FLAG_REG |
                                               UCT_MD_FLAG_ADVISE |
                                               UCT_MD_FLAG_NEED_RKEY |
                                               UCT_MD_FLAG_FIXED;
    if (np_region_is_exact()) {
        UCT_NPRDMA_MD_CAP(attr).flags       |= UCT_MD_FLAG_NEED_MEMH;
    }
    if (ucs_derived_of(md, uct_nprdma_md_t)->can_invalidate) {
        UCT_NPRDMA_MD_CAP(attr).flags       |= UCT_NPRDMA_MD_INVALIDATE;
    }
    UCT_NPRDMA_MD_CAP(attr).reg_mem_types    = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    UCT_NPRDMA_MD_CAP(attr).alloc_mem_types  = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    UCT_NPRDMA_MD_CAP(attr).access_mem_types = UCS_BIT(UCS_MEMORY_TYPE_HOST);
    UCT_NPRDMA_MD_CAP(attr).detect_mem_types = 0;
    UCT_NPRDMA_MD_CAP(attr).max_alloc        = SIZE_MAX;
    UCT_NPRDMA_MD_CAP(attr).max_reg          = ULONG_MAX;
    attr->rkey_packed_size                   = sizeof(np_packed_key_t);
    attr->reg_cost                           =
            ucs_linear_func_make(np_region_is_exact() ?
                                 UCT_NPRDMA_REG_COST_EXACT :
                                 UCT_NPRDMA_REG_COST, 0);
    memset(&attr->local_cpus, 0xff, sizeof(attr->local_cpus));
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_mem_alloc(uct_md_h md, size_t *length_p, void **address_p,
                     ucs_memory_type_t mem_type,
                     UCT_NPRDMA_MEM_ALLOC_ARG unsigned flags,
                     const char *alloc_name, uct_mem_h *memh_p)
{
    np_alloc_t *alloc;
    ucs_status_t status;

    if (mem_type != UCS_MEMORY_TYPE_HOST) {
        return UCS_ERR_UNSUPPORTED;
    }

    status = np_alloc_create((flags & UCT_MD_MEM_FLAG_FIXED) ? *address_p :
                             NULL, length_p, &alloc);
    if (status != UCS_OK) {
        return status;
    }

    *address_p = alloc->addr;
    *memh_p    = alloc;
    return UCS_OK;
}

static ucs_status_t uct_nprdma_mem_free(uct_md_h md, uct_mem_h memh)
{
    np_alloc_free(memh);
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_mem_reg_exact(void *address, size_t length, uct_mem_h *memh_p)
{
    np_region_t *region;
    ucs_status_t status;

    status = np_region_get((uintptr_t)address, length, &region);
    if (status == UCS_OK) {
        *memh_p = UCS_PTR_BYTE_OFFSET(region, UCT_NPRDMA_MEMH_REGION);
    }
    return status;
}

/* What a handle of this tag points to; NULL if it is another kind of handle */
static void *uct_nprdma_memh_tagged(uct_mem_h memh, uint64_t tag)
{
    const uint64_t tags   = UCT_NPRDMA_MEMH_ARENAS | UCT_NPRDMA_MEMH_REGION |
                            UCT_NPRDMA_MEMH_FILE;
    const uint64_t handle = (uintptr_t)memh;

    return ((handle & UCT_NPRDMA_MEMH_ARENAS) || ((handle & tags) != tag)) ?
           NULL : (void*)(handle & ~tag);
}

static np_region_t *uct_nprdma_memh_region(uct_mem_h memh)
{
    return uct_nprdma_memh_tagged(memh, UCT_NPRDMA_MEMH_REGION);
}

static np_file_key_t *uct_nprdma_memh_file(uct_mem_h memh)
{
    return uct_nprdma_memh_tagged(memh, UCT_NPRDMA_MEMH_FILE);
}

/* The program shares a file: its place is registered as a whole. A part of one,
 * or of what was one, can be a local buffer, and no key is made of it: what
 * peers reach there are the files' regions. Returns whether it was done. */
static int uct_nprdma_mem_reg_file(void *address, size_t length,
                                   uct_mem_h *memh_p)
{
    np_file_key_t *key = np_file_key_get((uintptr_t)address, length);

    if (key == NULL) {
        return 0;
    }

    *memh_p = UCS_PTR_BYTE_OFFSET(key, UCT_NPRDMA_MEMH_FILE);
    return 1;
}

static ucs_status_t
uct_nprdma_mem_reg(uct_md_h md, void *address, size_t length,
                   UCT_NPRDMA_MEM_REG_ARG, uct_mem_h *memh_p)
{
    const int is_file = np_file_has((uintptr_t)address);
    np_arenas_t arenas;
    ucs_status_t status;
    uint64_t lent;

    if (is_file && uct_nprdma_mem_reg_file(address, length, memh_p)) {
        return UCS_OK;
    }

    if (np_region_is_exact() && !is_file) {
        return uct_nprdma_mem_reg_exact(address, length, memh_p);
    }

    status = np_arenas_share((uintptr_t)address, length, &arenas);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    /* what is lent must not vanish, as a file's end may */
    lent    = is_file ? 0 : np_lent_begin((uintptr_t)address, length);
    *memh_p = (void*)(UCT_NPRDMA_MEMH_ARENAS |
                      ((uint64_t)arenas.first << UCT_NPRDMA_MEMH_FIRST) |
                      ((uint64_t)arenas.count << UCT_NPRDMA_MEMH_COUNT) |
                      (lent << UCT_NPRDMA_MEMH_LENT));
    return UCS_OK;
}

static void uct_nprdma_mem_invalidated(void *arg)
{
    uct_invoke_completion(arg, UCS_OK);
}

static ucs_status_t
uct_nprdma_mem_dereg(uct_md_h md, const uct_md_mem_dereg_params_t *params)
{
    const unsigned flags = UCT_MD_MEM_DEREG_FIELD_VALUE(params, flags,
                                                        FIELD_FLAGS, 0);
    int can_invalidate   = ucs_derived_of(md, uct_nprdma_md_t)->can_invalidate;
    np_file_key_t *file;
    np_region_t *region;

    /* The domain's flags have said so: no error that a user must see */
    if ((flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE) && !can_invalidate) {
        np_diag("memory cannot be invalidated: this needs "
                "UCX_NPRDMA_MR_SCOPE=exact, and a host without RDMA devices");
        return UCS_ERR_UNSUPPORTED;
    }

    UCT_MD_MEM_DEREG_CHECK_PARAMS(params, can_invalidate);

    file   = uct_nprdma_memh_file(params->memh);
    region = uct_nprdma_memh_region(params->memh);
    if ((flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE) && (region == NULL)) {
        np_error("memory that UCX has allocated is not invalidated, but freed "
                 "(uct_md_mem_free), and a file revoked (nprdma_file_revoke)");
        return UCS_ERR_UNSUPPORTED;
    }

    if (flags & UCT_MD_MEM_DEREG_FLAG_INVALIDATE) {
        return np_region_invalidate(region, uct_nprdma_mem_invalidated,
                                    params->comp);
    }

    if (region != NULL) {
        np_region_put(region);
    } else if (file != NULL) {
        np_file_key_put(file); /* the key ends by nprdma_file_revoke() */
    } else if ((uintptr_t)params->memh & UCT_NPRDMA_MEMH_ARENAS) {
        np_lent_end((uintptr_t)params->memh >> UCT_NPRDMA_MEMH_LENT);
    }
    return UCS_OK;
}

/* Brings in what is needed, for writing if all of it may be. It is advice only:
 * a swapper would be called from itself, and transfers bring pages in, too. */
static ucs_status_t
uct_nprdma_mem_advise(uct_md_h md, uct_mem_h memh, void *address, size_t length,
                      uct_mem_advice_t advice)
{
    ucs_status_t status;

    if ((advice != UCT_MADV_WILLNEED) ||
        (np_thread_flags() & NP_THREAD_IN_SWAPPER)) {
        return UCS_OK;
    }
    status = np_mapper_fault_in((uintptr_t)address, length, 1);
    if (status == UCS_ERR_INVALID_ADDR) {
        status = np_mapper_fault_in((uintptr_t)address, length, 0);
    }
    return (status == UCS_ERR_EXCEEDS_LIMIT) ? UCS_OK :
           (status == UCS_ERR_NO_RESOURCE) ? UCS_OK : status;
}

static ucs_status_t
uct_nprdma_mkey_pack(uct_md_h md, uct_mem_h memh, UCT_NPRDMA_MKEY_PACK_ARGS
                     const uct_md_mkey_pack_params_t *params,
                     void *mkey_buffer)
{
    uint64_t handle     = (uint64_t)memh;
    np_region_t *region = uct_nprdma_memh_region(memh);
    np_file_key_t *file = uct_nprdma_memh_file(memh);
    np_arenas_t arenas;
    np_alloc_t *alloc;

    np_service_start(); /* any process that has the key may ask */
    if (file != NULL) {
        np_key_pack_file(mkey_buffer, np_file_key_va(file),
                         np_file_key_len(file));
    } else if (region != NULL) {
        np_key_pack_region(mkey_buffer, np_region_va(region),
                           np_region_len(region));
    } else if (handle & UCT_NPRDMA_MEMH_ARENAS) {
        arenas.first = (handle & UCS_MASK(UCT_NPRDMA_MEMH_COUNT)) >>
                       UCT_NPRDMA_MEMH_FIRST;
        if (np_file_has(np_arena_at(arenas.first))) {
            np_error("no key is made of a part of a file's range, or of a key "
                     "that was revoked: register the range of a key as "
                     "nprdma_file_key() gave it");
            return UCS_ERR_INVALID_PARAM;
        }
        arenas.count = (handle & UCS_MASK(UCT_NPRDMA_MEMH_LENT)) >>
                       UCT_NPRDMA_MEMH_COUNT;
        np_key_pack_arenas(mkey_buffer, arenas);
    } else {
        alloc = memh;
        np_key_pack_segment(mkey_buffer, alloc->id, (uintptr_t)alloc->addr,
                            alloc->len);
    }
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_rkey_unpack(uct_component_t *component, const void *rkey_buffer,
                       UCT_NPRDMA_RKEY_UNPACK_ARG uct_rkey_t *rkey_p, void **handle_p)
{
    np_key_t *key;
    ucs_status_t status;

    status = np_key_unpack(rkey_buffer, &key);
    if (status != UCS_OK) {
        return status;
    }

    *rkey_p   = (uintptr_t)key;
    *handle_p = NULL;
    return UCS_OK;
}

static ucs_status_t
uct_nprdma_rkey_release(uct_component_t *component, uct_rkey_t rkey,
                        void *handle)
{
    np_key_release((np_key_t*)rkey);
    return UCS_OK;
}

UCT_NPRDMA_RKEY_COMPARE(uct_nprdma_rkey_compare, np_key_t, np_key_compare)

static void uct_nprdma_md_close(uct_md_h md)
{
    ucs_free(ucs_derived_of(md, uct_nprdma_md_t));
}

static uct_md_ops_t uct_nprdma_md_ops = {
    .close              = uct_nprdma_md_close,
    .query              = uct_nprdma_md_query,
    .mem_alloc          = uct_nprdma_mem_alloc,
    .mem_free           = uct_nprdma_mem_free,
    .mem_advise         = uct_nprdma_mem_advise,
    .mem_reg            = uct_nprdma_mem_reg,
    .mem_dereg          = uct_nprdma_mem_dereg,
    .mem_query          = UCT_NPRDMA_UNSUPPORTED(uct_md_mem_query_func_t),
    .mkey_pack          = uct_nprdma_mkey_pack,
    .detect_memory_type =
            UCT_NPRDMA_UNSUPPORTED(uct_md_detect_memory_type_func_t),
    UCT_NPRDMA_MD_OPS_VERSIONED
};

static ucs_status_t uct_nprdma_check_config(const np_engine_config_t *config)
{
    if ((config->share_chunk < (4 * UCS_KBYTE)) ||
        (config->share_chunk > UCS_GBYTE)) {
        np_error("UCX_NPRDMA_SHARE_CHUNK is %zu bytes: give it a value from "
                  "4k to 1g", config->share_chunk);
        return UCS_ERR_INVALID_PARAM;
    }

    if (config->inline_max > NP_INLINE_SIZE) {
        np_error("UCX_NPRDMA_INLINE is %zu bytes: give it at most 16k",
                 config->inline_max);
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->nt_stores == UCS_CONFIG_ON) && !NP_BYPASS_IS_THERE) {
        np_error("UCX_NPRDMA_NT_STORES is on, but nprdma knows no such stores "
                 "of this processor: give it \"auto\"");
        return UCS_ERR_INVALID_PARAM;
    }

    return UCS_OK;
}

/* An RDMA device may have registered a part of a transfer by itself, and no
 * call waits for that yet */
static int uct_nprdma_can_invalidate(void)
{
    unsigned num_nics = 0;
#ifdef HAVE_VERBS
    np_nic_name_t *nics;

    num_nics = np_nic_list(&nics);
    free(nics);
#endif
    return np_region_is_exact() && (num_nics == 0);
}

static ucs_status_t
uct_nprdma_md_open(uct_component_t *component, const char *md_name,
                   const uct_md_config_t *md_config, uct_md_h *md_p)
{
    const uct_nprdma_md_config_t *config =
            ucs_derived_of(md_config, uct_nprdma_md_config_t);
    ucs_status_t status;
    uct_nprdma_md_t *md;

    status = uct_nprdma_check_config(&config->engine);
    if (status != UCS_OK) {
        return status;
    }

    status = np_engine_init(&config->engine);
    if (status != UCS_OK) {
        return status;
    }

    md = ucs_malloc(sizeof(*md), "nprdma_md");
    if (md == NULL) {
        np_error("no memory for a memory domain of %zu bytes", sizeof(*md));
        return UCS_ERR_NO_MEMORY;
    }

    md->super.ops       = &uct_nprdma_md_ops;
    md->super.component = &uct_nprdma_component;
    md->can_invalidate  = uct_nprdma_can_invalidate();
    *md_p               = &md->super;
    return UCS_OK;
}

uct_component_t uct_nprdma_component = {
    .query_md_resources = uct_md_query_single_md_resource,
    .md_open            = uct_nprdma_md_open,
    .cm_open            = UCT_NPRDMA_UNSUPPORTED(uct_component_cm_open_func_t),
    .rkey_unpack        = uct_nprdma_rkey_unpack,
    .rkey_ptr           = UCT_NPRDMA_UNSUPPORTED(uct_component_rkey_ptr_func_t),
    .rkey_release       = uct_nprdma_rkey_release,
    UCT_NPRDMA_COMPONENT_VERSIONED
    .name               = UCT_NPRDMA_NAME,
    .md_config          = {
        .name           = "nprdma memory domain",
        .prefix         = "NPRDMA_",
        .table          = uct_nprdma_md_config_table,
        .size           = sizeof(uct_nprdma_md_config_t)
    },
    .cm_config          = UCS_CONFIG_EMPTY_GLOBAL_LIST_ENTRY,
    .tl_list            = UCT_COMPONENT_TL_LIST_INITIALIZER(
                                  &uct_nprdma_component),
    .flags              = 0,
    .md_vfs_init        = UCT_NPRDMA_STUB(uct_component_md_vfs_init_func_t,
                                          ucs_empty_function)
};
