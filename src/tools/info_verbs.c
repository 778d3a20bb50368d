/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * RDMA devices: which there are, and what keeps them from working.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>

#ifdef HAVE_VERBS
#  include "nprdma/dev/verbs/views.h"

#  include <arpa/inet.h>
#endif


/* Bytes that a port registers by default: its buffers, as few as possible, and
 * what is registered of the program's memory at a time */
#define INFO_VERBS_BUFFERS (3300 * 1024)
#define INFO_VERBS_FEWEST  (64 * 1024)
#define INFO_VERBS_CHUNKS  (1024 * 1024)


static int info_verbs_exists(void)
{
    struct dirent *entry;
    int exists = 0;
    DIR *dir   = opendir(INFO_RDMA_DIR);

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        exists |= (entry->d_name[0] != '.');
    }
    if (dir != NULL) {
        closedir(dir);
    }
    return exists;
}

#ifdef HAVE_VERBS

/* Can this much be registered in addition to what is registered already? */
static struct ibv_mr *info_verbs_reg(np_nic_t *nic, void *memory, size_t size)
{
    struct ibv_mr *mr;

    return (np_nic_reg(nic, memory, size, IBV_ACCESS_LOCAL_WRITE, &mr) ==
            UCS_OK) ? mr : NULL;
}

/* What the limit of locked memory allows */
static info_result_t
info_verbs_limit(np_nic_t *nic, void *memory, char *text, size_t size)
{
    struct ibv_mr *buffers, *chunks = NULL;
    info_result_t result = INFO_OK;
    struct rlimit limit;

    getrlimit(RLIMIT_MEMLOCK, &limit);
    buffers = info_verbs_reg(nic, memory, INFO_VERBS_BUFFERS);
    if (buffers != NULL) {
        chunks = info_verbs_reg(nic, (char*)memory + INFO_VERBS_BUFFERS,
                                INFO_VERBS_CHUNKS);
    }

    if (chunks != NULL) {
        snprintf(text, size, "yes: %s", nic->name);
    } else if ((buffers != NULL) ||
               ((buffers = info_verbs_reg(nic, memory, INFO_VERBS_FEWEST)) !=
                NULL)) {
        snprintf(text, size, "yes: %s, but large transfers are copied into "
                 "messages, which is slower: 'ulimit -l' is %lu KiB. Set it "
                 "to 16384 or more for each rank", nic->name,
                 (unsigned long)(limit.rlim_cur / 1024));
        result = INFO_WARNING;
    } else {
        snprintf(text, size, "no: %s: not even %d KiB of buffers can be "
                 "registered: 'ulimit -l' is %lu KiB. Set it to 16384 or more",
                 nic->name, INFO_VERBS_FEWEST / 1024,
                 (unsigned long)(limit.rlim_cur / 1024));
        result = INFO_MISSING;
    }

    if (chunks != NULL) {
        np_nic_dereg(chunks);
    }
    if (buffers != NULL) {
        np_nic_dereg(buffers);
    }
    return result;
}

static info_result_t info_verbs_try(const char *name, char *text, size_t size)
{
    const size_t length = INFO_VERBS_BUFFERS + INFO_VERBS_CHUNKS;
    info_result_t result;
    np_nic_t *nic;
    void *memory;

    info_log_clear();
    if (np_nic_open(name, -1, &nic) != UCS_OK) {
        snprintf(text, size, "no: %s: %s", name, (info_log_text[0] != '\0') ?
                 info_log_text : "it cannot be opened");
        return INFO_MISSING;
    }

    memory = mmap(NULL, length, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
        snprintf(text, size, "no: no memory to try %s with", name);
        return INFO_MISSING;
    }

    result = info_verbs_limit(nic, memory, text, size);
    munmap(memory, length);
    return result;
}

info_result_t info_verbs_works(char *text, size_t size)
{
    info_result_t result = INFO_MISSING;
    np_nic_name_t *names;
    unsigned i, count;

    count = np_nic_list(&names);
    for (i = 0; (i < count) && (result == INFO_MISSING); ++i) {
        result = info_verbs_try(names[i].name, text, size);
    }
    free(names);
    if (count > 0) {
        return result;
    }

    if (info_verbs_exists()) {
        snprintf(text, size, "no: no RDMA device here has a port that is up "
                 "and can be opened. Bring its network interface up; see "
                 "'rdma link'; install ibverbs-providers; in a container, "
                 "pass /dev/infiniband");
    } else {
        snprintf(text, size, "no: no RDMA device here. Any will do, and so "
                 "will Soft-RoCE: rdma link add rxe0 type rxe netdev eth0");
    }
    return INFO_MISSING;
}

