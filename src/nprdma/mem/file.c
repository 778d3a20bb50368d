/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files that peers reach by their offsets.
 *
 * What peers reach is taken away in this order: the region ends, so that no
 * request begins; its pages are unmapped, and what moves is waited for
 * (np_file_end); then the file is cut, or nothing is mapped in its place. It is
 * given in the other order.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "file.h"

#include "file_area.h"
#include "mapper.h"
#include "region.h"
#include "swapper.h"

#include "../thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define NP_FILE_RIGHTS  (NP_FILE_READ | NP_FILE_WRITE)

/* Until a file is tried again that another call has, ns */
#define NP_FILE_PAUSE   20000

struct np_file_key {
    np_file_place_t place;   /* where it is mapped */
    np_file_t       *file;   /* NULL: it has ended; guarded by np_file_lock */
    unsigned        rights;
    np_region_t     *region; /* what the file has of the place; NULL: nothing.
                                Guarded by np_file_lock */
    unsigned        uses;    /* handles, and one of its file; np_file_lock */
    np_file_key_t   *next;   /* of the file; guarded by its lock */
};

struct np_file {
    pthread_mutex_t lock;     /* one call at a time; taken before np_file_lock,
                                 and held while what moves is waited for */
    uint64_t        max_size;
    int             fd;       /* ours; -1: not bound. It has no keys then */
    unsigned        rights;   /* that its descriptor allows */
    uint64_t        limit;    /* what is beyond is not reached, whatever size
                                 the file has; guarded by np_file_lock */
    np_file_key_t   *keys;
};

static pthread_once_t np_file_once = PTHREAD_ONCE_INIT;


/* With np_file_lock */
static np_file_key_t *np_file_key_find(uint64_t va)
{
    np_file_place_t *place = np_file_area_find(va);

    return (place == NULL) ? NULL : ucs_container_of(place, np_file_key_t,
                                                     place);
}

static void np_file_fork_prepare(void)
{
    pthread_rwlock_wrlock(&np_file_lock);
}

static void np_file_fork_parent(void)
{
    pthread_rwlock_unlock(&np_file_lock);
}

/* The child may give back handles, so the keys stay */
static void np_file_key_forget(np_file_place_t *place)
{
    np_file_key_t *key = ucs_container_of(place, np_file_key_t, place);

    key->file   = NULL;
    key->region = NULL;
}

static void np_file_fork_child(void)
{
    np_file_area_forget(np_file_key_forget);
    pthread_rwlock_init(&np_file_lock, NULL);
}

/* The regions' handler first: it is then the last one that takes its lock */
static void np_file_init(void)
{
    np_regions_start();
    np_at_fork(np_file_fork_prepare, np_file_fork_parent, np_file_fork_child);
}

/* Bytes of the file that peers may reach now; of one that cannot be asked,
 * none. With np_file_lock. */
static uint64_t np_file_reached(const np_file_t *file)
{
    struct stat st;

    return (fstat(file->fd, &st) != 0) ? 0 :
           ucs_min(ucs_min((uint64_t)st.st_size, file->limit), file->max_size);
}

/* What peers may reach of a key's place. With np_file_lock. */
static uint64_t np_file_key_size(const np_file_key_t *key)
{
    return (key->region == NULL) ? 0 : np_region_len(key->region);
}

/* Peers may reach so much of the place from now on. With np_file_lock to
 * write. Returns the region that was, to be given back without the lock; NULL:
 * none. */
static np_region_t *np_file_key_follow(np_file_key_t *key, uint64_t size)
{
    np_region_t *was = key->region;

    if (np_file_key_size(key) == size) {
        return NULL;
    }

    key->region = NULL;
    if (size > 0) {
        /* or there is none, and that is logged */
        (void)np_region_get(key->place.va, size, &key->region);
    }
    return was;
}

/* When this returns nothing is being moved that only this region allowed */
static void np_file_end(np_region_t *region)
{
    uint64_t va;

    if (region != NULL) {
        va = np_region_va(region);
        np_region_put(region);
        np_mapper_flush(va, 0);
        np_swap_wait_copies();
    }
}

