/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The directory of arenas: our own, and those of peers.
 *
 * A forked child is not the owner of its parent's directory: the mapping is not
 * there in the child, and all functions about the process's own directory say
 * that there is none.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "table.h"

#include "../thread.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#  define MFD_NOEXEC_SEAL 0x0008U
#endif

#ifndef F_SEAL_FUTURE_WRITE
#  define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define NP_DIRECTORY_NAME   "nprdma-arenas"
#define NP_DIRECTORY_MAGIC  0x7269646eu
#define NP_DIRECTORY_SIZE   (NP_TABLE_HEAD_SIZE + \
                             ((size_t)NP_TABLE_ARENAS * NP_TABLE_SIZE))

_Static_assert(sizeof(np_directory_t) <= NP_TABLE_HEAD_SIZE,
               "the head holds the directory");
_Static_assert((NP_TABLE_SIZE % (64 * UCS_KBYTE)) == 0,
               "a table can be mapped alone, whatever the page size is");
_Static_assert(NP_TABLE_ARENAS < NP_ARENA_TABLE_MAX,
               "an arena's state can hold the number of its table");

typedef enum np_directory_state {
    NP_DIRECTORY_NONE,
    NP_DIRECTORY_MADE,    /* once: a forked child gets none of its own */
    NP_DIRECTORY_REFUSED  /* the reason was logged */
} np_directory_state_t;

/* Guards the making of the directory and of tables: all below but np_directory,
 * which is set with release once what it points to is ready */
static pthread_mutex_t np_directory_lock = PTHREAD_MUTEX_INITIALIZER;
static np_directory_state_t np_directory_state;
static int np_directory_memfd = -1;
static int np_directory_said_full;
static np_directory_t *_Atomic np_directory;

/* Guards np_remotes and the count of each */
static pthread_mutex_t np_remotes_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(np_remotes);

/* Log once: a line for each look-up would be too many */
static atomic_flag np_remote_said_unmapped = ATOMIC_FLAG_INIT;

static pthread_once_t np_table_atfork_once = PTHREAD_ONCE_INIT;
static int np_table_atfork_ret;


static void np_table_fork_prepare(void)
{
    pthread_mutex_lock(&np_directory_lock);
    pthread_mutex_lock(&np_remotes_lock);
}

static void np_table_fork_parent(void)
{
    pthread_mutex_unlock(&np_remotes_lock);
    pthread_mutex_unlock(&np_directory_lock);
}

static void np_table_fork_child(void)
{
    if (np_directory_memfd >= 0) {
        close(np_directory_memfd);
        np_directory_memfd = -1;
    }

    atomic_store_explicit(&np_directory, NULL, memory_order_relaxed);
    np_table_fork_parent();
}

static void np_table_atfork_register(void)
{
    np_table_atfork_ret = pthread_atfork(np_table_fork_prepare,
                                         np_table_fork_parent,
                                         np_table_fork_child);
}

int np_table_prepare_forks(void)
{
    pthread_once(&np_table_atfork_once, np_table_atfork_register);
    errno = np_table_atfork_ret;
    return (np_table_atfork_ret == 0) ? 0 : -1;
}

/* Not executable where the kernel knows how (6.3): some insist on it */
static int np_directory_open(void)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd;

    fd = memfd_create(NP_DIRECTORY_NAME, flags | MFD_NOEXEC_SEAL);
    return ((fd < 0) && (errno == EINVAL)) ?
           memfd_create(NP_DIRECTORY_NAME, flags) : fd;
}

/* As ftruncate(), but beyond RLIMIT_FSIZE an error and no signal */
static int np_directory_resize(int fd)
{
    struct rlimit limit;

    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0) &&
        (NP_DIRECTORY_SIZE > limit.rlim_cur)) {
        errno = EFBIG;
        return -1;
    }

    return ftruncate(fd, NP_DIRECTORY_SIZE);
}

/* From now on no process can map it for writing, and no peer can be made to
 * fault by a file that shrinks. Kernels before 5.1 know nothing of future
 * writes. */
static int np_directory_seal(int fd)
{
    const int seals = F_SEAL_SHRINK | F_SEAL_GROW;

    if ((fcntl(fd, F_ADD_SEALS, seals | F_SEAL_FUTURE_WRITE) != 0) &&
        (fcntl(fd, F_ADD_SEALS, seals) != 0)) {
        return -1;
    }

    return fcntl(fd, F_ADD_SEALS, F_SEAL_SEAL);
}

