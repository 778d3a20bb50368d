/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a user can set of the engine: the variables UCX_NPRDMA_.. that hold for
 * the whole process (uct/nprdma/md.c has their table). Those of one device
 * stand with it.
 */

#ifndef NP_SETTINGS_H_
#define NP_SETTINGS_H_

#include "np.h"

#include <ucs/config/types.h>

/** Whose processes may be peers */
typedef enum np_peer_users {
    NP_PEER_USERS_SAME,   /**< those of the same user */
    NP_PEER_USERS_ANY,    /**< any that were given this process's address */
    NP_PEER_USERS_LAST
} np_peer_users_t;

extern const char *np_peer_users_names[];

/** How data that is not directly mapped moves between two processes */
typedef enum np_single_copy {
    NP_SINGLE_COPY_AUTO,  /**< process_vm_readv/writev, rings where refused */
    NP_SINGLE_COPY_VM,    /**< process_vm_readv/writev or an error */
    NP_SINGLE_COPY_OFF,   /**< rings */
    NP_SINGLE_COPY_LAST
} np_single_copy_t;

extern const char *np_single_copy_names[];

/** What answers peers while the program computes */
typedef enum np_service_mode {
    NP_SERVICE_ADAPTIVE,     /**< its progress; a thread that is woken if that
                                  does not look */
    NP_SERVICE_POLL,         /**< a thread that looks all the time */
    NP_SERVICE_EVENT,        /**< a thread that is woken for each request */
    NP_SERVICE_OFF,          /**< its progress alone */
    NP_SERVICE_LAST
} np_service_mode_t;

extern const char *np_service_mode_names[];

/** What the model of an RNIC's translation cache remembers */
typedef enum np_tlb_mode {
    NP_TLB_OFF,
    NP_TLB_PAGE,    /**< one page */
    NP_TLB_RANGE,   /**< one arena: its pages are looked up anew each time */
    NP_TLB_LAST
} np_tlb_mode_t;

extern const char *np_tlb_mode_names[];

typedef struct np_tlb_config {
    np_tlb_mode_t mode;
    double        wire;  /**< seconds from a transfer's beginning to its end, if
                              nothing is missed */
    double        miss;  /**< longer, if anything is */
    double        gap;   /**< from one transfer of a link to its next */
} np_tlb_config_t;

/** How a write is confirmed */
typedef enum np_write_check {
    NP_WRITE_CHECK_AUTO,     /**< what is cheapest here: entries */
    NP_WRITE_CHECK_ENTRIES,  /**< the target's entries, before and after */
    NP_WRITE_CHECK_READBACK, /**< small ones are read back and compared */
    NP_WRITE_CHECK_LAST
} np_write_check_t;

extern const char *np_write_check_names[];

/** Bytes of the largest write that is read back: the paper's own limit */
#define NP_READBACK_MAX  4096

/** What a target does about a page that it has brought in */
typedef enum np_fault_mode {
    NP_FAULT_MODE_REVERSE,   /**< it moves the data */
    NP_FAULT_MODE_RETRY,     /**< it says READY, the initiator tries again */
    NP_FAULT_MODE_LAST
} np_fault_mode_t;

extern const char *np_fault_mode_names[];

/** What waits for what is in flight */
typedef enum np_order {
    NP_ORDER_OVERLAP,        /**< transfers of the same memory */
    NP_ORDER_STRICT,         /**< everything */
    NP_ORDER_RELAXED,        /**< nothing without a fence */
    NP_ORDER_LAST
} np_order_t;

extern const char *np_order_names[];

/** How peers on this host are reached, where there is an RNIC */
typedef enum np_intra_node {
    NP_INTRA_NODE_SOFT,      /**< soft0 */
    NP_INTRA_NODE_VERBS,     /**< the RNIC */
    NP_INTRA_NODE_LAST
} np_intra_node_t;

extern const char *np_intra_node_names[];

/** What a registration lets peers reach */
typedef enum np_mr_scope {
    NP_MR_SCOPE_ARENA,       /**< its arenas */
    NP_MR_SCOPE_EXACT,       /**< its bytes, until it ends */
    NP_MR_SCOPE_LAST
} np_mr_scope_t;

extern const char *np_mr_scope_names[];

/** What keeps true what RDMA devices see of memory */
typedef enum np_mapper_mode {
    NP_MAPPER_AUTO,          /**< nprdma.ko, if it can */
    NP_MAPPER_KMOD,          /**< nprdma.ko, or an error */
    NP_MAPPER_USER,          /**< nothing: transfers register their memory */
    NP_MAPPER_LAST
} np_mapper_mode_t;

extern const char *np_mapper_mode_names[];

/** Which announced buffers are prepared (mem/prepare.h) */
typedef enum np_prepare_mode {
    NP_PREPARE_MODE_OFF,
    NP_PREPARE_MODE_RECV,
    NP_PREPARE_MODE_SEND,
    NP_PREPARE_MODE_BOTH,
    NP_PREPARE_MODE_LAST
} np_prepare_mode_t;

extern const char *np_prepare_mode_names[];

/** When memory is registered under soft0's timing model (mem/model.h) */
typedef enum np_model_order {
    NP_MODEL_OFF,
    NP_MODEL_OVERLAP,     /**< both sides' at once, in chunks */
    NP_MODEL_SEQUENTIAL,  /**< the target's, then the initiator's, then it is
                               sent */
    NP_MODEL_CACHED,      /**< it is already, as in a registration cache that
                               always hits */
    NP_MODEL_LAST
} np_model_order_t;

extern const char *np_model_order_names[];

typedef struct np_model_config {
    np_model_order_t order;
    double           rate;      /**< of the link, bytes a second */
    double           latency;   /**< one way, seconds */
    double           reg;       /**< of a registration, seconds */
    double           reg_rate;  /**< bytes a second, beside that */
    double           slowdown;  /**< all of it takes so many times as long */
} np_model_config_t;

/** np_engine_config_t::inline_max where it is not set */
#define NP_INLINE_DEFAULT 1024

/** Settings of a process; the first memory domain decides */
typedef struct np_engine_config {
    np_peer_users_t  peer_users;
    np_single_copy_t single_copy;
    size_t           share_min;    /**< bytes from which both sides copy */
    size_t           share_chunk;  /**< bytes that one side claims at once */
    int              lend;         /**< see proto/soft/lend.h */
    ucs_on_off_auto_value_t nt_stores; /**< see dev/soft/fill.h */
    np_write_check_t write_check;
    np_fault_mode_t  fault_mode;
    np_order_t       order;
    np_mr_scope_t    mr_scope;
    size_t           inline_max;   /**< bytes that travel in a FAULT */
    np_service_mode_t service;
    int              yield;        /**< see yield.h */
    np_intra_node_t  intra_node;
    np_mapper_mode_t mapper;
    np_prepare_mode_t prepare;
    size_t           prepare_min;  /**< bytes from which a buffer is worth it */
    size_t           prepare_max;  /**< bytes that wait to be prepared */
    const char       *trace;       /**< file of the timeline, or empty; the
                                        engine keeps no copy of the pointer */
    np_tlb_config_t  tlb;
    np_model_config_t model;
} np_engine_config_t;

/** Can it be modelled so, with such peers?
 *  @return UCS_OK; UCS_ERR_INVALID_PARAM (logged). */
ucs_status_t np_tlb_config_check(const np_tlb_config_t *config,
                                 np_peer_users_t peer_users);

/** Is each setting the same? The file of the timeline does not count. */
int np_engine_config_is_same(const np_engine_config_t *a,
                             const np_engine_config_t *b);

#endif