/* All keys follow the file's size. With the file's lock. */
static void np_file_follow(np_file_t *file, uint64_t limit)
{
    np_region_t *ended;
    np_file_key_t *key;

    for (key = file->keys; key != NULL; key = key->next) {
        pthread_rwlock_wrlock(&np_file_lock);
        file->limit = limit;
        ended       = np_file_key_follow(key, np_file_reached(file));
        pthread_rwlock_unlock(&np_file_lock);
        np_file_end(ended);
    }
}

int np_file_create(uint64_t max_size, np_file_t **file_p)
{
    const uint64_t len = ucs_align_up_pow2(max_size, NP_FILE_ALIGN);
    np_file_t *file;

    if ((max_size == 0) || (len < max_size) || (len > NP_FILE_PLACE_MAX)) {
        return -EINVAL;
    }

    file = calloc(1, sizeof(*file));
    if (file == NULL) {
        return -ENOMEM;
    }

    pthread_mutex_init(&file->lock, NULL);
    file->max_size = max_size;
    file->fd       = -1;
    file->limit    = UINT64_MAX;
    *file_p        = file;
    return 0;
}

/* May a descriptor have these rights? */
static int np_file_check_fd(const np_file_t *file, int fd, unsigned rights)
{
    const int flags = fcntl(fd, F_GETFL);
    struct stat st;

    if ((flags < 0) || (fstat(fd, &st) != 0)) {
        return -errno;
    }

    if (!S_ISREG(st.st_mode)) {
        return -EINVAL;
    }

    if (((flags & O_ACCMODE) == O_WRONLY) || (flags & O_PATH) ||
        ((rights & NP_FILE_WRITE) &&
         (((flags & O_ACCMODE) != O_RDWR) || (flags & O_APPEND)))) {
        return -EACCES;
    }

    return ((uint64_t)st.st_size > file->max_size) ? -EFBIG : 0;
}

static int np_file_are_rights(unsigned rights)
{
    return (rights == NP_FILE_READ) || (rights == NP_FILE_RIGHTS);
}

int np_file_bind(np_file_t *file, int fd, unsigned rights)
{
    int ret;

    if (!np_file_are_rights(rights)) {
        return -EINVAL;
    }

    pthread_mutex_lock(&file->lock);
    ret = (file->fd >= 0) ? -EBUSY : np_file_check_fd(file, fd, rights);
    if (ret == 0) {
        fd  = fcntl(fd, F_DUPFD_CLOEXEC, 0);
        ret = (fd < 0) ? -errno : 0;
    }
    if (ret == 0) {
        file->fd     = fd;
        file->rights = rights;
    }
    pthread_mutex_unlock(&file->lock);
    return ret;
}

/* Map the file at its place */
static int np_file_key_map(const np_file_t *file, const np_file_key_t *key)
{
    const int prot = PROT_READ |
                     ((key->rights & NP_FILE_WRITE) ? PROT_WRITE : 0);
    void *address  = (void*)key->place.va;

    if (mmap(address, key->place.len, prot,
             MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file->fd, 0) ==
        MAP_FAILED) {
        return -errno;
    }

    (void)madvise(address, key->place.len, MADV_DONTFORK);
    (void)madvise(address, key->place.len, MADV_DONTDUMP);
    return 0;
}

/* With the file's lock */
static int np_file_key_open(np_file_t *file, np_file_key_t *key)
{
    int ret;

    pthread_rwlock_wrlock(&np_file_lock);
    ret = np_file_area_add(&key->place);
    if (ret == 0) {
        ret = np_file_key_map(file, key);
        if (ret == 0) {
            (void)np_file_key_follow(key, np_file_reached(file));
            key->next  = file->keys;
            file->keys = key;
        } else {
            np_file_area_undo(&key->place);
        }
    }
    pthread_rwlock_unlock(&np_file_lock);
    return ret;
}

