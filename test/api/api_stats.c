/* SPDX-License-Identifier: BSD-3-Clause */
/* The page of counters: its writers, its sum, and forked children. */
#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "api_check.h"

#include "nprdma/stats.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>


/* Descriptor of the page; -1 if this process has none */
static int page_fd(void)
{
    char path[sizeof("/proc/self/fd/") + NAME_MAX + 1], target[64];
    DIR *dir = opendir("/proc/self/fd");
    struct dirent *entry;
    int fd = -1;
    ssize_t len;

    while ((entry = readdir(dir)) != NULL) {
        snprintf(path, sizeof(path), "/proc/self/fd/%s", entry->d_name);
        len = readlink(path, target, sizeof(target) - 1);
        target[(len < 0) ? 0 : len] = '\0';
        if (strcmp(target, "/memfd:" NP_STATS_NAME " (deleted)") == 0) {
            fd = atoi(entry->d_name);
        }
    }
    closedir(dir);
    return fd;
}

static uint64_t sum_of_reads(void)
{
    np_stats_t sum;

    np_stats_sum(&sum);
    return sum.reads;
}

/* Exit code of a child that runs @a func */
static int in_child(void (*func)(void *arg), void *arg)
{
    pid_t pid = fork();
    int status;

    if (pid == 0) {
        func(arg);
        _exit(0);
    }
    API_EQ(waitpid(pid, &status, 0), pid);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static void page(void)
{
    np_stats_page_t seen;
    np_stats_t *stats;
    struct stat st;
    int fd;

    API_EQ(page_fd(), -1);
    API_EQ(sum_of_reads(), 0);
    stats = np_stats_get();
    NP_STATS_ADD(stats, reads, 5);
    NP_STATS_INC(stats, tlb_misses);

    fd = page_fd();
    API_TRUE(fd >= 0);
    API_TRUE(fcntl(fd, F_GET_SEALS) & F_SEAL_SHRINK);
    API_TRUE(fcntl(fd, F_GETFD) & FD_CLOEXEC);
    API_EQ(fstat(fd, &st), 0);
    API_TRUE(st.st_size >= (off_t)sizeof(seen));
    API_EQ(pread(fd, &seen, sizeof(seen), 0), sizeof(seen));
    API_EQ(seen.magic, NP_STATS_MAGIC);
    API_EQ(seen.version, NP_STATS_VERSION);
    API_EQ(seen.num_fields, offsetof(np_stats_t, is_used) / sizeof(uint64_t));
    API_EQ(seen.writer_size, sizeof(np_stats_t));
    API_EQ(seen.writers[0].reads, 5);
    API_EQ(seen.writers[0].tlb_misses, 1);
    API_EQ(seen.writers[0].is_used, 1);
    np_stats_put(stats);
}

static void writers(void)
{
    enum { COUNT = NP_STATS_WRITERS + 8 };
    np_stats_t *stats[COUNT], sum;
    int i, j;

    for (i = 0; i < COUNT; ++i) {
        stats[i] = np_stats_get();
        NP_STATS_INC(stats[i], writes);
        for (j = 0; (j < i) && (i < NP_STATS_WRITERS); ++j) {
            API_TRUE(stats[i] != stats[j]);
        }
        API_TRUE((i < NP_STATS_WRITERS) ||
                 (stats[i] == stats[NP_STATS_WRITERS - 1]));
    }
    np_stats_sum(&sum);
    API_EQ(sum.writes, COUNT);

    /* what was counted stays, and the block is free again */
    np_stats_put(stats[3]);
    np_stats_sum(&sum);
    API_EQ(sum.writes, COUNT);
    API_TRUE(np_stats_get() == stats[3]);
    API_EQ(stats[3]->writes, 1);

    /* the last block is shared until the last of its users is gone */
    np_stats_put(stats[COUNT - 1]);
    np_stats_put(stats[5]);
    API_TRUE(np_stats_get() == stats[5]);
    API_TRUE(np_stats_get() == stats[NP_STATS_WRITERS - 1]);
}

static void child_counts(void *arg)
{
    np_stats_t *inherited = arg, *own;

    API_EQ(page_fd(), -1);
    API_EQ(sum_of_reads(), 0);
    NP_STATS_ADD(inherited, reads, 100);
    API_EQ(sum_of_reads(), 0);

    own = np_stats_get();
    API_TRUE(own != inherited);
    API_TRUE(page_fd() >= 0);
    NP_STATS_ADD(own, reads, 1000);
    API_EQ(sum_of_reads(), 1000);
    np_stats_put(inherited);
    np_stats_put(own);
    API_EQ(sum_of_reads(), 1000);
}

/* Without a page of its own, then with one */
static void child_of_child(void *arg)
{
    np_stats_t *own;

    API_EQ(in_child(child_counts, arg), 0);
    own = np_stats_get();
    NP_STATS_ADD(own, reads, 10);
    API_EQ(in_child(child_counts, own), 0);
    API_EQ(sum_of_reads(), 10);
}

static void forked(void)
{
    np_stats_t *stats = np_stats_get();

    NP_STATS_ADD(stats, reads, 7);
    API_EQ(in_child(child_of_child, stats), 0);
    API_EQ(stats->reads, 7);
    API_EQ(sum_of_reads(), 7);
    API_TRUE(page_fd() >= 0);
}

static void child_has_file(void *arg)
{
    API_TRUE(fcntl(*(int*)arg, F_GETFD) >= 0);
}

/* A program closes what it does not know, and its own file gets the number */
static void closed(void)
{
    np_stats_t *stats = np_stats_get();
    int fd            = page_fd();

    API_EQ(close(fd), 0);
    API_EQ(open("/dev/null", O_RDONLY), fd);
    API_EQ(in_child(child_has_file, &fd), 0);
    NP_STATS_ADD(stats, reads, 3);
    API_EQ(sum_of_reads(), 3);
}

static void child_local(void *arg)
{
    API_EQ(sum_of_reads(), 0);
    NP_STATS_ADD((np_stats_t*)arg, reads, 100);
}

/* No descriptor is left: counters all the same, for this process alone */
static void no_page(void)
{
    struct rlimit limit, none;
    np_stats_t *stats;

    API_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
    none          = limit;
    none.rlim_cur = 0;
    API_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
    stats = np_stats_get();
    API_EQ(setrlimit(RLIMIT_NOFILE, &limit), 0);

    API_EQ(page_fd(), -1);
    NP_STATS_ADD(stats, reads, 9);
    API_EQ(sum_of_reads(), 9);
    API_EQ(in_child(child_local, stats), 0);
    API_EQ(sum_of_reads(), 9);
}

/* Count one more, say so, and again for each line of input until it ends */
static void serve(void)
{
    np_stats_t *stats = np_stats_get();

    do {
        NP_STATS_INC(stats, swap_outs);
        printf("%d %u\n", (int)getpid(), (unsigned)stats->swap_outs);
        fflush(stdout);
    } while (getchar() != EOF);
}

/* A page as another version of nprdma, or a stranger, would have it; stays
 * until the input ends */
static void serve_page(uint32_t magic, uint32_t version, uint32_t num_fields,
                       unsigned seals)
{
    const np_stats_page_t made = {
        .magic       = magic,
        .version     = version,
        .num_fields  = num_fields,
        .writer_size = sizeof(np_stats_t)
    };
    int fd = memfd_create(NP_STATS_NAME, MFD_CLOEXEC | MFD_ALLOW_SEALING);

    API_TRUE(fd >= 0);
    API_EQ(pwrite(fd, &made, sizeof(made), 0), sizeof(made));
    API_EQ(fcntl(fd, F_ADD_SEALS, seals), 0);
    printf("%d\n", (int)getpid());
    fflush(stdout);
    while (getchar() != EOF);
}

#define NUM_FIELDS (offsetof(np_stats_t, is_used) / sizeof(uint64_t))

static void serve_same(void)
{
    serve_page(NP_STATS_MAGIC, NP_STATS_VERSION, NUM_FIELDS, F_SEAL_SHRINK);
}

static void serve_version(void)
{
    serve_page(NP_STATS_MAGIC, NP_STATS_VERSION + 1, NUM_FIELDS, F_SEAL_SHRINK);
}

static void serve_fields(void)
{
    serve_page(NP_STATS_MAGIC, NP_STATS_VERSION, NUM_FIELDS + 1, F_SEAL_SHRINK);
}

static void serve_magic(void)
{
    serve_page(~NP_STATS_MAGIC, NP_STATS_VERSION, NUM_FIELDS, F_SEAL_SHRINK);
}

static void serve_unsealed(void)
{
    serve_page(NP_STATS_MAGIC, NP_STATS_VERSION, NUM_FIELDS, 0);
}

static const api_case_t cases[] = {
    {"page", page},
    {"writers", writers},
    {"forked", forked},
    {"closed", closed},
    {"no_page", no_page},
    {"serve", serve},
    {"serve_same", serve_same},
    {"serve_version", serve_version},
    {"serve_fields", serve_fields},
    {"serve_magic", serve_magic},
    {"serve_unsealed", serve_unsealed}
};

API_MAIN(cases)