/* By views of the memory that this is in */
static info_result_t info_kmod_try(const char *name, char *text, size_t size)
{
    np_nic_views_t *views = NULL;
    char row[64]          = "";
    np_nic_t *nic;

    info_log_clear();
    if (np_nic_open(name, -1, &nic) == UCS_OK) {
        views = np_views_get(nic, np_arena_of((uintptr_t)text));
        np_views_wait(nic);
    }
    if ((views != NULL) && (np_views_state(views) == NP_VIEWS_READY)) {
        if (views->count > 1) {
            snprintf(row, sizeof(row), ", views are rows of regions of %zu MiB",
                     (size_t)(np_nic_view_size(nic) >> 20));
        }
        snprintf(text, size, "yes: %s (translations are replaced %s%s)", name,
                 (np_kmod_replaces() == NPRDMA_REPLACE_ATOMIC) ?
                 "by one store" : "with a moment without one", row);
        return INFO_OK;
    }

    snprintf(text, size, "no: %s: %s", name, (info_log_text[0] != '\0') ?
             info_log_text : "it cannot be opened");
    return INFO_MISSING;
}

info_result_t info_kmod_works(char *text, size_t size)
{
    info_result_t result = INFO_MISSING;
    np_nic_name_t *names;
    unsigned i, count;

    if (np_kmod_open() != UCS_OK) {
        snprintf(text, size, "no: %s", np_kmod_why());
        return INFO_MISSING;
    }

    snprintf(text, size, "no: no RDMA device here");
    count = np_nic_list(&names);
    for (i = 0; (i < count) && (result == INFO_MISSING); ++i) {
        result = info_kmod_try(names[i].name, text, size);
    }
    free(names);
    return result;
}

void info_verbs_names(char *text, size_t size)
{
    np_nic_name_t *names;
    unsigned i, count;
    size_t len = 0;

    text[0] = '\0';
    count   = np_nic_list(&names);
    for (i = 0; (i < count) && (len < size); ++i) {
        len += snprintf(text + len, size - len, " %s", names[i].name);
    }
    free(names);
}

void info_verbs_show(void)
{
    char gid[INET6_ADDRSTRLEN];
    np_nic_name_t *names;
    unsigned i, count;
    np_nic_t *nic;

    count = np_nic_list(&names);
    for (i = 0; i < count; ++i) {
        info_log_clear();
        if (np_nic_open(names[i].name, -1, &nic) != UCS_OK) {
            printf("port            %s: %s\n", names[i].name, info_log_text);
            continue;
        }
        inet_ntop(AF_INET6, nic->gid.raw, gid, sizeof(gid));
        printf("port            %s: %s, GID %d %s, MTU %d\n", nic->name,
               nic->is_roce ? "Ethernet" : "InfiniBand", nic->gid_index, gid,
               128 << nic->mtu);
    }
    free(names);
}

#else

info_result_t info_verbs_works(char *text, size_t size)
{
    snprintf(text, size, "no: built without libibverbs. Install "
             "libibverbs-dev, then configure and build again%s",
             info_verbs_exists() ? "" : "; and there is no RDMA device here");
    return INFO_MISSING;
}

info_result_t info_kmod_works(char *text, size_t size)
{
    snprintf(text, size, "no: built without libibverbs");
    return INFO_MISSING;
}

void info_verbs_names(char *text, size_t size)
{
    text[0] = '\0';
}

void info_verbs_show(void)
{
}

#endif

info_result_t info_check_verbs(char *text, size_t size)
{
    char found[INFO_LINE / 2];
    info_result_t result;

    result = info_verbs_works(found, sizeof(found));
    if ((result == INFO_MISSING) && !info_verbs_exists()) {
        snprintf(text, size, "none: peers on other hosts cannot be reached");
        return INFO_OK;
    }

    snprintf(text, size, "%s", strchr(found, ':') + 2);
    return (result == INFO_OK) ? INFO_OK : INFO_WARNING;
}
