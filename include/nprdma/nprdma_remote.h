/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files of a server, nprdma-filed, for programs on its own host or on others.
 *
 *     nprdma_server_connect(NULL, &server);         // of this host and user
 *     nprdma_remote_open(server, "/data", O_RDWR | O_CREAT, 0666, &file);
 *     nprdma_remote_pwrite(file, data, length, offset);
 *     nprdma_remote_fsync(file);
 *     nprdma_remote_close(file);
 *     nprdma_server_disconnect(server);
 *
 * Bytes go one-sided, between the program's memory and the file's pages:
 * nothing is pinned, and no memory is registered. Names, sizes and appends are
 * messages. One connection serves any number of files.
 *
 * Each call has a form that does not block (_nb). It begins something, and
 * returns 0, or a negative errno: then nothing was begun. The callback is
 * called once, from a later call for the server: nprdma_server_progress(),
 * nprdma_server_wait(), or any that blocks. It may begin others, and must not
 * block. What is begun may end in another order; data belongs to the library
 * until then.
 *
 * If the server goes away, what is under way waits until it is there again, for
 * as long as nprdma_server_params_t.patience says. Files are opened again by
 * their paths, and all goes on. -ESTALE: the path is another file's by then, or
 * its host was started anew and had not saved what was written. What must not
 * be done twice (append, resize to a size, mkdir, rename, remove, an exclusive
 * create) ends with -ECONNRESET if it was sent: it may have been done. While
 * the server is away a call may take as long as connecting does.
 *
 * One thread at a time uses a server and its files; others may have servers of
 * their own. Not after fork() in the child. The connection is a part of UCX of
 * its own, and runs over nprdma whatever UCX_TLS says for the program's rest.
 *
 * Errors are negative errno values. Of all calls: -ECONNRESET, the server is
 * gone; -ENOMEM; -EIO, UCX has failed. Others are the server's system calls'.
 *
 * Manual: nprdma_remote(3). The link needs -lnprdma_remote (pkg-config
 * nprdma_remote).
 */

#ifndef NPRDMA_REMOTE_H_
#define NPRDMA_REMOTE_H_

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of one append, at most */
#define NPRDMA_REMOTE_APPEND_MAX (64u << 20)

/** A server, as a client has it */
typedef struct nprdma_server nprdma_server_t;

/** An open file of it */
typedef struct nprdma_remote nprdma_remote_t;

/** Where a server is. What is NULL or 0 has its default. */
typedef struct nprdma_server_params {
    size_t     size;      /**< of this struct: sizeof, set by the caller */
    const char *host;     /**< NULL: this host, by a socket of it */
    const char *port;     /**< default: 7473; with host */
    const char *socket;   /**< of this host; default: nprdma-filed's own */
    const char *token;    /**< the file that has it; with host; default:
                               ~/.config/nprdma/token */
    const char *auth;     /**< "token", or "munge"; with host; default: the
                               token, or MUNGE if there is none */
    const char *munge_socket; /**< of munged; with host; default: libmunge's */
    unsigned   patience;  /**< seconds until a server that has gone away is
                               given up; 0: at once */
    void       (*say)(void *arg, const char *line); /**< Told, in one line with
                               no end of line, why a connection fails and what
                               to do, and when it is waited for. NULL: standard
                               error, behind "nprdma: ". Calls nothing here. */
    void       *say_arg;
} nprdma_server_params_t;

/**
 * The end of what was begun.
 *
 * @param [in] result  What the call that blocks returns; of an append the
 *                     offset of what was appended.
 */
typedef void (*nprdma_remote_cb_t)(void *arg, int64_t result);

/**
 * Connect. Takes some milliseconds, once.
 *
 * @param [in]  params  NULL: a server of this host and user, at once.
 * @param [out] server  NULL on error.
 *
 * @return 0; -ENOENT, -ECONNREFUSED: no server is there; -EACCES: it is
 *         another user's, or has another token; -ENOKEY: there is no token;
 *         -ENXIO: no such host; -EPROTONOSUPPORT: of another version; -EUSERS:
 *         it has as many clients as it may have; -ENODEV: UCX has no nprdma
 *         here; -EINVAL: params of another size, or that exclude each other;
 *         and others of connect().
 */
int nprdma_server_connect(const nprdma_server_params_t *params,
                          nprdma_server_t **server);

/** End it. What is under way ends with -ECANCELED: its callbacks are called,
 *  and may begin nothing. Its files must not be used any more, but be closed.
 *  Not from a callback. NULL: nothing. */
void nprdma_server_disconnect(nprdma_server_t *server);

/**
 * Go on with what was begun, and call its callbacks. Does not sleep.
 *
 * @return How much has been found to do; 0: nothing.
 */
unsigned nprdma_server_progress(nprdma_server_t *server);

