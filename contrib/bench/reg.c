/* SPDX-License-Identifier: BSD-3-Clause */
/* What registering memory costs, through the public UCT API. */
#include <uct/api/uct.h>

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#define REG_HUGE      (64ul << 30)
#define REG_ROUNDS    15
#define REG_PAIRS     100000
#define REG_SMALL     4096

static void reg_check(ucs_status_t status, const char *what)
{
    if (status != UCS_OK) {
        fprintf(stderr, "reg: %s: %s\n", what, ucs_status_string(status));
        exit(1);
    }
}

static double reg_seconds(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec + (now.tv_nsec * 1e-9);
}

/* From smaps_rollup, which counts exactly (statm lags by up to 64 pages a
 * thread); without stdio, which would touch pages of its own */
static long reg_resident_kb(void)
{
    static char text[4096];
    const char *line;
    ssize_t len;
    int fd;

    fd  = open("/proc/self/smaps_rollup", O_RDONLY);
    len = (fd < 0) ? -1 : read(fd, text, sizeof(text) - 1);
    if (len <= 0) {
        perror("reg: /proc/self/smaps_rollup");
        exit(1);
    }
    close(fd);
    text[len] = '\0';
    line      = strstr(text, "Rss:");
    if (line == NULL) {
        fprintf(stderr, "reg: no Rss in /proc/self/smaps_rollup\n");
        exit(1);
    }
    return strtol(line + strlen("Rss:"), NULL, 10);
}

/* Pages of the range itself that are in memory */
static long reg_range_kb(void *ptr, size_t len)
{
    static uint64_t entries[1 << 16];
    size_t page = sysconf(_SC_PAGESIZE), i, n, done = 0;
    long count  = 0;
    int fd;

    fd = open("/proc/self/pagemap", O_RDONLY);
    while ((fd >= 0) && (done < (len / page))) {
        n = pread(fd, entries, sizeof(entries),
                  ((uintptr_t)ptr / page + done) * sizeof(entries[0])) /
            sizeof(entries[0]);
        if ((n == 0) || (n > (sizeof(entries) / sizeof(entries[0])))) {
            break;
        }
        for (i = 0; i < n; ++i) {
            count += (entries[i] >> 62) != 0; /* present, or swapped */
        }
        done += n;
    }
    if (done < (len / page)) {
        perror("reg: /proc/self/pagemap");
        exit(1);
    }
    close(fd);
    return count * page / 1024;
}

static uct_md_h reg_open_md(const char *name)
{
    uct_component_h *components;
    unsigned num_components, i;
    uct_component_attr_t attr;
    uct_md_config_t *config;
    uct_md_h md;

    reg_check(uct_query_components(&components, &num_components),
              "uct_query_components");
    for (i = 0; i < num_components; ++i) {
        attr.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME;
        reg_check(uct_component_query(components[i], &attr),
                  "uct_component_query");
        if (strcmp(attr.name, name) == 0) {
            reg_check(uct_md_config_read(components[i], NULL, NULL, &config),
                      "uct_md_config_read");
            reg_check(uct_md_open(components[i], name, config, &md),
                      "uct_md_open");
            uct_config_release(config);
            uct_release_component_list(components);
            return md;
        }
    }

    fprintf(stderr,
            "reg: UCX knows no component '%s': run it with nprdma-run\n",
            name);
    exit(1);
}

static void *reg_reserve(size_t len, int prot)
{
    void *ptr = mmap(NULL, len, prot,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

    if (ptr == MAP_FAILED) {
        perror("reg: mmap");
        exit(1);
    }
    return ptr;
}

static int reg_compare(const void *a, const void *b)
{
    double x = *(const double*)a, y = *(const double*)b;

    return (x > y) - (x < y);
}

/* Another range each time, so that each registration is a first one */
static void reg_measure_huge(uct_md_h md)
{
    double times[REG_ROUNDS], start;
    uct_mem_h memhs[REG_ROUNDS];
    void *ptrs[REG_ROUNDS];
    long before, first_after = 0, after, range;
    int i;

    for (i = 0; i < REG_ROUNDS; ++i) {
        ptrs[i]  = reg_reserve(REG_HUGE, PROT_READ | PROT_WRITE);
        times[i] = 0;
        memhs[i] = NULL;
    }

    reg_seconds();
    reg_resident_kb();
    before = reg_resident_kb();
    for (i = 0; i < REG_ROUNDS; ++i) {
        start = reg_seconds();
        reg_check(uct_md_mem_reg(md, ptrs[i], REG_HUGE,
                                 UCT_MD_MEM_ACCESS_RMA, &memhs[i]),
                  "uct_md_mem_reg of 64 GiB");
        times[i] = reg_seconds() - start;
        if (i == 0) {
            first_after = reg_resident_kb();
        }
    }
    after = reg_resident_kb();

    range = reg_range_kb(ptrs[0], REG_HUGE);
    for (i = 0; i < REG_ROUNDS; ++i) {
        reg_check(uct_md_mem_dereg(md, memhs[i]), "uct_md_mem_dereg");
        munmap(ptrs[i], REG_HUGE);
    }

    printf("first_us %.3f\n", times[0] * 1e6);
    qsort(times, REG_ROUNDS, sizeof(times[0]), reg_compare);
    printf("later_us %.3f\n", times[REG_ROUNDS / 2] * 1e6);
    printf("range_kb %ld\n", range);
    printf("first_kb %ld\n", first_after - before);
    printf("later_kb %ld\n", after - first_after);
}

static void reg_measure_pair(uct_md_h md)
{
    char *buf = reg_reserve(REG_SMALL, PROT_READ | PROT_WRITE);
    double times[REG_ROUNDS], start;
    uct_mem_h memh;
    int i, round;

    buf[0] = 1;
    for (round = 0; round < REG_ROUNDS; ++round) {
        start = reg_seconds();
        for (i = 0; i < REG_PAIRS; ++i) {
            reg_check(uct_md_mem_reg(md, buf, REG_SMALL,
                                     UCT_MD_MEM_ACCESS_RMA, &memh),
                      "uct_md_mem_reg");
            reg_check(uct_md_mem_dereg(md, memh), "uct_md_mem_dereg");
        }
        times[round] = (reg_seconds() - start) / REG_PAIRS;
    }

    qsort(times, REG_ROUNDS, sizeof(times[0]), reg_compare);
    printf("pair_ns %.2f\n", times[REG_ROUNDS / 2] * 1e9);
}

int main(int argc, char **argv)
{
    uct_md_h md;

    if (argc > 2) {
        fprintf(stderr, "Usage: reg [COMPONENT]\n");
        return 2;
    }

    md = reg_open_md((argc == 2) ? argv[1] : "nprdma");
    reg_measure_huge(md);
    reg_measure_pair(md);
    uct_md_close(md);
    return 0;
}
