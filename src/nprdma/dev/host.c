/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Which processes may reach each other through soft0.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "host.h"

#include "../engine.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>


static ssize_t np_read_file(const char *path, char *buf, size_t size)
{
    ssize_t len;
    int fd;

    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return -1;
    }

    len = read(fd, buf, size - 1);
    close(fd);
    if (len >= 0) {
        buf[len] = '\0';
    }
    return len;
}

/* FNV-1a */
static uint64_t np_hash(uint64_t hash, const void *data, size_t len)
{
    const uint8_t *byte = data;

    for (; len > 0; --len, ++byte) {
        hash = (hash ^ *byte) * UINT64_C(0x100000001b3);
    }
    return hash;
}

void np_host_addr_get(np_host_addr_t *addr)
{
    uint64_t hash = UINT64_C(0xcbf29ce484222325);
    char boot_id[64];
    struct stat st;
    ssize_t len;

    len = np_read_file("/proc/sys/kernel/random/boot_id", boot_id,
                       sizeof(boot_id));
    if (len > 0) {
        hash = np_hash(hash, boot_id, len);
    } else if (gethostname(boot_id, sizeof(boot_id)) == 0) {
        hash = np_hash(hash, boot_id, strnlen(boot_id, sizeof(boot_id)));
    }

    if (stat("/proc/self/ns/net", &st) == 0) {
        hash = np_hash(hash, &st.st_ino, sizeof(st.st_ino));
    }

    addr->host_id = hash;
    addr->uid     = np_engine.uid;
    addr->version = NP_WIRE_VERSION;
}

int np_host_is_reachable(const np_host_addr_t *addr)
{
    static _Atomic int told;
    np_host_addr_t own;

    np_host_addr_get(&own);
    if (addr->host_id != own.host_id) {
        return 0;
    }

    if (addr->version != own.version) {
        if (!atomic_exchange(&told, 1)) {
            np_error("a peer speaks version %u of nprdma's shared memory, "
                     "this process version %u: install the same nprdma for "
                     "both", addr->version, own.version);
        }
        return 0;
    }

    if ((addr->uid != own.uid) &&
        (np_engine.config.peer_users == NP_PEER_USERS_SAME)) {
        if (!atomic_exchange(&told, 1)) {
            np_error("a peer runs as user %u, this process as user %u: run "
                     "both as one user, or set UCX_NPRDMA_PEER_USERS=any",
                     addr->uid, own.uid);
        }
        return 0;
    }

    return 1;
}

/* Where a field of a stat file begins, counted from 1; NULL: not there */
static const char *np_host_stat_field(const char *path, char *buf, size_t size,
                                      unsigned number)
{
    char *field;
    unsigned i;

    if (np_read_file(path, buf, size) <= 0) {
        return NULL;
    }

    /* the name in field 2 may hold blanks, so count from its end */
    field = strrchr(buf, ')');
    for (i = 2; (field != NULL) && (i < number); ++i) {
        field = strchr(field + 1, ' ');
    }
    return (field == NULL) ? NULL : field + 1;
}

static uint64_t np_host_start_time(const char *path)
{
    char buf[1024];
    const char *field;

    field = np_host_stat_field(path, buf, sizeof(buf), 22);
    return (field == NULL) ? 0 : strtoull(field, NULL, 10);
}

uint64_t np_host_proc_start_time(int pid)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/stat", pid);
    return np_host_start_time(path);
}

uint64_t np_host_own_start_time(void)
{
    return np_host_start_time("/proc/self/stat");
}

int np_host_proc_runs(int pid, uint64_t start_time)
{
    uint64_t found = np_host_proc_start_time(pid);

    if ((found == 0) || (start_time == 0)) {
        /* it has ended, or we have no descriptor left to see that it has not */
        return (kill(pid, 0) == 0) || (errno != ESRCH);
    }
    return found == start_time;
}

int np_host_proc_is_stopped(int pid)
{
    char path[NAME_MAX + 64], buf[1024];
    struct dirent *task;
    int is_stopped = 0;
    const char *state;
    DIR *tasks;

    snprintf(path, sizeof(path), "/proc/%d/task", pid);
    tasks = opendir(path);
    if (tasks == NULL) {
        return 0;
    }

    while (!is_stopped && ((task = readdir(tasks)) != NULL)) {
        snprintf(path, sizeof(path), "/proc/%d/task/%s/stat", pid,
                 task->d_name);
        state   = np_host_stat_field(path, buf, sizeof(buf), 3);
        is_stopped = (state != NULL) && ((*state == 'D') || (*state == 'T') ||
                                      (*state == 't'));
    }

    closedir(tasks);
    return is_stopped;
}