static void np_directory_make_locked(void)
{
    const char *what;
    np_directory_t *directory;
    int fd;

    np_assert_locked(&np_directory_lock);
    np_directory_state = NP_DIRECTORY_REFUSED;

    what = "pthread_atfork()";
    if (np_table_prepare_forks() != 0) {
        goto err;
    }

    what = "memfd_create()";
    fd   = np_directory_open();
    if (fd < 0) {
        goto err;
    }

    what = "ftruncate()";
    if (np_directory_resize(fd) != 0) {
        goto err_close;
    }

    what      = "mmap()";
    directory = mmap(NULL, NP_DIRECTORY_SIZE, PROT_READ | PROT_WRITE,
                     MAP_SHARED | MAP_NORESERVE, fd, 0);
    if (directory == MAP_FAILED) {
        goto err_close;
    }

    what = "sealing";
    if (np_directory_seal(fd) != 0) {
        goto err_unmap;
    }

    /* a huge page would cost 2 MiB for one entry */
    madvise(directory, NP_DIRECTORY_SIZE, MADV_NOHUGEPAGE);
    madvise(directory, NP_DIRECTORY_SIZE, MADV_DONTDUMP);
    madvise(directory, NP_DIRECTORY_SIZE, MADV_DONTFORK);

    directory->magic   = NP_DIRECTORY_MAGIC;
    directory->version = NP_WIRE_VERSION;
    np_directory_memfd = fd;
    np_directory_state = NP_DIRECTORY_MADE;
    atomic_store_explicit(&np_directory, directory, memory_order_release);
    return;

err_unmap:
    munmap(directory, NP_DIRECTORY_SIZE);
err_close:
    close(fd);
err:
    np_warn("no directory of arenas (%zu MiB of address space, nearly no "
            "memory): %s failed: %m. All transfers will need the target's "
            "CPU. Check 'ulimit -v', 'ulimit -f' and 'ulimit -n'",
            (size_t)(NP_DIRECTORY_SIZE / UCS_MBYTE), what);
}

int np_directory_fd(void)
{
    int fd;

    pthread_mutex_lock(&np_directory_lock);
    if (np_directory_state == NP_DIRECTORY_NONE) {
        np_directory_make_locked();
    }

    fd = np_directory_memfd;
    pthread_mutex_unlock(&np_directory_lock);
    return fd;
}

np_directory_t *np_directory_own(void)
{
    return atomic_load_explicit(&np_directory, memory_order_acquire);
}

np_table_t *np_table_find(uint32_t arena)
{
    np_directory_t *directory = np_directory_own();
    int index;

    if (ucs_unlikely(directory == NULL)) {
        return NULL;
    }

    index = np_arena_get_table(arena);
    return (index < 0) ? NULL :
           UCS_PTR_BYTE_OFFSET(directory, NP_TABLE_HEAD_SIZE +
                                          ((size_t)index * NP_TABLE_SIZE));
}

static void np_table_add_locked(np_directory_t *directory, uint32_t arena)
{
    uint32_t index;

    np_assert_locked(&np_directory_lock);
    index = atomic_load_explicit(&directory->count, memory_order_relaxed);
    if (index == NP_TABLE_ARENAS) {
        if (!np_directory_said_full) {
            np_warn("more than %u GiB of the address space are in use: "
                    "transfers to the rest need the target's CPU",
                    NP_TABLE_ARENAS);
            np_directory_said_full = 1;
        }
        return;
    }

    directory->arenas[index] = arena;
    if (np_arena_set_table(arena, index) == UCS_OK) {
        atomic_store_explicit(&directory->count, index + 1,
                              memory_order_release);
    }
}

np_table_t *np_table_get(uint32_t arena)
{
    np_table_t *table = np_table_find(arena);
    np_directory_t *directory;

    if (ucs_likely(table != NULL)) {
        return table;
    }

    if (np_directory_fd() < 0) {
        return NULL;
    }

    pthread_mutex_lock(&np_directory_lock);
    directory = np_directory_own();
    if ((directory != NULL) && (np_arena_get_table(arena) < 0)) {
        np_table_add_locked(directory, arena);
    }
    pthread_mutex_unlock(&np_directory_lock);

    return np_table_find(arena);
}

