/* SPDX-License-Identifier: BSD-3-Clause */
/* The directory of arenas: ours, and what a peer can do with it; a peer's, and
 * what it can do to us. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tap.h"

#include "nprdma/mem/table.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>

#ifndef F_SEAL_FUTURE_WRITE
#  define F_SEAL_FUTURE_WRITE 0x0010
#endif

#define DIRECTORY_SIZE (NP_TABLE_HEAD_SIZE + \
                        ((size_t)NP_TABLE_ARENAS * NP_TABLE_SIZE))

#define THREADS        2
#define THREAD_ARENAS  200

static np_directory_t *table_parents_directory;


/* Memory that a file uses, in bytes */
static size_t table_file_memory(int fd)
{
    struct stat st;

    return (fstat(fd, &st) == 0) ? ((size_t)st.st_blocks * 512) : SIZE_MAX;
}

static int table_child_full(void)
{
    np_remote_t *remote;
    np_table_t *table;
    uint32_t i;

    TAP_CHILD_CHECK(np_directory_fd() >= 0);
    for (i = 0; i < NP_TABLE_ARENAS; ++i) {
        TAP_CHILD_CHECK(np_table_find(1000 + (3 * i)) == NULL);
        table = np_table_get(1000 + (3 * i));
        TAP_CHILD_CHECK(table != NULL);
        TAP_CHILD_CHECK((void*)table ==
                        UCS_PTR_BYTE_OFFSET(np_directory_own(),
                                            NP_TABLE_HEAD_SIZE +
                                            (i * NP_TABLE_SIZE)));
    }

    TAP_CHILD_CHECK(np_table_get(1001) == NULL);
    TAP_CHILD_CHECK(np_table_get(1002) == NULL);
    TAP_CHILD_CHECK(np_table_find(1001) == NULL);
    TAP_CHILD_CHECK(np_table_get(1000) == np_table_find(1000));
    TAP_CHILD_CHECK(np_table_get(1000) != NULL);

    /* all of them: the head, and nothing else */
    TAP_CHILD_CHECK(table_file_memory(np_directory_fd()) <=
                    NP_TABLE_HEAD_SIZE);

    /* the very last entry of the last one, as a peer sees it */
    table = np_table_find(1000 + (3 * (NP_TABLE_ARENAS - 1)));
    atomic_store(&table->views[NP_ARENA_PAGES - 1], 2);
    TAP_CHILD_CHECK(np_remote_get(1, np_directory_fd(), &remote) == UCS_OK);
    table = np_remote_table(remote, 1000 + (3 * (NP_TABLE_ARENAS - 1)));
    TAP_CHILD_CHECK(table != NULL);
    TAP_CHILD_CHECK(atomic_load(&table->views[NP_ARENA_PAGES - 1]) == 2);
    TAP_CHILD_CHECK(np_remote_table(remote, 1001) == NULL);
    np_remote_put(remote);
    return 0;
}

static int table_child_refused(void)
{
    TAP_CHILD_CHECK(np_directory_fd() == -1);
    TAP_CHILD_CHECK(np_directory_fd() == -1);
    TAP_CHILD_CHECK(np_directory_own() == NULL);
    TAP_CHILD_CHECK(np_table_get(1000) == NULL);
    TAP_CHILD_CHECK(np_table_find(1000) == NULL);
    return 0;
}

static int table_child_file_limit(void)
{
    const struct rlimit limit = {1 << 20, 1 << 20};

    TAP_CHILD_CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
    return table_child_refused();
}

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

static int table_child_space_limit(void)
{
    const struct rlimit limit = {UINT64_C(4) << 30, UINT64_C(4) << 30};
    struct rlimit found;

    TAP_CHILD_CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
    TAP_CHILD_CHECK(getrlimit(RLIMIT_AS, &found) == 0);
    if (found.rlim_cur != limit.rlim_cur) {
        return 77; /* an emulator's own memory counts, too: it leaves it out */
    }
    return table_child_refused();
}

#endif