/**
 * Go on, and sleep until there is something to do.
 *
 * @param [in] timeout  Milliseconds; -1: as long as it takes.
 *
 * @return As nprdma_server_progress(); 0: the time is over, nothing is under
 *         way, or a callback has called it.
 */
unsigned nprdma_server_wait(nprdma_server_t *server, int timeout);

/** What is under way: begun, and its callback not called */
size_t nprdma_server_pending(const nprdma_server_t *server);

/**
 * Open a file of the server.
 *
 * @param [in]  path   From the server's directory on; none leads out of it.
 * @param [in]  flags  O_RDONLY, O_RDWR, or O_WRONLY | O_APPEND, which can
 *                     append and nothing else; and of O_CREAT, O_EXCL,
 *                     O_TRUNC, O_CLOEXEC.
 * @param [in]  mode   With O_CREAT; the server's umask counts.
 * @param [out] file   NULL on error.
 *
 * @return 0; -EINVAL: other flags, or no regular file; -EXDEV: a path that
 *         leads out; -EROFS: the server shares for reading; -EADDRNOTAVAIL: the
 *         server has used up its addresses, and must be started again; and
 *         others of open().
 */
int nprdma_remote_open(nprdma_server_t *server, const char *path, int flags,
                       mode_t mode, nprdma_remote_t **file);

/** Close it. What is under way for it ends first; a callback does not wait for
 *  that. NULL: nothing. */
void nprdma_remote_close(nprdma_remote_t *file);

/**
 * Read at an offset.
 *
 * @return bytes; fewer than @a length at the file's end, 0 behind it; -EBADF:
 *         it is not open for that.
 */
ssize_t nprdma_remote_pread(nprdma_remote_t *file, void *data, size_t length,
                            uint64_t offset);

/**
 * Write at an offset, all of it. The file becomes longer where it must. Others
 * see it when this returns.
 *
 * @return bytes; -EBADF: it is not open for that; -ENOSPC: no room. Some of it
 *         may be written then.
 */
ssize_t nprdma_remote_pwrite(nprdma_remote_t *file, const void *data,
                             size_t length, uint64_t offset);

/**
 * Append, in one piece: whole or not at all, behind what others append.
 *
 * @param [in]  iov     The pieces of it, up to 64 MiB in all.
 * @param [out] offset  Where it is; may be NULL.
 *
 * @return 0; -EBADF: not open with O_APPEND; -EMSGSIZE: too much; -ENOSPC.
 */
int nprdma_remote_append(nprdma_remote_t *file, const void *data, size_t length,
                         uint64_t *offset);
int nprdma_remote_appendv(nprdma_remote_t *file, const struct iovec *iov,
                          int count, uint64_t *offset);

/** What has been written, and appended, is on the server's disk */
int nprdma_remote_fsync(nprdma_remote_t *file);

/** Cut it, or make it longer by zeroes. @return 0; -EBADF; -ENOSPC. */
int nprdma_remote_truncate(nprdma_remote_t *file, uint64_t size);

/** Have room for so many bytes; its size stays. @return 0; -EBADF; -ENOSPC. */
int nprdma_remote_allocate(nprdma_remote_t *file, uint64_t size);

/** What is known of it: mode, size, owner, time of the last change, inode and
 *  device of the server; the rest is 0 */
int nprdma_remote_fstat(nprdma_remote_t *file, struct stat *st);

/** The same without blocking */
int nprdma_remote_pread_nb(nprdma_remote_t *file, void *data, size_t length,
                           uint64_t offset, nprdma_remote_cb_t cb, void *arg);
int nprdma_remote_pwrite_nb(nprdma_remote_t *file, const void *data,
                            size_t length, uint64_t offset,
                            nprdma_remote_cb_t cb, void *arg);
int nprdma_remote_append_nb(nprdma_remote_t *file, const void *data,
                            size_t length, nprdma_remote_cb_t cb, void *arg);
int nprdma_remote_fsync_nb(nprdma_remote_t *file, nprdma_remote_cb_t cb,
                           void *arg);

/** Tell @a each of all names in a directory but "." and "..", until it returns
 *  other than 0, which is returned then. @a type as d_type of readdir(). It may
 *  make other calls for the server. -ECONNRESET: the server has gone between;
 *  names may be told already. */
int nprdma_remote_list(nprdma_server_t *server, const char *path,
                       int (*each)(void *arg, const char *name, int type),
                       void *arg);

/** By paths, as the system calls of these names */
int nprdma_remote_stat(nprdma_server_t *server, const char *path,
                       struct stat *st);
int nprdma_remote_mkdir(nprdma_server_t *server, const char *path, mode_t mode);
int nprdma_remote_rename(nprdma_server_t *server, const char *from,
                         const char *to);
int nprdma_remote_unlink(nprdma_server_t *server, const char *path);
int nprdma_remote_rmdir(nprdma_server_t *server, const char *path);

#ifdef __cplusplus
}
#endif

#endif
