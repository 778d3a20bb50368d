/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A file's key as UCP packs it. Inline: libnprdma has no part of UCX in it.
 */

#ifndef NPRDMA_FILE_UCP_H_
#define NPRDMA_FILE_UCP_H_

#include <nprdma/nprdma_file.h>

#include <ucp/api/ucp.h>

/**
 * Pack a key, for ucp_ep_rkey_unpack() at peers.
 *
 * @param [in]  context  Of the process that owns the file, with UCX_TLS=nprdma.
 * @param [out] packed   For ucp_rkey_buffer_release().
 * @param [out] size     Its bytes.
 *
 * @return UCS_OK; UCS_ERR_INVALID_PARAM: it was revoked, or is none; or why UCP
 *         could not register or pack it.
 */
static inline ucs_status_t
nprdma_file_pack_key(ucp_context_h context, const nprdma_filekey_t *key,
                     void **packed, size_t *size)
{
    ucp_mem_map_params_t params;
    ucs_status_t status;
    ucp_mem_h memh;

    if (key->address == NULL) {
        return UCS_ERR_INVALID_PARAM; /* no key */
    }

    params.field_mask = UCP_MEM_MAP_PARAM_FIELD_ADDRESS |
                        UCP_MEM_MAP_PARAM_FIELD_LENGTH;
    params.address    = key->address;
    params.length     = key->length;

    status = ucp_mem_map(context, &params, &memh);
    if (status != UCS_OK) {
        return status;
    }

    status = ucp_rkey_pack(context, memh, packed, size);
    (void)ucp_mem_unmap(context, memh); /* the key is the file's, not UCP's */
    return status;
}

#endif
