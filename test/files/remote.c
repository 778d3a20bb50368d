/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libnprdma_remote, as a program uses it. Arguments: what to test, the server's
 * socket, and its directory, at whose files it looks by itself.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "../engine/tap.h"

#include <nprdma/nprdma_remote.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define BLOCK    4096
#define BLOCKS   512
#define APPENDS  300
#define MANY     1000  /* calls at once: more than there may be requests */

unsigned tap_count, tap_failures;

static const char *socket_path, *share;
static nprdma_server_t *server;
static char said[256];

/* What callbacks have told */
static unsigned told, told_badly;
static int64_t results[MANY];

static void take_line(void *arg, const char *line)
{
    snprintf(said, sizeof(said), "%s", line);
}

static nprdma_server_params_t params(void)
{
    return (nprdma_server_params_t){
        .size     = sizeof(nprdma_server_params_t),
        .socket   = socket_path,
        .patience = 60,
        .say      = take_line,
    };
}

static int connect_to(nprdma_server_t **server_p)
{
    const nprdma_server_params_t where = params();

    return nprdma_server_connect(&where, server_p);
}

/* The file of this name, as it is there */
static int open_here(const char *name)
{
    char path[PATH_MAX];

    snprintf(path, sizeof(path), "%s/%s", share, name);
    return open(path, O_RDWR | O_CREAT, 0600);
}

static void on_result(void *arg, int64_t result)
{
    *(int64_t*)arg = result;
    ++told;
}

static void test_mistakes(void)
{
    nprdma_server_params_t where = params();
    nprdma_server_t *none        = (nprdma_server_t*)&where;

    where.size = 8;
    TAP_CHECK(nprdma_server_connect(&where, &none) == -EINVAL,
              "params of another size");
    TAP_CHECK(none == NULL, "no server on error");
    where      = params();
    where.host = "localhost";
    TAP_CHECK((nprdma_server_connect(&where, &none) == -EINVAL) &&
              (strstr(said, "a socket is of this host") != NULL),
              "a host and a socket");
    where      = params();
    where.port = "7473";
    TAP_CHECK((nprdma_server_connect(&where, &none) == -EINVAL) &&
              (strstr(said, "a port is of a host") != NULL),
              "a port without a host");
    where        = params();
    where.socket = "/nowhere";
    TAP_CHECK((nprdma_server_connect(&where, &none) == -ENOENT) &&
              (strstr(said, "no server runs here") != NULL),
              "no server is there");
    nprdma_server_disconnect(NULL);
    nprdma_remote_close(NULL);
}

static void test_blocking(void)
{
    const struct iovec pieces[] = {{"one, ", 5}, {"", 0}, {"two", 3}};
    static char large[NPRDMA_REMOTE_APPEND_MAX + 1];
    static char data[3 * BLOCK], back[3 * BLOCK];
    nprdma_remote_t *file = NULL, *log = NULL, *none = NULL;
    int fd                = open_here("blocking");
    uint64_t at           = 1;
    struct stat st, here;

    memset(data, 'd', sizeof(data));
    TAP_CHECK(nprdma_remote_open(server, "/blocking", O_RDWR, 0, &file) == 0,
              "a file is opened");
    TAP_CHECK(nprdma_remote_pwrite(file, data, sizeof(data), 7) ==
              sizeof(data), "it is written, behind its end");
    TAP_CHECK((pread(fd, back, sizeof(back), 7) == sizeof(back)) &&
              (memcmp(data, back, sizeof(data)) == 0), "others see that");
    memset(back, 0, sizeof(back));
    TAP_CHECK(nprdma_remote_pread(file, back, sizeof(back), 8) ==
              (sizeof(back) - 1), "less is read at its end");
    TAP_CHECK(nprdma_remote_pread(file, back, 1, 1 << 20) == 0,
              "nothing behind it");
    TAP_CHECK((pwrite(fd, "more", 4, 1 << 20) == 4) &&
              (nprdma_remote_pread(file, back, 9, 1 << 20) == 4) &&
              (memcmp(back, "more", 4) == 0),
              "what others have written behind it is read");
    TAP_CHECK(nprdma_remote_pread(file, back, 1, UINT64_MAX) == -EINVAL,
              "no such offset to read");
    TAP_CHECK(nprdma_remote_pwrite(file, back, 2, INT64_MAX) == -EFBIG,
              "nor to write");
    TAP_CHECK((nprdma_remote_truncate(file, 100) == 0) &&
              (nprdma_remote_fstat(file, &st) == 0) && (st.st_size == 100) &&
              (fstat(fd, &here) == 0) && (here.st_ino == st.st_ino) &&
              (here.st_dev == st.st_dev) && (here.st_mode == st.st_mode),
              "it is cut, and known");
    TAP_CHECK((nprdma_remote_allocate(file, 1 << 20) == 0) &&
              (fstat(fd, &here) == 0) && (here.st_size == 100) &&
              (here.st_blocks >= 2048), "there is room for more");
    TAP_CHECK(nprdma_remote_fsync(file) == 0, "it is on the disk");
    TAP_CHECK(nprdma_remote_append(file, "x", 1, &at) == -EBADF,
              "it is not for appending");

    TAP_CHECK(nprdma_remote_open(server, "log", O_WRONLY | O_APPEND | O_CREAT,
                                 0600, &log) == 0, "a log is opened");
    TAP_CHECK((nprdma_remote_append(log, "zero ", 5, NULL) == 0) &&
              (nprdma_remote_appendv(log, pieces, 3, &at) == 0) && (at == 5),
              "pieces are appended");
    fd = open_here("log");
    TAP_CHECK((pread(fd, back, 20, 0) == 13) &&
              (memcmp(back, "zero one, two", 13) == 0), "as one");
    TAP_CHECK(nprdma_remote_appendv(log, pieces, -1, NULL) == -EINVAL,
              "no number of pieces");
    TAP_CHECK(nprdma_remote_append(log, large, sizeof(large), &at) ==
              -EMSGSIZE, "too much");
    TAP_CHECK(nprdma_remote_pread(log, back, 1, 0) == -EBADF,
              "it is for appending alone");
    TAP_CHECK(nprdma_remote_open(server, "log", O_WRONLY, 0, &none) == -EINVAL,
              "there are no such flags");
    TAP_CHECK((nprdma_remote_open(server, "none", O_RDONLY, 0, &none) ==
               -ENOENT) && (none == NULL), "no such file");
    nprdma_remote_close(log);
    nprdma_remote_close(file);
}

