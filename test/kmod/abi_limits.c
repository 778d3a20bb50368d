/* SPDX-License-Identifier: BSD-3-Clause */
/* Who may use a context, how much, and what is left of it. */

#include "kmod_abi.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define LEAK_REGIONS 10000u
#define LEAK_LENGTH  (4 * KMOD_SLICE)
/* Less than 10,000 of the smallest thing that a region consists of */
#define LEAK_KB      1024

static int child_refused(int dev, int region, char *memory)
{
    struct nprdma_info info;
    pid_t pid;
    int status = -1;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        _exit((abi_call(dev, NPRDMA_IOC_INFO, &info) != -EPERM) ||
              (kmod_fault(dev, region, memory, KMOD_PAGE, 0, NULL) !=
               -EPERM) ||
              (kmod_export(dev, region, NPRDMA_EXPORT_TABLE) != -EPERM) ||
              (kmod_destroy(dev, region) != -EPERM));
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

int abi_after_exec(const char *dev)
{
    struct nprdma_info info;

    return abi_call(atoi(dev), NPRDMA_IOC_INFO, &info) != -EPERM;
}

static int exec_refused(int dev, const char *self)
{
    int copy = dup(dev), status = -1;
    char number[16];
    pid_t pid;

    snprintf(number, sizeof(number), "%d", copy);
    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        execl(self, self, number, (char*)NULL);
        _exit(9);
    }
    waitpid(pid, &status, 0);
    close(copy);
    return status == 0;
}

/* A table that is mapped here is not in a child */
static int child_lacks_table(kmod_region_t *region)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        _exit(msync((void*)region->table, KMOD_PAGE, MS_ASYNC) == 0);
    }
    waitpid(pid, &status, 0);
    return status == 0;
}

void abi_strangers(int dev, char *memory, const char *self)
{
    kmod_region_t region;

    kmod_region_open(&region, dev, memory, KMOD_SLICE, -1);
    TAP_CHECK(child_refused(dev, region.number, memory),
              "a forked child is refused by all");
    TAP_CHECK(exec_refused(dev, self), "so is a program after exec");
    TAP_CHECK(child_lacks_table(&region),
              "a child has no mapping of the table");
    TAP_CHECK(kmod_in(&region, memory, 0) == 0,
              "the parent goes on as before");
    kmod_region_close(&region);
}

static void parameter(const char *name, unsigned value)
{
    char path[128], text[16];
    int fd, len;

    snprintf(path, sizeof(path), "/sys/module/nprdma/parameters/%s", name);
    len = snprintf(text, sizeof(text), "%u", value);
    fd  = open(path, O_WRONLY);
    if ((fd < 0) || (write(fd, text, len) != len)) {
        kmod_bail(path);
    }
    close(fd);
}

static void bounds_of_tables(int dev, char *memory)
{
    int region, more;

    parameter("user_mb", 1);
    TAP_CHECK(kmod_create(dev, memory, 1ul << 30, 0) == -EDQUOT,
              "a table above the user's bound is EDQUOT");
    region = kmod_create(dev, memory, 900ul << 20, 0);
    TAP_CHECK(region > 0, "one below it is not");
    more = kmod_create(dev, memory, 200ul << 20, 0);
    TAP_CHECK(more == -EDQUOT, "but together they would be above it");
    TAP_CHECK(kmod_destroy(dev, region) == 0, "the first ends");
    more = kmod_create(dev, memory, 200ul << 20, 0);
    TAP_CHECK(more > 0, "then there is room for the other");
    kmod_destroy(dev, more);
    region = kmod_create(dev, (void*)KMOD_SLICE, 992ul << 20, 0);
    TAP_CHECK(kmod_range(dev, NPRDMA_IOC_SWAP_OUT, region, (void*)KMOD_SLICE,
                         KMOD_SLICE, 0) == -EDQUOT,
              "the states of pages count too");
    kmod_destroy(dev, region);
    parameter("user_mb", 0);
    TAP_CHECK(kmod_counters(dev).kernel_bytes == 0, "all of it is returned");
}

/* Opens one more context as these users, and says what its user is charged for;
 * ends a child */
