/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The client's side of nprdma-filed. One thread uses a server and its files.
 *
 * Calls return 0, or more where it is said, or a negative errno. If the server
 * goes away a call waits until it is there again, opens the file again by its
 * path, and goes on; a file that has another inode then is -ESTALE. What must
 * not be done twice (an append, and what makes, removes or renames) ends with
 * -ECONNRESET instead: it may have been done.
 */

#ifndef NF_CLIENT_H_
#define NF_CLIENT_H_

#include "common.h"
#include "wire.h"

#include <sys/types.h>

/** A server, as a client sees it */
typedef struct nf_server nf_server_t;

/** An open file of it, or a directory. Owner: the client. */
typedef struct nf_remote nf_remote_t;

/** Where a server is. What is NULL or 0 has its default. */
typedef struct nf_where {
    const char *host;      /**< NULL: this host, by a socket of it */
    const char *port;
    const char *socket;    /**< of this host */
    const char *token;     /**< the file that has it; with host */
    unsigned   patience;   /**< seconds until a server that is away is given
                                up; 0: at once */
} nf_where_t;

/**
 * Connect. Lines on standard error say why it fails.
 *
 * @param [in] where  Kept; must live as long as the server.
 */
int nf_connect(const nf_where_t *where, nf_server_t **server_p);

/** Its files must have been closed */
void nf_disconnect(nf_server_t *server);

/** @param [in] flags  NF_OPEN_.. */
int nf_open(nf_server_t *server, const char *path, unsigned flags, mode_t mode,
            nf_remote_t **file_p);

void nf_close(nf_remote_t *file);

/**
 * Read or write at an offset. A write makes the file longer where it must.
 *
 * @return bytes; of a read fewer at the file's end.
 */
ssize_t nf_pread(nf_remote_t *file, void *data, size_t len, uint64_t offset);
ssize_t nf_pwrite(nf_remote_t *file, const void *data, size_t len,
                  uint64_t offset);

/** @param [out] at  Where it is. */
int nf_append(nf_remote_t *file, const void *data, size_t len, uint64_t *at);

/** @param [in] flags  NF_RESIZE_.. */
int nf_resize(nf_remote_t *file, uint64_t size, unsigned flags);

/** What has been written is on the server's disk */
int nf_commit(nf_remote_t *file);

int nf_fstat(nf_remote_t *file, nf_stat_t *stat);
int nf_stat(nf_server_t *server, const char *path, nf_stat_t *stat);

/** Tell @a each of all in a directory, until it returns other than 0, which is
 *  returned then. @a type as d_type. */
int nf_list(nf_remote_t *dir,
            int (*each)(void *arg, const char *name, int type), void *arg);

int nf_mkdir(nf_server_t *server, const char *path, mode_t mode);
int nf_rename(nf_server_t *server, const char *from, const char *to);
int nf_remove(nf_server_t *server, const char *path, unsigned flags);

#endif