static int count_name(void *arg, const char *name, int type)
{
    *(unsigned*)arg += (strcmp(name, "sub") == 0) && (type == DT_DIR);
    return (strcmp(name, "stop") == 0) ? 77 : 0;
}

static void test_names(void)
{
    unsigned count = 0;
    struct stat st;

    TAP_CHECK(nprdma_remote_mkdir(server, "names", 0755) == 0, "a directory");
    TAP_CHECK(nprdma_remote_mkdir(server, "names/sub", 0755) == 0, "in it");
    TAP_CHECK(nprdma_remote_mkdir(server, "names/sub", 0755) == -EEXIST,
              "once");
    TAP_CHECK((nprdma_remote_list(server, "names", count_name, &count) == 0) &&
              (count == 1), "it is listed");
    TAP_CHECK((nprdma_remote_rename(server, "names/sub", "names/stop") == 0) &&
              (nprdma_remote_list(server, "names", count_name, &count) == 77),
              "renamed, and a list ends where it shall");
    TAP_CHECK((nprdma_remote_stat(server, "names/stop", &st) == 0) &&
              S_ISDIR(st.st_mode), "known");
    TAP_CHECK(nprdma_remote_unlink(server, "names/stop") == -EISDIR,
              "no file");
    TAP_CHECK((nprdma_remote_rmdir(server, "names/stop") == 0) &&
              (nprdma_remote_rmdir(server, "names") == 0), "both go");
    TAP_CHECK(nprdma_remote_list(server, "names", count_name, &count) ==
              -ENOENT, "no list of what is not there");
    TAP_CHECK(nprdma_remote_stat(server, "../", &st) == -EXDEV,
              "no way leads out");
}

static void wait_for(unsigned count)
{
    while (told < count) {
        if (nprdma_server_wait(server, 30000) == 0) {
            printf("# %u of %u were told in 30 s\n", told, count);
            return;
        }
    }
}