static void *np_remote_map(int fd, size_t size, size_t offset)
{
    void *ptr;

    ptr = mmap(NULL, size, PROT_READ, MAP_SHARED | MAP_NORESERVE, fd, offset);
    if (ptr != MAP_FAILED) {
        /* reading a hole makes a page of it */
        madvise(ptr, size, MADV_NOHUGEPAGE);
        madvise(ptr, size, MADV_DONTDUMP);
    }

    return ptr;
}

static int np_remote_is_directory(int fd, const struct stat *st)
{
    int seals = fcntl(fd, F_GET_SEALS);

    return (seals >= 0) && (seals & F_SEAL_SHRINK) &&
           (st->st_size == (off_t)NP_DIRECTORY_SIZE);
}

static ucs_status_t
np_remote_open(np_remote_t *remote, int fd, const struct stat *st)
{
    void *ptr;

    if (!np_remote_is_directory(fd, st)) {
        np_error("a peer sent a directory of arenas that is not a sealed memfd "
                 "of %zu bytes", (size_t)NP_DIRECTORY_SIZE);
        return UCS_ERR_INVALID_PARAM;
    }

    remote->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (remote->fd < 0) {
        np_error("cannot keep a peer's directory of arenas: %m. Check "
                 "'ulimit -n'");
        return UCS_ERR_NO_MEMORY;
    }

    ptr = np_remote_map(remote->fd, NP_TABLE_HEAD_SIZE, 0);
    if (ptr == MAP_FAILED) {
        np_error("cannot map a peer's directory of arenas: %m. Check "
                 "'ulimit -v' and vm.max_map_count");
        close(remote->fd);
        return UCS_ERR_NO_MEMORY;
    }

    remote->directory = ptr;
    if ((remote->directory->magic == NP_DIRECTORY_MAGIC) &&
        (remote->directory->version == NP_WIRE_VERSION)) {
        return UCS_OK;
    }

    np_error("a peer's directory of arenas has magic %#x, version %u; here "
             "they are %#x, %u", remote->directory->magic,
             remote->directory->version, NP_DIRECTORY_MAGIC, NP_WIRE_VERSION);
    munmap(ptr, NP_TABLE_HEAD_SIZE);
    close(remote->fd);
    return UCS_ERR_INVALID_PARAM;
}

/* Found by the id that the peer claims, and by what it cannot choose: the file.
 * The file's number is not given to another file while we have it open. */
static np_remote_t *
np_remote_find_locked(uint64_t engine_id, const struct stat *st)
{
    np_remote_t *remote;

    np_assert_locked(&np_remotes_lock);
    ucs_list_for_each(remote, &np_remotes, list) {
        if ((remote->engine_id == engine_id) && (remote->dev == st->st_dev) &&
            (remote->ino == st->st_ino)) {
            return remote;
        }
    }

    return NULL;
}

ucs_status_t np_remote_get(uint64_t engine_id, int fd, np_remote_t **remote_p)
{
    ucs_status_t status = UCS_OK;
    np_remote_t *remote;
    struct stat st;

    if (np_table_prepare_forks() != 0) {
        np_error("pthread_atfork() failed: %m");
        return UCS_ERR_NO_MEMORY;
    }

    /* seals first: fstat() would ask a file system of the peer's own */
    if ((fcntl(fd, F_GET_SEALS) < 0) || (fstat(fd, &st) != 0)) {
        np_error("a peer's directory of arenas is no memfd: %m");
        return UCS_ERR_INVALID_PARAM;
    }

    pthread_mutex_lock(&np_remotes_lock);
    remote = np_remote_find_locked(engine_id, &st);
    if (remote != NULL) {
        goto out_found; /* another link to the same process */
    }

    remote = calloc(1, sizeof(*remote));
    if (remote == NULL) {
        np_error("no memory for a peer's directory of arenas");
        status = UCS_ERR_NO_MEMORY;
        goto out;
    }

    status = np_remote_open(remote, fd, &st);
    if (status != UCS_OK) {
        free(remote);
        goto out;
    }

    remote->engine_id = engine_id;
    remote->dev       = st.st_dev;
    remote->ino       = st.st_ino;
    ucs_list_add_head(&np_remotes, &remote->list);
out_found:
    ++remote->refs;
    *remote_p = remote;
out:
    pthread_mutex_unlock(&np_remotes_lock);
    return status;
}

