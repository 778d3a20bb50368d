/* SPDX-License-Identifier: BSD-3-Clause */
/* Attaching: large regions, who pays for tables, how many. */

#include "kmod_edu.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#define WINDOWS_LARGE ((2ul << 30) + 5 * KMOD_PAGE)
#define WINDOWS_MAX   64u
#define WINDOWS_GROUP "/sys/fs/cgroup/kmod-windows"

static long group_value(const char *name)
{
    char path[128], text[32] = "";
    int fd;

    snprintf(path, sizeof(path), "%s/%s", WINDOWS_GROUP, name);
    fd = open(path, O_RDONLY);
    if ((fd < 0) || (read(fd, text, sizeof(text) - 1) <= 0)) {
        text[0] = '\0';
    }
    close(fd);
    return atol(text);
}

static int group_write(const char *group, const char *name, const char *text)
{
    char path[128];
    int fd, ret;

    snprintf(path, sizeof(path), "%s/%s", group, name);
    fd  = open(path, O_WRONLY);
    ret = write(fd, text, strlen(text));
    close(fd);
    return ret > 0;
}

/* Of Linux 6.1 VT-d's driver does not say whose tables they are */
static int kernel_charges(void)
{
    struct utsname name;
    unsigned major = 0, minor = 0;

    uname(&name);
    return (sscanf(name.release, "%u.%u", &major, &minor) == 2) &&
           ((major > 6) || (minor >= 3));
}

/* All of it is absent, from its first page to its last */
static void test_large(kmod_region_t *region)
{
    static const uint64_t offsets[] = {
        0, KMOD_PAGE, (2ul << 20) - KMOD_PAGE, 2ul << 20, 1ul << 30,
        (2ul << 30) - KMOD_PAGE, 2ul << 30, WINDOWS_LARGE - KMOD_PAGE
    };
    unsigned i, wrong = 0;

    for (i = 0; i < sizeof(offsets) / sizeof(offsets[0]); ++i) {
        wrong += kmod_word(region, (char*)region->addr + offsets[i]) !=
                 NPRDMA_SIGNATURE;
    }
    TAP_CHECK(wrong == 0, "a large region is absent all over");
}

static void test_charge(int dev, int edu)
{
    const long tables = WINDOWS_LARGE / KMOD_PAGE * 8;
    char *memory      = kmod_map(WINDOWS_LARGE);
    kmod_region_t region;
    long before, after;
    int is_in;

    group_write("/sys/fs/cgroup", "cgroup.subtree_control", "+memory");
    mkdir(WINDOWS_GROUP, 0700);
    is_in  = group_write(WINDOWS_GROUP, "cgroup.procs", "0");
    before = group_value("memory.current");
    kmod_region_open(&region, dev, memory, WINDOWS_LARGE, edu);
    after = group_value("memory.current");
    printf("# %ld bytes charged for two windows of %ld bytes of tables\n",
           after - before, tables);
    if (!is_in || (before == 0) || !kernel_charges()) {
        printf("ok %u - tables are charged # SKIP not by this kernel\n",
               ++tap_count);
    } else {
        TAP_CHECK(after - before >= 2 * tables,
                  "the tables of views are charged to who attaches them");
    }
    test_large(&region);
    kmod_region_close(&region);
    munmap(memory, WINDOWS_LARGE);
    if (is_in) {
        group_write("/sys/fs/cgroup", "cgroup.procs", "0");
    }
    rmdir(WINDOWS_GROUP);
}

static void test_count(int dev, int edu)
{
    char *memory = kmod_map(KMOD_PIECE);
    int region   = kmod_create(dev, memory, KMOD_PAGE, 0), ret;
    struct edu_attach attach = {.fd = kmod_export(dev, region,
                                                  NPRDMA_EXPORT_READ)};
    unsigned count;

    for (count = 0; count <= WINDOWS_MAX; ++count) {
        ret = ioctl(edu, EDU_IOC_ATTACH, &attach);
        if (ret != 0) {
            break;
        }
    }
    TAP_CHECK((count == WINDOWS_MAX) && (errno == EDQUOT),
              "a region is attached %u times at most (%u: %m)", WINDOWS_MAX,
              count);
    TAP_CHECK(kmod_counters(dev).attached == WINDOWS_MAX,
              "and what was refused leaves nothing");
    for (count = 0; count < EDU_SLOTS_ALL; ++count) {
        ioctl(edu, EDU_IOC_DETACH, count);
    }
    close(attach.fd);
    kmod_destroy(dev, region);
    munmap(memory, KMOD_PIECE);
}

void edu_windows(int dev, int edu)
{
    test_charge(dev, edu);
    test_count(dev, edu);
}