static void test_many(void)
{
    static char out[MANY][100], in[MANY][100];
    nprdma_remote_t *file = NULL;
    unsigned i, wrong     = 0;

    (void)nprdma_remote_open(server, "many", O_RDWR | O_CREAT, 0600, &file);
    told = 0;
    for (i = 0; i < MANY; ++i) {
        /* each makes the file longer: it asks for that */
        memset(out[i], 'a' + (i % 26), sizeof(out[i]));
        wrong += nprdma_remote_pwrite_nb(file, out[i], sizeof(out[i]), i * 100,
                                         on_result, &results[i]) != 0;
    }
    TAP_CHECK(wrong == 0, "%u writes are begun", MANY);
    TAP_CHECK((told == 0) && (nprdma_server_pending(server) == MANY),
              "none is told before the program lets it");
    wait_for(MANY);
    for (i = 0; i < MANY; ++i) {
        wrong += results[i] != 100;
    }
    TAP_CHECK((told == MANY) && (wrong == 0), "each is told once");
    TAP_CHECK(nprdma_server_pending(server) == 0, "none is left");
    TAP_CHECK(nprdma_server_wait(server, -1) == 0, "and none is waited for");
    told = 0;
    for (i = 0; i < MANY; ++i) {
        wrong += nprdma_remote_pread_nb(file, in[i], sizeof(in[i]), i * 100,
                                        on_result, &results[i]) != 0;
    }
    wait_for(MANY);
    for (i = 0; i < MANY; ++i) {
        wrong += (results[i] != 100) || (memcmp(in[i], out[i], 100) != 0);
    }
    TAP_CHECK((told == MANY) && (wrong == 0), "all are read");
    TAP_CHECK(nprdma_remote_pread_nb(file, in[0], 1, 0, NULL, NULL) == -EINVAL,
              "a callback is needed");
    told = 0;
    TAP_CHECK((nprdma_remote_fsync_nb(file, on_result, &results[0]) == 0) &&
              (nprdma_remote_pread_nb(file, in[0], 100, 1 << 30, on_result,
                                      &results[1]) == 0), "a sync is begun");
    nprdma_remote_close(file);
    TAP_CHECK((told == 2) && (results[0] == 0) && (results[1] == 0),
              "a close waits for what is under way");
}

/* Appends of all sizes keep their order: large ones the server fetches */
static void test_appends(void)
{
    static char data[APPENDS][70000];
    static char back[APPENDS * 70000];
    nprdma_remote_t *log = NULL;
    int fd               = open_here("appends");
    size_t at = 0, len;
    unsigned i, wrong    = 0;

    (void)nprdma_remote_open(server, "appends", O_WRONLY | O_APPEND, 0, &log);
    told = 0;
    for (i = 0; i < APPENDS; ++i) {
        len = ((i % 7) == 0) ? 70000 : ((i % 5) == 0) ? 20000 : 9;
        memset(data[i], i, len);
        wrong += nprdma_remote_append_nb(log, data[i], len, on_result,
                                         &results[i]) != 0;
    }
    wait_for(APPENDS);
    (void)!pread(fd, back, sizeof(back), 0);
    for (i = 0; i < APPENDS; ++i) {
        len    = ((i % 7) == 0) ? 70000 : ((i % 5) == 0) ? 20000 : 9;
        wrong += (results[i] != (int64_t)at) ||
                 (memcmp(back + at, data[i], len) != 0);
        at    += len;
    }
    TAP_CHECK((told == APPENDS) && (wrong == 0),
              "%u appends of all sizes keep their order (%u do not)", APPENDS,
              wrong);
    nprdma_remote_close(log);
}

/* A callback that begins another, and one that must not block */
typedef struct chain {
    nprdma_remote_t *file;
    char            byte;
    unsigned        left;
    ssize_t         blocked;
} chain_t;

static void on_chain(void *arg, int64_t result)
{
    chain_t *chain = arg;
    char byte;

    told_badly    += result != 1;
    chain->blocked = nprdma_remote_pread(chain->file, &byte, 1, 0);
    (void)nprdma_server_wait(server, -1);
    if ((chain->left-- > 1) &&
        (nprdma_remote_pread_nb(chain->file, &chain->byte, 1, 0, on_chain,
                                chain) != 0)) {
        ++told_badly;
    }
    ++told;
}

static void test_callbacks(void)
{
    chain_t chain = {.left = 1000};

    (void)nprdma_remote_open(server, "many", O_RDONLY, 0, &chain.file);
    told = told_badly = 0;
    TAP_CHECK(nprdma_remote_pread_nb(chain.file, &chain.byte, 1, 0, on_chain,
                                     &chain) == 0, "a read is begun");
    wait_for(1000);
    TAP_CHECK((told == 1000) && (told_badly == 0),
              "each callback has begun the next");
    TAP_CHECK(chain.blocked == -EDEADLK, "and might not block");
    nprdma_remote_close(chain.file);
}