/* Forked before its parent had one: it may have its own */
static int table_child_before(void)
{
    TAP_CHILD_CHECK(np_directory_own() == NULL);
    TAP_CHILD_CHECK(np_table_find(7) == NULL);
    TAP_CHILD_CHECK(np_table_get(7) != NULL);
    TAP_CHILD_CHECK(np_directory_fd() >= 0);
    return 0;
}

void test_table_children(void)
{
    TAP_CHECK(tap_child(table_child_before),
              "a first use makes directory and table");
    TAP_CHECK(tap_child(table_child_full), "%d tables, and not one more",
              NP_TABLE_ARENAS);
    TAP_CHECK(tap_child(table_child_file_limit),
              "no directory where files must be small");
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
    tap_child_check(table_child_space_limit,
                    "no directory where address space is short",
                    "address space is not limited here");
#endif
}

/* Does this kernel know the seal? */
static int table_has_future_write(void)
{
    int fd  = memfd_create("probe", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int ret = fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE);

    close(fd);
    return ret == 0;
}

static void test_table_peer_is_reader(void)
{
    int fd    = np_directory_fd();
    int seals = fcntl(fd, F_GET_SEALS);
    struct stat before, after;
    void *ptr;

    TAP_CHECK((seals & F_SEAL_SHRINK) && (seals & F_SEAL_GROW) &&
              (seals & F_SEAL_SEAL), "size and seals are for ever");
    if (!table_has_future_write()) {
        TAP_CHECK(1, "who gets it can only read # SKIP Linux 5.1 needed");
        return;
    }

    ptr = mmap(NULL, NP_TABLE_HEAD_SIZE, PROT_READ | PROT_WRITE, MAP_SHARED, fd,
               0);
    TAP_CHECK(ptr == MAP_FAILED, "nobody else can map it for writing");

    ptr = mmap(NULL, NP_TABLE_HEAD_SIZE, PROT_READ, MAP_SHARED, fd, 0);
    TAP_CHECK(ptr != MAP_FAILED, "but for reading");
    TAP_CHECK(mprotect(ptr, NP_TABLE_HEAD_SIZE, PROT_READ | PROT_WRITE) != 0,
              "which cannot become writing");
    munmap(ptr, NP_TABLE_HEAD_SIZE);

    TAP_CHECK(pwrite(fd, "x", 1, 0) < 0, "nor can it be written as a file");
    fstat(fd, &before);
    TAP_CHECK(fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0,
                        NP_TABLE_HEAD_SIZE) != 0, "nor be emptied");
    fstat(fd, &after);
    TAP_CHECK((after.st_blocks == before.st_blocks) &&
              (ftruncate(fd, 0) != 0), "nor cut off");
}

static void test_table_memory(void)
{
    int fd = np_directory_fd();
    size_t before;
    np_table_t *table;

    before = table_file_memory(fd);
    table  = np_table_get(4001);
    TAP_CHECK(table_file_memory(fd) <= (before + NP_PAGE_SIZE),
              "a table that was never used costs no memory");
    atomic_store(&table->entries[5], NP_ENTRY_READ);
    TAP_CHECK(table_file_memory(fd) <= (before + (2 * sysconf(_SC_PAGESIZE))),
              "one entry costs a page");
}

static _Atomic unsigned table_arrived;

static void *table_thread(void *arg)
{
    np_table_t **tables = arg;
    unsigned i;

    for (i = 0; i < THREAD_ARENAS; ++i) {
        /* both at once */
        atomic_fetch_add(&table_arrived, 1);
        while (atomic_load(&table_arrived) < (THREADS * (i + 1))) {
        }
        tables[i] = np_table_get(5000 + i);
    }

    return NULL;
}

static void test_table_threads(void)
{
    np_table_t *tables[THREADS][THREAD_ARENAS];
    pthread_t threads[THREADS];
    uint32_t before;
    unsigned i;

    before = atomic_load(&np_directory_own()->count);
    for (i = 0; i < THREADS; ++i) {
        pthread_create(&threads[i], NULL, table_thread, tables[i]);
    }
    for (i = 0; i < THREADS; ++i) {
        pthread_join(threads[i], NULL);
    }

    TAP_CHECK(memcmp(tables[0], tables[1], sizeof(tables[0])) == 0,
              "two threads get the same tables");
    TAP_CHECK(atomic_load(&np_directory_own()->count) ==
              (before + THREAD_ARENAS), "each was made once");
}

