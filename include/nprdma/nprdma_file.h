/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files that peers read and write by their offsets (seed 001, FileMR).
 *
 * A process makes a file object, binds it to an open file, and makes keys of
 * it. A key is packed by UCP (nprdma_file_ucp.h) and sent to a peer. There the
 * calls of stock UCP, ucp_put_nbx(), ucp_get_nbx() and ucp_atomic_op_nbx(),
 * take offsets in the file as remote addresses. Nothing is pinned, and no page
 * is touched before a peer needs it.
 *
 *     nprdma_file_create(1 << 30, &file);           // it may grow to 1 GiB
 *     nprdma_file_bind(file, fd, NPRDMA_FILE_READ | NPRDMA_FILE_WRITE);
 *     nprdma_file_key(file, NPRDMA_FILE_READ, &key);
 *     nprdma_file_pack_key(context, &key, &packed, &size); // to the peer
 *
 * The file stays the file: what peers write the process reads by read() and
 * mmap(), and the other way round. It may grow, shrink, get holes and move on
 * its disk while peers use it: keys stay good. An access ends with an error at
 * the peer if a part of it is beyond the file's end, if the key has not the
 * right, or if the file system has no room. What a put has of the file may be
 * written then; nothing is written behind the end. No process gets a SIGBUS.
 *
 * Peers of the same host move the bytes by themselves (soft0). Over an RDMA
 * device they go in messages, which the owner's CPU copies: the device has no
 * registration and no translation of a file. Owner and peers run with
 * UCX_TLS=nprdma: another transport beside it takes remote addresses for
 * addresses (cma, knem, xpmem, self, and over tcp the owner's UCP), and must
 * not be chosen for a file. So does UCP, from UCX 1.16 on, for gets of
 * endpoints with UCP_ERR_HANDLING_MODE_PEER: use endpoints without there.
 *
 * All functions but nprdma_file_destroy(): any thread at any time, but not in a
 * signal handler; calls for one file wait for each other. In a forked child,
 * objects of its parent must not be used (-ENOTCONN). Errors are negative errno
 * values; of all calls -EINVAL, -ENOTCONN and -EPROTO, as nprdma.h says.
 *
 * Manual: nprdma_file(3).
 */

#ifndef NPRDMA_FILE_H_
#define NPRDMA_FILE_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** What a key allows. To write is to read as well. */
enum {
    NPRDMA_FILE_READ  = 1u << 0,
    NPRDMA_FILE_WRITE = 1u << 1  /**< with NPRDMA_FILE_READ: puts and atomics,
                                      too */
};

/** A file that peers may reach */
typedef struct nprdma_file nprdma_file_t;

/** A key of it: a range of addresses of this process that stands for the file.
 *  UCP registers this range, and packs the key. The process may read the file
 *  there (a touch beyond its end is a SIGBUS, as in each mapping). */
typedef struct nprdma_filekey {
    void   *address;
    size_t length;   /**< how large the file may become, rounded up */
} nprdma_filekey_t;

/**
 * Make an object, that is bound to no file yet.
 *
 * @param [in]  max_size  How many bytes the file may get. Addresses are taken
 *                        for so many with each key, and are not used again: a
 *                        process has 16 TiB for all its keys. 1 to 2^43.
 * @param [out] file      NULL on error.
 *
 * @return 0; -EINVAL; -ENOMEM.
 */
int nprdma_file_create(uint64_t max_size, nprdma_file_t **file);

/**
 * Bind it to a regular file, of any file system that maps files, or a memfd.
 *
 * @param [in] fd      Open for reading, or both. The caller may close it.
 * @param [in] rights  The most that a key may have; NPRDMA_FILE_READ, or both.
 *
 * @return 0; -EINVAL: no such rights, or no regular file; -EACCES: @a fd is not
 *         open so (O_APPEND is not for writing at offsets); -EFBIG: the file is
 *         larger than the object; -EBUSY: it is bound; -EBADF and others of
 *         fstat() and fcntl().
 */
int nprdma_file_bind(nprdma_file_t *file, int fd, unsigned rights);

/**
 * Make a key. Costs one mmap(); touches no page of the file, whatever its size.
 *
 * @param [in]  rights  NPRDMA_FILE_READ, or both.
 * @param [out] key     Good until it is revoked.
 *
 * @return 0; -EINVAL; -EBADF: the object is not bound; -EACCES: more rights
 *         than it was bound with; -ENOSPC: no addresses are left; -ENOMEM; and
 *         others of mmap().
 */
int nprdma_file_key(nprdma_file_t *file, unsigned rights,
                    nprdma_filekey_t *key);

/**
 * End a key. When this returns no peer reads or writes the file by it any more;
 * later accesses end with an error. Waits for what is in flight, some
 * microseconds, and for other calls for this file.
 *
 * @param [in] key  NULL: all keys of the file.
 *
 * @return 0; -ENOENT: the file has no such key.
 */
int nprdma_file_revoke(nprdma_file_t *file, const nprdma_filekey_t *key);

/**
 * Revoke all keys, and let the file go. The object may be bound again: old keys
 * stay without effect.
 *
 * @return 0; -EBADF: it was not bound.
 */
int nprdma_file_unbind(nprdma_file_t *file);

/**
 * Cut the file, or make it longer by zeroes. What is cut is taken from peers
 * before: none of them writes behind the new end, or reads what is not there.
 *
 * A program may as well call ftruncate(), and others may. A longer file is seen
 * with the first access behind the old end. If it is cut so, peers get errors
 * for pages that are gone; bytes behind the end in its last page can still be
 * read and written until the next access that is refused, are not in the file,
 * and may be seen if it grows again.
 *
 * @return 0; -EFBIG: more than the object or the process may have; -EBADF: not
 *         bound; -EACCES: bound without NPRDMA_FILE_WRITE; and others of
 *         ftruncate().
 */
int nprdma_file_resize(nprdma_file_t *file, uint64_t size);

/**
 * Make durable what peers have written, as fdatasync() does. A put has been
 * written when its flush has completed.
 *
 * @return 0; -EBADF: not bound; and others of fdatasync().
 */
int nprdma_file_commit(nprdma_file_t *file);

/** End all of it. NULL: nothing. No other call for this file may be under
 *  way. */
void nprdma_file_destroy(nprdma_file_t *file);

#ifdef __cplusplus
}
#endif

#endif
