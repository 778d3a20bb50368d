/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Paths of an export. The kernel resolves them beneath its root (openat2), so
 * that nobody has to think of "..", of symbolic links, or of who renames what
 * between a check and its use.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "opened.h"
#include "path.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

/* The kernel may say that a path is to be resolved again: so often */
#define NF_PATH_TRIES  32


int nf_path_open(const nf_export_t *export, const char *path, int flags,
                 mode_t mode)
{
    struct open_how how = {
        .flags   = flags | O_CLOEXEC,
        .mode    = (flags & O_CREAT) ? (mode & 0777) : 0,
        .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS
    };
    unsigned tries = 0;
    long fd;

    path += strspn(path, "/");
    do {
        /* EAGAIN: somebody renames; a lease of another program is not waited
         * for */
        fd = syscall(SYS_openat2, export->root, (*path == '\0') ? "." : path,
                     &how, sizeof(how));
    } while ((fd < 0) && ((errno == EAGAIN) || (errno == EINTR)) &&
             (++tries < NF_PATH_TRIES));
    return (fd < 0) ? -errno : fd;
}

int nf_path_fill(int fd, nf_stat_t *stat)
{
    struct statx st;

    if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_BTIME, &st) !=
        0) {
        return -errno;
    }

    *stat = (nf_stat_t){
        .device     = makedev(st.stx_dev_major, st.stx_dev_minor),
        .inode      = st.stx_ino,
        .size       = st.stx_size,
        .mtime_sec  = st.stx_mtime.tv_sec,
        .mtime_nsec = st.stx_mtime.tv_nsec,
        .mode       = st.stx_mode,
        .uid        = st.stx_uid,
        .gid        = st.stx_gid
    };
    if (st.stx_mask & STATX_BTIME) {
        stat->birth_sec  = st.stx_btime.tv_sec;
        stat->birth_nsec = st.stx_btime.tv_nsec;
    }
    return 0;
}

/* The directory that a path's last name is in, and this name. Returns a
 * descriptor or a negative errno. */
static int nf_path_parent(const nf_export_t *export, const char *path,
                          char name[NAME_MAX + 1])
{
    char parent[NF_PATH_MAX + 1];
    const char *slash;
    size_t len = strlen(path);

    while ((len > 0) && (path[len - 1] == '/')) {
        --len; /* as mkdir() takes it */
    }
    snprintf(parent, sizeof(parent), "%.*s", (int)len, path);
    slash = strrchr(parent, '/');
    slash = (slash == NULL) ? parent : (slash + 1);
    len   = strlen(slash);
    if ((len == 0) || (strcmp(slash, ".") == 0) || (strcmp(slash, "..") == 0)) {
        return -EINVAL;
    }

    if (len > NAME_MAX) {
        return -ENAMETOOLONG;
    }

    memcpy(name, slash, len + 1);
    parent[slash - parent] = '\0';
    return nf_path_open(export, parent, O_PATH | O_DIRECTORY, 0);
}

int nf_path_stat(const nf_export_t *export, const char *path, nf_stat_t *stat)
{
    int fd = nf_path_open(export, path, O_PATH, 0), ret;

    if (fd < 0) {
        return fd;
    }

    ret = nf_path_fill(fd, stat);
    close(fd);
    return ret;
}

static int nf_path_may_write(const nf_export_t *export)
{
    return export->is_readonly ? -EROFS : 0;
}

/* Make a directory, or remove what has this name */
static int nf_path_change(const nf_export_t *export, const char *path,
                          int is_new, unsigned mode)
{
    int ret = nf_path_may_write(export), parent;
    char name[NAME_MAX + 1];

    if (ret != 0) {
        return ret;
    }

    parent = nf_path_parent(export, path, name);
    if (parent < 0) {
        return parent;
    }

    ret = is_new ? mkdirat(parent, name, mode) : unlinkat(parent, name, mode);
    ret = (ret == 0) ? 0 : -errno;
    close(parent);
    return ret;
}

int nf_path_mkdir(const nf_export_t *export, const char *path, mode_t mode)
{
    return nf_path_change(export, path, 1, mode & 0777);
}

int nf_path_remove(const nf_export_t *export, const char *path, int is_dir)
{
    return nf_path_change(export, path, 0, is_dir ? AT_REMOVEDIR : 0);
}

int nf_path_rename(const nf_export_t *export, const char *from, const char *to)
{
    char old_name[NAME_MAX + 1], new_name[NAME_MAX + 1];
    int ret = nf_path_may_write(export), old_parent, new_parent;

    if (ret != 0) {
        return ret;
    }

    old_parent = nf_path_parent(export, from, old_name);
    if (old_parent < 0) {
        return old_parent;
    }

    new_parent = nf_path_parent(export, to, new_name);
    if (new_parent < 0) {
        close(old_parent);
        return new_parent;
    }

    ret = (renameat(old_parent, old_name, new_parent, new_name) == 0) ? 0 :
          -errno;
    close(new_parent);
    close(old_parent);
    return ret;
}