/* Others may take a file's offsets for addresses, in this process */
static void np_file_check_transports(void)
{
    static _Atomic int is_said;
    const char *tls = getenv("UCX_TLS");

    if (((tls == NULL) || (strcmp(tls, "nprdma") != 0)) &&
        !atomic_exchange_explicit(&is_said, 1, memory_order_relaxed)) {
        np_warn("files are shared, and UCX_TLS is '%s': a peer that reaches "
                "this process by another transport than nprdma ends it, since "
                "that takes a file's offsets for addresses. Set "
                "UCX_TLS=nprdma", (tls == NULL) ? "" : tls);
    }
}

int np_file_make_key(np_file_t *file, unsigned rights, void **address,
                     uint64_t *len)
{
    np_file_key_t *key;
    int ret = 0;

    if (!np_file_are_rights(rights)) {
        return -EINVAL;
    }

    key = calloc(1, sizeof(*key));
    if (key == NULL) {
        return -ENOMEM;
    }

    np_file_check_transports();
    pthread_once(&np_file_once, np_file_init);
    *key = (np_file_key_t){
        .file      = file,
        .place.len = ucs_align_up_pow2(file->max_size, NP_FILE_ALIGN),
        .rights    = rights,
        .uses      = 1
    };
    pthread_mutex_lock(&file->lock);
    if (file->fd < 0) {
        ret = -EBADF;
    } else if (rights & ~file->rights) {
        ret = -EACCES;
    } else {
        ret = np_file_key_open(file, key);
    }
    pthread_mutex_unlock(&file->lock);

    if (ret != 0) {
        free(key);
        return ret;
    }
    *address = (void*)key->place.va;
    *len     = key->place.len;
    return 0;
}

/* With the file's lock */
static void np_file_key_close(np_file_key_t *key)
{
    np_region_t *ended;
    int is_ours;

    pthread_rwlock_wrlock(&np_file_lock);
    is_ours = (key->file != NULL); /* else it is of a parent of this process */
    ended   = np_file_key_follow(key, 0);
    np_file_area_remove(&key->place);
    key->file = NULL;
    pthread_rwlock_unlock(&np_file_lock);

    np_file_end(ended);
    /* nothing of it is there any more, not even for those who ask the kernel */
    if (is_ours && (np_file_area_unmap(&key->place) != 0)) {
        np_error("a revoked file stays mapped at %#lx: mmap() failed: %m",
                 key->place.va);
    }
    np_file_key_put(key);
}

/* With the file's lock. @a address: NULL: all keys. */
static int np_file_revoke_locked(np_file_t *file, const void *address)
{
    np_file_key_t **link = &file->keys, *key;
    int ret              = (address == NULL) ? 0 : -ENOENT;

    while ((key = *link) != NULL) {
        if ((address != NULL) && (key->place.va != (uintptr_t)address)) {
            link = &key->next;
            continue;
        }

        *link = key->next;
        np_file_key_close(key);
        ret = 0;
    }
    return ret;
}

int np_file_revoke(np_file_t *file, const void *address)
{
    int ret;

    pthread_mutex_lock(&file->lock);
    ret = np_file_revoke_locked(file, address);
    pthread_mutex_unlock(&file->lock);
    return ret;
}

int np_file_unbind(np_file_t *file)
{
    int ret = -EBADF;

    pthread_mutex_lock(&file->lock);
    (void)np_file_revoke_locked(file, NULL);
    if (file->fd >= 0) {
        close(file->fd);
        file->fd = -1;
        ret      = 0;
    }
    pthread_mutex_unlock(&file->lock);
    return ret;
}

int np_file_resize(np_file_t *file, uint64_t size)
{
    struct rlimit limit;
    int ret = 0;

    /* beyond the process's limit ('ulimit -f') there would be a signal */
    if ((size > file->max_size) || ((getrlimit(RLIMIT_FSIZE, &limit) == 0) &&
                                    (size > limit.rlim_cur))) {
        return -EFBIG;
    }

    pthread_mutex_lock(&file->lock);
    if (file->fd < 0) {
        ret = -EBADF;
    } else if (!(file->rights & NP_FILE_WRITE)) {
        ret = -EACCES;
    } else {
        np_file_follow(file, size); /* what is to be cut is taken first */
        ret = (ftruncate(file->fd, size) == 0) ? 0 : -errno;
        np_file_follow(file, UINT64_MAX);
    }
    pthread_mutex_unlock(&file->lock);
    return ret;
}