static void *thread_run(void *arg)
{
    nprdma_server_t *mine;
    nprdma_remote_t *file = NULL;
    uint64_t number       = 0, back;
    intptr_t wrong;

    wrong = (connect_to(&mine) != 0) ||
            (nprdma_remote_open(mine, arg, O_RDWR | O_CREAT, 0600, &file) != 0);
    while ((wrong == 0) && (number < 2000)) {
        wrong = (nprdma_remote_pwrite(file, &number, 8, number * 8) != 8) ||
                (nprdma_remote_pread(file, &back, 8, number * 8) != 8) ||
                (back != number);
        ++number;
    }
    nprdma_remote_close(file);
    nprdma_server_disconnect(mine);
    return (void*)wrong;
}

static void test_threads(void)
{
    static char *names[] = {"thread0", "thread1", "thread2", "thread3"};
    pthread_t threads[4];
    intptr_t wrong       = 0;
    unsigned i;
    void *ret;

    for (i = 0; i < 4; ++i) {
        pthread_create(&threads[i], NULL, thread_run, names[i]);
    }
    for (i = 0; i < 4; ++i) {
        pthread_join(threads[i], &ret);
        wrong |= (intptr_t)ret;
    }
    TAP_CHECK(wrong == 0, "four threads have connections of their own");
}

static void test_disconnect(void)
{
    static char data[MANY][8];
    nprdma_remote_t *file = NULL;
    nprdma_server_t *other;
    unsigned i, ended = 0, canceled = 0;
    char byte;

    (void)connect_to(&other);
    (void)nprdma_remote_open(other, "gone", O_RDWR | O_CREAT, 0600, &file);
    told = 0;
    for (i = 0; i < MANY; ++i) {
        (void)nprdma_remote_pwrite_nb(file, data[i], 8, i * 8, on_result,
                                      &results[i]);
    }
    nprdma_server_disconnect(other);
    for (i = 0; i < MANY; ++i) {
        ended    += results[i] == 8;
        canceled += results[i] == -ECANCELED;
    }
    printf("# %u had ended, %u were cancelled\n", ended, canceled);
    TAP_CHECK((told == MANY) && ((ended + canceled) == MANY) && (canceled > 0),
              "what is under way ends with the connection");
    TAP_CHECK(nprdma_remote_pread(file, &byte, 1, 0) == -ENOTCONN,
              "its file is of no use");
    nprdma_remote_close(file);
}

static void run_all(void)
{
    TAP_CHECK(connect_to(&server) == 0, "a connection");
    test_mistakes();
    test_blocking();
    test_names();
    test_many();
    test_appends();
    test_callbacks();
    test_threads();
    test_disconnect();
    nprdma_server_disconnect(server);
}

/* While servers are killed and started: a write that has ended is there, an
 * append that has ended is there once, and one that may have been done is there
 * once or not at all */
typedef struct storm {
    nprdma_remote_t *file;
    uint64_t        wanted[BLOCKS]; /* what each block was last written with */
    uint64_t        next;
    unsigned        slots_failed;
} storm_t;

typedef struct slot {
    storm_t  *storm;
    unsigned block;
    uint64_t data[BLOCK / 8];
} slot_t;

#define SLOTS 16

static void slot_begin(slot_t *slot);
static uint64_t storm_end;

static uint64_t seconds(void)
{
    return time(NULL);
}

static void on_slot(void *arg, int64_t result)
{
    slot_t *slot = arg;

    ++told;
    if (result != BLOCK) {
        printf("# a write ended with %s\n", strerror(-result));
        ++slot->storm->slots_failed;
    } else if (seconds() < storm_end) {
        slot_begin(slot);
    }
}

static void slot_begin(slot_t *slot)
{
    storm_t *storm = slot->storm;
    unsigned i;

    slot->block                = (slot->block + SLOTS) % BLOCKS;
    storm->wanted[slot->block] = ++storm->next;
    for (i = 0; i < (BLOCK / 8); ++i) {
        slot->data[i] = storm->next;
    }
    if (nprdma_remote_pwrite_nb(storm->file, slot->data, BLOCK,
                                slot->block * BLOCK, on_slot, slot) != 0) {
        ++storm->slots_failed;
    }
}

/* Numbers that are appended while writes are under way */
static void storm_append(nprdma_remote_t *log, uint64_t *acknowledged,
                         uint64_t *uncertain, unsigned *num, unsigned *num_un)
{
    static uint64_t number;
    uint64_t at;
    int ret;

    ++number;
    ret = nprdma_remote_append(log, &number, sizeof(number), &at);
    if (ret == 0) {
        acknowledged[(*num)++ % (1 << 20)] = number;
    } else if (ret == -ECONNRESET) {
        uncertain[(*num_un)++ % (1 << 20)] = number;
    } else {
        printf("# an append ended with %s\n", strerror(-ret));
        ++tap_failures;
    }
}

