/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What nprdma-filed does with files, for one client at a time.
 */

#ifndef NF_OPENED_H_
#define NF_OPENED_H_

#include "wire.h"

#include <nprdma/nprdma_file.h>
#include <ucp/api/ucp.h>

#include <dirent.h>
#include <stddef.h>
#include <sys/types.h>

/** What a server gives away; the same for all clients. Constant. */
typedef struct nf_export {
    ucp_context_h context;
    int           root;        /**< a directory */
    int           is_readonly;
    unsigned      max_files;   /**< that a client may have open */
    unsigned      max_clients;
    uint64_t      boot;        /**< tells one run of the host from the next */
} nf_export_t;

/** An open file, or a directory. Owner: its session, in whose thread it is
 *  used. */
typedef struct nf_opened {
    int           fd;
    DIR           *dir;        /**< of a directory, which has fd then */
    unsigned      flags;       /**< NF_OPEN_.. */
    nprdma_file_t *file;       /**< NULL: a directory, or to append to */
    uint64_t      limit;       /**< bytes that its key reaches */
    void          *packed;     /**< its key */
    size_t        packed_len;
    int           is_told;     /**< the client has this key */
    dev_t         device;
    ino_t         inode;
} nf_opened_t;

/*
 * All return 0 or a negative errno. A path is relative to the root, whatever it
 * begins with, and leads to nothing out of it (-EXDEV).
 */
int nf_opened_begin(const nf_export_t *export, const char *path, unsigned flags,
                    mode_t mode, nf_opened_t **opened_p);

void nf_opened_end(nf_opened_t *opened);

/**
 * Resize it, as NF_RESIZE_.. say. If the new size is beyond its key's limit it
 * gets another key, and the old one ends.
 *
 * @return as all. There may be a new key all the same.
 */
int nf_opened_resize(const nf_export_t *export, nf_opened_t *opened,
                     uint64_t size, unsigned flags);

/**
 * Append to it. All of it is in the file, in one piece, or nothing.
 *
 * @param [out] at  Where.
 */
int nf_opened_append(nf_opened_t *opened, const void *data, size_t len,
                     uint64_t *at);

int nf_opened_commit(nf_opened_t *opened);

/** Others may have made it longer than its key reaches: it gets another one */
int nf_opened_follow(const nf_export_t *export, nf_opened_t *opened);

int nf_opened_stat(const nf_opened_t *opened, nf_stat_t *stat);

/** The next entries of a directory, as nf_entry_t; returns their bytes, 0: no
 *  more, or a negative errno. */
ssize_t nf_opened_list(nf_opened_t *opened, void *entries, size_t size);

int nf_path_stat(const nf_export_t *export, const char *path, nf_stat_t *stat);
int nf_path_mkdir(const nf_export_t *export, const char *path, mode_t mode);
int nf_path_remove(const nf_export_t *export, const char *path, int is_dir);
int nf_path_rename(const nf_export_t *export, const char *from, const char *to);

#endif