static void test_remote(void)
{
    np_remote_t *remote, *again;
    np_table_t *own, *seen;

    TAP_CHECK(np_remote_get(4711, np_directory_fd(), &remote) == UCS_OK,
              "a peer takes it into use");
    TAP_CHECK(atomic_load(&remote->directory->count) ==
              atomic_load(&np_directory_own()->count), "and sees the head");
    TAP_CHECK(np_remote_table(remote, 6000) == NULL, "an arena of no table");
    own  = np_table_get(6000);
    seen = np_remote_table(remote, 6000);
    TAP_CHECK((seen != NULL) && (seen != own), "a peer maps its new one");
    atomic_store(&own->entries[NP_ARENA_PAGES - 1], 7);
    atomic_store(&own->views[0], 1);
    TAP_CHECK((atomic_load(&seen->entries[NP_ARENA_PAGES - 1]) == 7) &&
              (atomic_load(&seen->views[0]) == 1), "its first and last word");
    TAP_CHECK(np_remote_table(remote, 6000) == seen, "it is mapped once");

    TAP_CHECK((np_remote_get(4711, np_directory_fd(), &again) == UCS_OK) &&
              (again == remote), "one for each process");
    TAP_CHECK((np_remote_get(4712, np_directory_fd(), &again) == UCS_OK) &&
              (again != remote), "another process's is another");
    np_remote_put(again);
    np_remote_put(remote);
    TAP_CHECK(np_remote_table(remote, 6000) == seen, "it stays with its users");
    np_remote_put(remote);
    TAP_CHECK(np_remote_get(4711, -1, &again) == UCS_ERR_INVALID_PARAM,
              "and goes with the last one");
}

