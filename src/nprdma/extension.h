/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the engine exports to libnprdma, which lies outside of the plug-in: one
 * table of functions, found by its name. libnprdma has no part of UCX, so
 * neither has this header.
 */

#ifndef NP_EXTENSION_H_
#define NP_EXTENSION_H_

#include <nprdma/nprdma.h>
#include <nprdma/nprdma_file.h>

#include <stdatomic.h>

/** Name of the table: the only symbol that the plug-in exports. A table that is
 *  not an extension of this one has another name. */
#define NP_EXTENSION_SYMBOL "nprdma_extension_v1"

/** The functions of nprdma.h, with the errors that it documents */
typedef struct np_extension {
    uint32_t size;      /**< of this table, bytes; grows at its end */
    int      (*notify_swap_out)(void *va, size_t len);
    int      (*notify_swap_in)(void *va, size_t len);
    int      (*register_swapper)(void *va, size_t len,
                                 const nprdma_swapper_t *swapper);
    int      (*unregister_swapper)(void *va, size_t len);
    int      (*prefetch)(void *va, size_t len, int flags);
    int64_t  (*scan)(void *va, size_t len);
    int      (*set_order)(unsigned flags);
    unsigned (*get_order)(void);
    int      (*get_counters)(nprdma_counters_t *counters, size_t size);
    int      (*is_running)(void);
    /** The program has posted a transfer of this memory, which will be written
     *  (a receive) or read. Waits for nothing; any thread. */
    void     (*prepare)(const void *va, size_t len, int is_receive);
    /** The same of an operation that is known, with the fields of
     *  np_prepare_op_t; np_prepare_begin and the others of mem/prepare.h */
    uint32_t (*prepare_begin)(void);
    void     (*prepare_op)(const void *va, size_t len, int is_receive,
                           void *request, int (*is_over)(void *request),
                           uint32_t given_back);
    void     (*prepare_end)(void);
    void     (*prepare_forget)(const void *request);
    const _Atomic uint32_t *prepare_watched; /**< 0: nothing to forget */
    int      (*set_hint)(unsigned flags);
    unsigned (*get_hint)(void);
    int      (*file_create)(uint64_t max_size, nprdma_file_t **file);
    int      (*file_bind)(nprdma_file_t *file, int fd, unsigned rights);
    int      (*file_key)(nprdma_file_t *file, unsigned rights,
                         nprdma_filekey_t *key);
    int      (*file_revoke)(nprdma_file_t *file, const nprdma_filekey_t *key);
    int      (*file_unbind)(nprdma_file_t *file);
    int      (*file_resize)(nprdma_file_t *file, uint64_t size);
    int      (*file_commit)(nprdma_file_t *file);
    void     (*file_destroy)(nprdma_file_t *file);
} np_extension_t;

extern const np_extension_t nprdma_extension_v1;

#endif