int np_file_commit(np_file_t *file)
{
    int fd, ret;

    /* a disk takes its time, and other calls must not wait for it */
    pthread_mutex_lock(&file->lock);
    fd  = (file->fd < 0) ? -1 : fcntl(file->fd, F_DUPFD_CLOEXEC, 0);
    ret = (file->fd < 0) ? -EBADF : (fd < 0) ? -errno : 0;
    pthread_mutex_unlock(&file->lock);

    if (ret == 0) {
        ret = (fdatasync(fd) == 0) ? 0 : -errno;
        close(fd);
    }
    return ret;
}

void np_file_destroy(np_file_t *file)
{
    (void)np_file_unbind(file);
    pthread_mutex_destroy(&file->lock);
    free(file);
}

np_file_key_t *np_file_key_get(uint64_t va, uint64_t len)
{
    np_file_key_t *key;

    pthread_rwlock_wrlock(&np_file_lock);
    key = np_file_key_find(va);
    if ((key != NULL) && ((key->place.va != va) || (key->place.len != len))) {
        key = NULL;
    }
    if (key != NULL) {
        ++key->uses;
    }
    pthread_rwlock_unlock(&np_file_lock);
    return key;
}

void np_file_key_put(np_file_key_t *key)
{
    int is_last;

    pthread_rwlock_wrlock(&np_file_lock);
    is_last = (--key->uses == 0);
    pthread_rwlock_unlock(&np_file_lock);
    if (is_last) {
        free(key);
    }
}

uint64_t np_file_key_va(const np_file_key_t *key)
{
    return key->place.va;
}

uint64_t np_file_key_len(const np_file_key_t *key)
{
    return key->place.len;
}

/* The file of an address, locked; NULL: no key has it. The file cannot end
 * meanwhile: who ends it takes the lock as well. */
static np_file_t *np_file_lock_of(uint64_t va)
{
    const struct timespec pause = {.tv_nsec = NP_FILE_PAUSE};
    np_file_key_t *key;
    np_file_t *file;
    int is_locked;

    for (;;) {
        pthread_rwlock_rdlock(&np_file_lock);
        key       = np_file_key_find(va);
        file      = (key == NULL) ? NULL : key->file;
        is_locked = (file != NULL) && (pthread_mutex_trylock(&file->lock) == 0);
        pthread_rwlock_unlock(&np_file_lock);
        if (is_locked || (file == NULL)) {
            return file;
        }
        nanosleep(&pause, NULL);
    }
}

/* Others have changed the file's size. Its own calls wait: what they take away
 * must be gone when they return. */
static void np_file_refresh(uint64_t va)
{
    np_file_t *file = np_file_lock_of(va);

    if (file != NULL) {
        np_file_follow(file, UINT64_MAX);
        pthread_mutex_unlock(&file->lock);
    }
}

ucs_status_t np_file_resolve(uint64_t va, uint64_t len, int is_write)
{
    int is_there = 0, is_known = 1;
    np_file_key_t *key;
    uint64_t size;

    pthread_rwlock_rdlock(&np_file_lock);
    key = np_file_key_find(va);
    if ((key != NULL) && (!is_write || (key->rights & NP_FILE_WRITE))) {
        size     = np_file_reached(key->file);
        is_there = (len <= size) && ((va - key->place.va) <= (size - len));
        is_known = (np_file_key_size(key) == size);
    }
    pthread_rwlock_unlock(&np_file_lock);

    if (!is_known) {
        np_file_refresh(va);
    }
    return (is_there && np_regions_cover(va, len)) ? UCS_OK :
           UCS_ERR_INVALID_ADDR;
}