/* A directory as a peer might have made it; the caller closes it */
static int table_forge(size_t size, int seals, uint32_t magic, uint32_t version,
                       uint32_t count, uint32_t arena)
{
    np_directory_t *directory;
    int fd, i;

    fd = memfd_create("forged", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if ((fd < 0) || (ftruncate(fd, size) != 0)) {
        return -1;
    }

    directory = mmap(NULL, sizeof(*directory), PROT_READ | PROT_WRITE,
                     MAP_SHARED, fd, 0);
    directory->magic   = magic;
    directory->version = version;
    atomic_store(&directory->count, count);
    for (i = 0; i < NP_TABLE_ARENAS; ++i) {
        directory->arenas[i] = arena;
    }
    munmap(directory, sizeof(*directory));
    fcntl(fd, F_ADD_SEALS, seals);
    return fd;
}

static ucs_status_t table_try(int fd)
{
    np_remote_t *remote;
    ucs_status_t status;

    status = np_remote_get(4713, fd, &remote);
    if (status == UCS_OK) {
        np_remote_put(remote);
    }

    close(fd);
    return status;
}

static void test_remote_hostile(void)
{
    const uint32_t magic   = np_directory_own()->magic;
    const uint32_t version = np_directory_own()->version;
    np_remote_t *remote;
    np_table_t *table;
    int fds[2], fd;

    TAP_CHECK(table_try(table_forge(DIRECTORY_SIZE, F_SEAL_SHRINK, magic,
                                    version, 0, 0)) == UCS_OK,
              "a directory that is right");
    TAP_CHECK(table_try(table_forge(DIRECTORY_SIZE, 0, magic, version, 0, 0)) ==
              UCS_ERR_INVALID_PARAM, "one that could shrink is refused");
    TAP_CHECK(table_try(table_forge(DIRECTORY_SIZE - 4096, F_SEAL_SHRINK, magic,
                                    version, 0, 0)) == UCS_ERR_INVALID_PARAM,
              "one that is too short");
    TAP_CHECK(table_try(table_forge(DIRECTORY_SIZE, F_SEAL_SHRINK, magic + 1,
                                    version, 0, 0)) == UCS_ERR_INVALID_PARAM,
              "one of another magic");
    TAP_CHECK(table_try(table_forge(DIRECTORY_SIZE, F_SEAL_SHRINK, magic,
                                    version + 1, 0, 0)) ==
              UCS_ERR_INVALID_PARAM, "one of another version");
    TAP_CHECK(pipe(fds) == 0, "a pipe");
    close(fds[1]);
    TAP_CHECK(table_try(fds[0]) == UCS_ERR_INVALID_PARAM, "which is none");
    TAP_CHECK(table_try(-1) == UCS_ERR_INVALID_PARAM, "no file is none");

    fd = table_forge(DIRECTORY_SIZE, F_SEAL_SHRINK, magic, version, UINT32_MAX,
                     5);
    TAP_CHECK(np_remote_get(4714, fd, &remote) == UCS_OK,
              "one that counts too many tables");
    TAP_CHECK(np_remote_table(remote, 6) == NULL,
              "is not looked at beyond its end");
    table = np_remote_table(remote, 5);
    TAP_CHECK((table != NULL) &&
              (atomic_load(&table->entries[NP_ARENA_PAGES - 1]) == 0),
              "what it has can be read");
    np_remote_put(remote);
    close(fd);
}

/* Somebody comes first, and says that he is another: who that is still finds
 * his own directory */
static void test_remote_claimed(void)
{
    np_directory_t *own = np_directory_own();
    np_remote_t *false_one, *right, *again;
    int fd;

    fd = table_forge(DIRECTORY_SIZE, F_SEAL_SHRINK, own->magic, own->version, 1,
                     6000);
    TAP_CHECK(np_remote_get(4715, fd, &false_one) == UCS_OK,
              "a directory under another's id");
    TAP_CHECK((np_remote_get(4715, np_directory_fd(), &right) == UCS_OK) &&
              (right != false_one), "is not taken for his");
    TAP_CHECK(atomic_load(&right->directory->count) == atomic_load(&own->count),
              "who sees what he shows");
    TAP_CHECK((np_remote_get(4715, np_directory_fd(), &again) == UCS_OK) &&
              (again == right), "once for all of his links");
    np_remote_put(again);
    np_remote_put(false_one);
    np_remote_put(right);
    close(fd);
}

/* Forked after its parent had one: it has none, and must not reach that one */
static int table_child_after(void)
{
    TAP_CHILD_CHECK((msync(table_parents_directory, NP_PAGE_SIZE, MS_ASYNC) !=
                     0) && (errno == ENOMEM));
    TAP_CHILD_CHECK(np_directory_own() == NULL);
    TAP_CHILD_CHECK(np_directory_fd() == -1);
    TAP_CHILD_CHECK(np_table_find(6000) == NULL);
    TAP_CHILD_CHECK(np_table_get(6000) == NULL);
    TAP_CHILD_CHECK(np_table_get(6001) == NULL);
    return 0;
}

static void test_table_fork(void)
{
    int fd = np_directory_fd();
    uint32_t count;

    table_parents_directory = np_directory_own();
    np_table_get(6000);
    count = atomic_load(&np_directory_own()->count);
    TAP_CHECK(tap_child(table_child_after), "a child has no directory");
    TAP_CHECK((np_directory_fd() == fd) && (np_table_find(6000) != NULL) &&
              (np_table_find(6001) == NULL) &&
              (atomic_load(&np_directory_own()->count) == count),
              "its parent's is as it was");
}

void test_table(void)
{
    TAP_CHECK(np_directory_fd() >= 0, "the directory");
    TAP_CHECK(np_directory_own() != NULL, "is mapped here");
    TAP_CHECK(np_table_get(UINT32_MAX) == NULL,
              "what is no arena has no table");
    test_table_peer_is_reader();
    test_table_memory();
    test_table_threads();
    test_remote();
    test_remote_hostile();
    test_remote_claimed();
    test_table_fork();
}
