/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What a user can set of the engine: the names of values.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "settings.h"

const char *np_peer_users_names[] = {
    [NP_PEER_USERS_SAME] = "same",
    [NP_PEER_USERS_ANY]  = "any",
    [NP_PEER_USERS_LAST] = NULL
};

const char *np_single_copy_names[] = {
    [NP_SINGLE_COPY_AUTO] = "auto",
    [NP_SINGLE_COPY_VM]   = "vm",
    [NP_SINGLE_COPY_OFF]  = "off",
    [NP_SINGLE_COPY_LAST] = NULL
};

const char *np_service_mode_names[] = {
    [NP_SERVICE_ADAPTIVE] = "adaptive",
    [NP_SERVICE_POLL]     = "poll",
    [NP_SERVICE_EVENT]    = "event",
    [NP_SERVICE_OFF]      = "off",
    [NP_SERVICE_LAST]     = NULL
};

const char *np_tlb_mode_names[] = {
    [NP_TLB_OFF]   = "off",
    [NP_TLB_PAGE]  = "page",
    [NP_TLB_RANGE] = "range",
    [NP_TLB_LAST]  = NULL
};

const char *np_write_check_names[] = {
    [NP_WRITE_CHECK_AUTO]     = "auto",
    [NP_WRITE_CHECK_ENTRIES]  = "entries",
    [NP_WRITE_CHECK_READBACK] = "readback",
    [NP_WRITE_CHECK_LAST]     = NULL
};

const char *np_fault_mode_names[] = {
    [NP_FAULT_MODE_REVERSE] = "reverse",
    [NP_FAULT_MODE_RETRY]   = "retry",
    [NP_FAULT_MODE_LAST]    = NULL
};

const char *np_order_names[] = {
    [NP_ORDER_OVERLAP] = "overlap",
    [NP_ORDER_STRICT]  = "strict",
    [NP_ORDER_RELAXED] = "relaxed",
    [NP_ORDER_LAST]    = NULL
};

const char *np_intra_node_names[] = {
    [NP_INTRA_NODE_SOFT]  = "soft",
    [NP_INTRA_NODE_VERBS] = "verbs",
    [NP_INTRA_NODE_LAST]  = NULL
};

const char *np_mr_scope_names[] = {
    [NP_MR_SCOPE_ARENA] = "arena",
    [NP_MR_SCOPE_EXACT] = "exact",
    [NP_MR_SCOPE_LAST]  = NULL
};

const char *np_mapper_mode_names[] = {
    [NP_MAPPER_AUTO] = "auto",
    [NP_MAPPER_KMOD] = "kmod",
    [NP_MAPPER_USER] = "user",
    [NP_MAPPER_LAST] = NULL
};

const char *np_prepare_mode_names[] = {
    [NP_PREPARE_MODE_OFF]  = "off",
    [NP_PREPARE_MODE_RECV] = "recv",
    [NP_PREPARE_MODE_SEND] = "send",
    [NP_PREPARE_MODE_BOTH] = "both",
    [NP_PREPARE_MODE_LAST] = NULL
};

const char *np_model_order_names[] = {
    [NP_MODEL_OFF]        = "off",
    [NP_MODEL_OVERLAP]    = "overlap",
    [NP_MODEL_SEQUENTIAL] = "sequential",
    [NP_MODEL_CACHED]     = "cached",
    [NP_MODEL_LAST]       = NULL
};


static int np_tlb_config_is_same(const np_tlb_config_t *a,
                                 const np_tlb_config_t *b)
{
    return (a->mode == b->mode) && (a->wire == b->wire) &&
           (a->miss == b->miss) && (a->gap == b->gap);
}

static int np_model_config_is_same(const np_model_config_t *a,
                                   const np_model_config_t *b)
{
    return (a->order == b->order) && (a->rate == b->rate) &&
           (a->latency == b->latency) && (a->reg == b->reg) &&
           (a->reg_rate == b->reg_rate) && (a->slowdown == b->slowdown);
}

int np_engine_config_is_same(const np_engine_config_t *a,
                             const np_engine_config_t *b)
{
    return (a->peer_users == b->peer_users) &&
           (a->single_copy == b->single_copy) &&
           (a->share_min == b->share_min) &&
           (a->share_chunk == b->share_chunk) &&
           (a->lend == b->lend) &&
           (a->nt_stores == b->nt_stores) &&
           (a->write_check == b->write_check) &&
           (a->fault_mode == b->fault_mode) &&
           (a->order == b->order) &&
           (a->mr_scope == b->mr_scope) &&
           (a->inline_max == b->inline_max) &&
           (a->service == b->service) &&
           (a->yield == b->yield) &&
           (a->intra_node == b->intra_node) &&
           (a->mapper == b->mapper) &&
           (a->prepare == b->prepare) &&
           (a->prepare_min == b->prepare_min) &&
           (a->prepare_max == b->prepare_max) &&
           np_tlb_config_is_same(&a->tlb, &b->tlb) &&
           np_model_config_is_same(&a->model, &b->model);
}

static int np_tlb_is_time(const char *name, double seconds)
{
    /* not: no number */
    if ((seconds >= 0) && (seconds <= 0.1)) {
        return 1;
    }

    np_error("UCX_NPRDMA_SOFT_TLB_%s is %g us: give it a time from 0 to 100ms, "
             "such as 2.5us; a number alone is seconds", name, seconds * 1e6);
    return 0;
}

ucs_status_t np_tlb_config_check(const np_tlb_config_t *config,
                                 np_peer_users_t peer_users)
{
    if ((config->mode == NP_TLB_OFF) &&
        ((config->wire != 0) || (config->miss != 0) || (config->gap != 0))) {
        np_error("UCX_NPRDMA_SOFT_TLB_%s needs UCX_NPRDMA_SOFT_TLB, which is "
                 "off: set that, or leave it out",
                 (config->wire != 0) ? "WIRE" :
                 (config->miss != 0) ? "MISS" : "GAP");
        return UCS_ERR_INVALID_PARAM;
    }

    if ((config->mode != NP_TLB_OFF) &&
        (peer_users != NP_PEER_USERS_SAME)) {
        np_error("UCX_NPRDMA_SOFT_TLB does not go with UCX_NPRDMA_PEER_USERS="
                 "%s: peers share the modelled cache, and rely on each other. "
                 "Leave one of them out", np_peer_users_names[peer_users]);
        return UCS_ERR_INVALID_PARAM;
    }

    return (np_tlb_is_time("WIRE", config->wire) &&
            np_tlb_is_time("MISS", config->miss) &&
            np_tlb_is_time("GAP", config->gap)) ? UCS_OK :
           UCS_ERR_INVALID_PARAM;
}