static void user_child(uid_t real, uid_t effective)
{
    int dev;

    if (setresuid(real, effective, 0) != 0) {
        _exit(2);
    }
    dev = kmod_open();
    if (dev < 0) {
        _exit(3);
    }
    _exit(kmod_info(dev).table_used > 0);
}

static int user_charged(uid_t real, uid_t effective)
{
    int status = -1;
    pid_t pid;

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        user_child(real, effective);
    }
    waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* As RLIMITs do: a program that acts as others has no bounds for each of
 * them */
static void bounds_of_users(int dev, char *memory)
{
    int region = kmod_create(dev, memory, KMOD_SLICE, 0);
    struct stat stat;

    if ((lstat(NPRDMA_DEVICE, &stat) != 0) ||
        (chmod(NPRDMA_DEVICE, 0666) != 0)) {
        kmod_bail(NPRDMA_DEVICE);
    }
    TAP_CHECK(user_charged(0, 65534) == 1,
              "another effective user has no bounds of its own");
    TAP_CHECK(user_charged(65534, 65534) == 0, "but another real one has");
    chmod(NPRDMA_DEVICE, stat.st_mode & 07777);
    kmod_destroy(dev, region);
}

static long meminfo(const char *name)
{
    char line[128];
    long value = -1;
    FILE *file = fopen("/proc/meminfo", "r");

    while ((value < 0) && (fgets(line, sizeof(line), file) != NULL)) {
        if (strncmp(line, name, strlen(name)) == 0) {
            value = strtol(line + strlen(name) + 1, NULL, 10);
        }
    }
    fclose(file);
    return value;
}

/* Some end by DESTROY, some with their context, and some are outlived by what
 * they export */
static void leak_round(char *memory, unsigned regions)
{
    unsigned i;
    int dev = -1, fd, region;

    for (i = 0; i < regions; ++i) {
        if (dev < 0) {
            dev = kmod_open();
        }
        region = kmod_create(dev, memory, LEAK_LENGTH, 0);
        if ((region < 0) ||
            (kmod_fault(dev, region, memory, 4 * KMOD_PAGE, NPRDMA_FAULT_WRITE,
                        NULL) != 0)) {
            kmod_bail("a region");
        }
        fd = (i % 3 == 0) ? kmod_export(dev, region, NPRDMA_EXPORT_READ) : -1;
        if (i % 2 == 0) {
            kmod_destroy(dev, region);
        }
        if (i % 10 == 9) {
            close(dev);
            dev = -1;
        }
        if (fd >= 0) {
            close(fd);
        }
    }
    if (dev >= 0) {
        close(dev);
    }
}

/* Slab and free pages; what is freed after a grace period is waited for */
static int leak_none(const char *name, long before, int sign)
{
    unsigned tries;
    long grown = 0;

    for (tries = 0; tries < 100; ++tries) {
        grown = sign * (meminfo(name) - before);
        if (grown < LEAK_KB) {
            return 1;
        }
        usleep(100000);
    }
    printf("# %s changed by %ld kB\n", name, grown);
    return 0;
}

void abi_bounds(int dev, char *memory)
{
    bounds_of_tables(dev, memory);
    bounds_of_users(dev, memory);
}

void abi_leaks(void)
{
    const char *some = getenv("KMOD_LEAK_REGIONS");
    unsigned regions = (some != NULL) ? strtoul(some, NULL, 0) : LEAK_REGIONS;
    char *memory     = kmod_map(LEAK_LENGTH);
    long slab, percpu, vmalloc;
    int dev;

    leak_round(memory, regions / 10);
    slab    = meminfo("SUnreclaim:");
    percpu  = meminfo("Percpu:");
    vmalloc = meminfo("VmallocUsed:");
    leak_round(memory, regions);
    TAP_CHECK(leak_none("SUnreclaim:", slab, 1) &&
              leak_none("Percpu:", percpu, 1) &&
              leak_none("VmallocUsed:", vmalloc, 1),
              "after %u regions slab and vmalloc are where they were",
              regions);
    dev = kmod_open();
    TAP_CHECK(kmod_counters(dev).kernel_bytes == 0,
              "and no table is left");
    close(dev);
    munmap(memory, LEAK_LENGTH);
}