static void np_remote_close_block(np_remote_block_t *block)
{
    np_table_t *table;
    unsigned i;

    for (i = 0; i < NP_REMOTE_BLOCK; ++i) {
        table = atomic_load_explicit(&block->tables[i], memory_order_relaxed);
        if (table != NULL) {
            munmap(table, NP_TABLE_SIZE);
        }
    }
    free(block);
}

static void np_remote_close(np_remote_t *remote)
{
    np_remote_block_t *block;
    unsigned i;

    for (i = 0; i < ucs_static_array_size(remote->blocks); ++i) {
        block = atomic_load_explicit(&remote->blocks[i], memory_order_relaxed);
        if (block != NULL) {
            np_remote_close_block(block);
        }
    }

    munmap((void*)remote->directory, NP_TABLE_HEAD_SIZE);
    close(remote->fd);
    free(remote);
}

void np_remote_put(np_remote_t *remote)
{
    int last;

    pthread_mutex_lock(&np_remotes_lock);
    last = (--remote->refs == 0);
    if (last) {
        ucs_list_del(&remote->list);
    }
    pthread_mutex_unlock(&np_remotes_lock);

    if (last) {
        np_remote_close(remote);
    }
}

/* The block with this table, which is made if there is none; NULL: no memory */
static np_remote_block_t *np_remote_block(np_remote_t *remote, unsigned index)
{
    np_remote_block_t *_Atomic *place =
            &remote->blocks[index / NP_REMOTE_BLOCK];
    np_remote_block_t *block, *expected = NULL;

    /* acquire: it is all 0 */
    block = atomic_load_explicit(place, memory_order_acquire);
    if (ucs_likely(block != NULL)) {
        return block;
    }

    block = calloc(1, sizeof(*block));
    if ((block == NULL) &&
        !atomic_flag_test_and_set(&np_remote_said_unmapped)) {
        np_warn("no memory for a peer's tables of arenas, transfers to it need "
                "its CPU");
    }
    if ((block == NULL) ||
        atomic_compare_exchange_strong_explicit(place, &expected, block,
                                                memory_order_acq_rel,
                                                memory_order_acquire)) {
        return block;
    }

    free(block); /* another thread was first */
    return expected;
}

static np_table_t *
np_remote_map_table(np_remote_t *remote, np_table_t *_Atomic *place,
                    unsigned index)
{
    np_table_t *table, *expected = NULL;

    table = np_remote_map(remote->fd, NP_TABLE_SIZE,
                          NP_TABLE_HEAD_SIZE + ((size_t)index * NP_TABLE_SIZE));
    if (table == MAP_FAILED) {
        if (!atomic_flag_test_and_set(&np_remote_said_unmapped)) {
            np_warn("cannot map a peer's table of an arena, transfers to it "
                    "need its CPU: %m. Check 'ulimit -v' and "
                    "vm.max_map_count");
        }
        return NULL;
    }

    if (atomic_compare_exchange_strong_explicit(place, &expected, table,
                                                memory_order_acq_rel,
                                                memory_order_acquire)) {
        return table;
    }

    munmap(table, NP_TABLE_SIZE); /* another thread was first */
    return expected;
}

np_table_t *np_remote_table(np_remote_t *remote, uint32_t arena)
{
    const np_directory_t *directory = remote->directory;
    np_table_t *_Atomic *place;
    np_remote_block_t *block;
    np_table_t *table;
    uint32_t count, i;

    count = atomic_load_explicit(&directory->count, memory_order_acquire);
    count = ucs_min(count, (uint32_t)NP_TABLE_ARENAS); /* the peer's word */
    for (i = 0; i < count; ++i) {
        if (directory->arenas[i] == arena) {
            block = np_remote_block(remote, i);
            if (block == NULL) {
                return NULL;
            }

            place = &block->tables[i % NP_REMOTE_BLOCK];
            table = atomic_load_explicit(place, memory_order_acquire);
            return (table != NULL) ? table :
                   np_remote_map_table(remote, place, i);
        }
    }

    return NULL;
}
