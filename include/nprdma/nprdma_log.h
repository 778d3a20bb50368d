/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A log: a file of records, which many processes append to and read at once, on
 * the host that has the file and on others.
 *
 *     nprdma_log_open("/data/log", O_RDWR | O_CREAT, 0666, &log);
 *     nprdma_log_append(log, data, length, &at);
 *     nprdma_log_walk(log, &from, each, arg);       // each record since *from
 *     nprdma_log_close(log);
 *
 * The file has records and nothing else: an empty file is an empty log. An
 * append is one write at the file's end, so there is no lock: records of all
 * writers follow each other, each whole. What is left of a writer that was
 * killed in the middle, or that the disk had no room for, is told from records
 * by two checksums (CRC-32C) and skipped. No data of a record, whatever it is,
 * is ever taken for a record.
 *
 * A log of a server is the same file, and local processes may use it at the
 * same time. Its calls are messages as those of nprdma_remote.h, with the rules
 * and errors of these: one thread at a time. A log of this host: any thread at
 * any time. After fork() a log is for one of both processes.
 *
 * Not for files that other hosts write by a network file system: most have no
 * atomic append. Use a server there.
 *
 * Errors are negative errno values. Of all calls: -ENOMEM, -EIO, and others of
 * the system calls that are named.
 *
 * Manual: nprdma_log(3). The link needs -lnprdma_remote (pkg-config
 * nprdma_remote).
 */

#ifndef NPRDMA_LOG_H_
#define NPRDMA_LOG_H_

#include <nprdma/nprdma_remote.h>

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Bytes of the file that a record takes beside its data */
#define NPRDMA_LOG_HEAD   20u

/** Bytes of the file that one append may take, records and heads */
#define NPRDMA_LOG_BATCH  (64u << 20)

/** Bytes that the data of a record may have */
#define NPRDMA_LOG_MAX    (NPRDMA_LOG_BATCH - NPRDMA_LOG_HEAD)

/** A log */
typedef struct nprdma_log nprdma_log_t;

/** What nprdma_log_check() has found */
typedef struct nprdma_log_report {
    size_t   size;        /**< of this struct: sizeof, set by the caller */
    uint64_t records;
    uint64_t data;        /**< bytes of their data */
    uint64_t damaged;     /**< ranges that are no record */
    uint64_t lost;        /**< bytes of these */
    uint64_t incomplete;  /**< bytes at the end, of a record that is being
                               written or was not written to its end */
    uint64_t end;         /**< bytes of the file, all of these */
} nprdma_log_report_t;

/**
 * Told each record.
 *
 * @param [in] at    Where it begins in the file.
 * @param [in] data  Good until this returns; not aligned.
 *
 * @return 0: go on. It may use the log, but not close it.
 */
typedef int (*nprdma_log_cb_t)(void *arg, uint64_t at, const void *data,
                               size_t length);

/** Told each range that is no record */
typedef void (*nprdma_log_damage_cb_t)(void *arg, uint64_t at, uint64_t length);

/**
 * Open a log: a file of this host.
 *
 * @param [in]  flags  O_RDONLY: to walk; O_RDWR: all calls, and with it
 *                     O_CREAT, O_CREAT | O_EXCL; O_CLOEXEC with both.
 * @param [in]  mode   With O_CREAT.
 * @param [out] log    NULL on error.
 *
 * @return 0; -EINVAL: other flags, or no regular file; and others of open().
 */
int nprdma_log_open(const char *path, int flags, mode_t mode,
                    nprdma_log_t **log);

/**
 * Open a log: a file of a server. It must be closed before the server's
 * connection ends.
 *
 * @return As nprdma_remote_open(); -ESTALE: the file was replaced meanwhile.
 */
int nprdma_log_open_remote(nprdma_server_t *server, const char *path, int flags,
                           mode_t mode, nprdma_log_t **log);

/** Close it. NULL: nothing. */
void nprdma_log_close(nprdma_log_t *log);

/**
 * Append a record. When this returns others see it, and it is there if this
 * process is killed; nprdma_log_sync() puts it on the disk.
 *
 * @param [in]  length  0 to NPRDMA_LOG_MAX; 0 is a record, too.
 * @param [out] at      Where it is; may be NULL.
 *
 * @return 0; -EBADF: open for reading; -EMSGSIZE: too long; -ENOSPC, -EDQUOT,
 *         -EFBIG: no room (the log is as good as before); -ECONNRESET: of a
 *         server: see there; and others of writev().
 */
int nprdma_log_append(nprdma_log_t *log, const void *data, size_t length,
                      uint64_t *at);

/** The same: one record of several pieces */
int nprdma_log_appendv(nprdma_log_t *log, const struct iovec *iov, int count,
                       uint64_t *at);

/**
 * Append several records by one write: none of others comes between them.
 *
 * @param [in]  iov  Each piece is a record. NPRDMA_LOG_BATCH for all.
 * @param [out] at   Where each is, @a count numbers; may be NULL.
 *
 * @return As nprdma_log_append(). On errors some may be there, the first ones:
 *         if the process is killed meanwhile, or the disk has no room.
 */
int nprdma_log_append_many(nprdma_log_t *log, const struct iovec *iov,
                           int count, uint64_t *at);

/** Bytes of the file: where the next append is at least. Or a negative
 *  errno. */
int64_t nprdma_log_tell(nprdma_log_t *log);

/** Empty it: as new. @return 0; -EBADF: open for reading. */
int nprdma_log_rewind(nprdma_log_t *log);

/** What has been appended, by whomever, is on the disk. (The name of a new file
 *  is by fsync() of its directory.) */
int nprdma_log_sync(nprdma_log_t *log);

/**
 * Tell each record, in the order of the file: those that are there when this
 * begins. Bytes that are no record are skipped.
 *
 * @param [in,out] from  Where to begin; 0: with the first one. Then behind the
 *                       last record that was told: a later walk goes on there.
 *                       NULL: from the first one on.
 * @param [in]     each  Returns other than 0: the walk ends behind this record,
 *                       and returns it.
 *
 * @return 0: to the end; what @a each has returned; -ESTALE: the log is
 *         shorter than *from, or became so: it has been emptied. Begin at 0.
 */
int nprdma_log_walk(nprdma_log_t *log, uint64_t *from, nprdma_log_cb_t each,
                    void *arg);

/**
 * Look at all of it.
 *
 * @param [in,out] report   Its size is set.
 * @param [in]     damaged  Told each range that is no record; may be NULL. May
 *                          use the log as a callback of a walk.
 *
 * @return 0, also for a log that is damaged; -EINVAL: a report of another size;
 *         -ESTALE: it was emptied meanwhile.
 */
int nprdma_log_check(nprdma_log_t *log, nprdma_log_report_t *report,
                     nprdma_log_damage_cb_t damaged, void *arg);

#ifdef __cplusplus
}
#endif

#endif
