/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The short ways of soft0, for lengths other than a word's.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "soft.h"

#include "../proto/ep.h"


ucs_status_t np_soft_put_taken(np_link_t *link, np_key_t *key, const void *data,
                              size_t len, uint64_t addr)
{
    uint8_t bytes[NP_RMA_BCOPY];
    ucs_status_t status;
    uint64_t at = addr;

    if (len > NP_RMA_BCOPY) {
        return UCS_ERR_INVALID_PARAM;
    }

    if (len == 0) {
        return np_ep_nothing(&link->flight);
    }

    status = np_flight_start_key(&link->flight, key, &at, len);
    if (ucs_unlikely(status != UCS_OK)) {
        return status;
    }

    if (np_engine.config.lend && (key->segment_id == 0)) {
        status = np_lend_put(link, key, data, len, at);
        if (status != UCS_ERR_UNSUPPORTED) {
            return status;
        }
    }

    memcpy(bytes, data, len);
    return np_soft_put_ours(link, key, bytes, len, addr);
}

ucs_status_t np_soft_get_taken(np_link_t *link, np_key_t *key, size_t len,
                              uint64_t addr, np_unpack_t unpack, void *arg,
                              void *comp)
{
    uint8_t bytes[NP_RMA_BCOPY];
    ucs_status_t status;

    if (len == 0) {
        return np_ep_nothing(&link->flight);
    }

    status = np_flight_start_key(&link->flight, key, &addr, len);
    if (status != UCS_OK) {
        return np_flight_refuse_op(&link->flight, status, comp);
    }

    if ((len <= NP_RMA_BCOPY) &&
        np_fast_get(link, key, bytes, len, addr)) {
        np_unit_assert_outside();
        unpack(arg, bytes, len);
        return UCS_OK;
    }

    return np_rma_get_unpack(&link->flight, key, len, addr, unpack, arg, comp);
}