static void storm_look(const storm_t *storm)
{
    static uint64_t data[BLOCK / 8];
    int fd         = open_here("storm");
    unsigned wrong = 0, i, k;

    for (i = 0; i < BLOCKS; ++i) {
        if (storm->wanted[i] == 0) {
            continue;
        }
        wrong += pread(fd, data, BLOCK, i * BLOCK) != BLOCK;
        for (k = 0; k < (BLOCK / 8); ++k) {
            wrong += data[k] != storm->wanted[i];
        }
    }
    TAP_CHECK(wrong == 0, "all that was written is there (%u words not)",
              wrong);
}

static void storm_look_log(const uint64_t *acknowledged, unsigned num,
                           unsigned num_un)
{
    static uint64_t log[1 << 20];
    int fd      = open_here("storm.log");
    ssize_t len = read(fd, log, sizeof(log));
    unsigned i, k = 0, wrong = len < 0;

    for (i = 1; i < (len / 8); ++i) {
        wrong += log[i] <= log[i - 1]; /* twice, or out of order */
    }
    for (i = 0; i < num; ++i) {
        while ((k < (len / 8)) && (log[k] < acknowledged[i])) {
            ++k;
        }
        wrong += (k == (len / 8)) || (log[k] != acknowledged[i]);
    }
    printf("# %u appends acknowledged, %u uncertain, %zd there\n", num, num_un,
           len / 8);
    TAP_CHECK((wrong == 0) && ((len % 8) == 0) && ((len / 8) >= num) &&
              ((len / 8) <= (num + num_un)) && (num > 0),
              "what was appended is there once");
}

static void run_storm(void)
{
    static uint64_t acknowledged[1 << 20], uncertain[1 << 20];
    static slot_t slots[SLOTS];
    static storm_t storm;
    nprdma_remote_t *log = NULL;
    unsigned num = 0, num_un = 0, i;

    TAP_CHECK((connect_to(&server) == 0) &&
              (nprdma_remote_open(server, "storm", O_RDWR | O_CREAT, 0600,
                                  &storm.file) == 0) &&
              (nprdma_remote_open(server, "storm.log", O_WRONLY | O_APPEND |
                                  O_CREAT, 0600, &log) == 0), "a connection");
    storm_end = seconds() + 8;
    printf("# begun\n");
    fflush(stdout);
    for (i = 0; i < SLOTS; ++i) {
        slots[i].storm = &storm;
        slots[i].block = i;
        slot_begin(&slots[i]);
    }
    while (seconds() < storm_end) {
        storm_append(log, acknowledged, uncertain, &num, &num_un);
    }
    nprdma_remote_close(log);
    nprdma_remote_close(storm.file);
    TAP_CHECK((nprdma_server_pending(server) == 0) &&
              (storm.slots_failed == 0), "all %u writes have ended", told);
    nprdma_server_disconnect(server);
    storm_look(&storm);
    storm_look_log(acknowledged, num, num_un);
}

/* The server is killed by then, and nobody starts another */
static void run_gone(void)
{
    nprdma_server_params_t where = params();
    nprdma_remote_t *file        = NULL;
    uint64_t begin;
    char byte;

    where.patience = 0;
    TAP_CHECK((nprdma_server_connect(&where, &server) == 0) &&
              (nprdma_remote_open(server, "gone", O_RDWR | O_CREAT, 0600,
                                  &file) == 0) &&
              (nprdma_remote_pwrite(file, "x", 1, 0) == 1), "a connection");
    printf("# begun\n");
    fflush(stdout);
    (void)getchar();
    begin = seconds();
    TAP_CHECK(nprdma_remote_pread(file, &byte, 1, 0) == -ECONNRESET,
              "without patience a call ends at once");
    told = 0;
    TAP_CHECK(nprdma_remote_pread_nb(file, &byte, 1, 0, on_result,
                                     &results[0]) == 0, "one is begun");
    wait_for(1);
    TAP_CHECK((told == 1) && (results[0] == -ECONNRESET), "and ends as well");
    TAP_CHECK((seconds() - begin) < 10, "soon");
    nprdma_remote_close(file);
    nprdma_server_disconnect(server);
}

int main(int argc, char **argv)
{
    if (argc != 4) {
        return 2;
    }

    socket_path = argv[2];
    share       = argv[3];
    if (strcmp(argv[1], "storm") == 0) {
        run_storm();
    } else if (strcmp(argv[1], "gone") == 0) {
        run_gone();
    } else {
        run_all();
    }
    printf("1..%u\n", tap_count);
    return tap_failures > 0;
}
