/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Segments: sealed memfds.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "segment.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#ifndef MFD_NOEXEC_SEAL
#  define MFD_NOEXEC_SEAL 0x0008U
#endif

#define NP_SEGMENT_SEALS (F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL)


size_t np_page_align(size_t size)
{
    size_t page = sysconf(_SC_PAGESIZE);

    return (size + page - 1) & ~(page - 1);
}

/* Not executable where the kernel knows how (6.3): some insist on it */
static int np_segment_open(const char *name)
{
    const unsigned flags = MFD_CLOEXEC | MFD_ALLOW_SEALING;
    int fd;

    fd = memfd_create(name, flags | MFD_NOEXEC_SEAL);
    return ((fd < 0) && (errno == EINVAL)) ? memfd_create(name, flags) : fd;
}

/* As ftruncate(), but beyond RLIMIT_FSIZE an error and no signal */
static int np_segment_resize(int fd, size_t size)
{
    struct rlimit limit;

    if ((getrlimit(RLIMIT_FSIZE, &limit) == 0) && (size > limit.rlim_cur)) {
        errno = EFBIG;
        return -1;
    }

    return ftruncate(fd, size);
}

ucs_status_t np_segment_create_part(const char *name, size_t size, size_t part,
                                    void **addr, int *fd)
{
    const char *what;
    void *ptr;

    what = "memfd_create()";
    *fd  = np_segment_open(name);
    if (*fd < 0) {
        goto err;
    }

    what = "ftruncate()";
    if (np_segment_resize(*fd, size) != 0) {
        goto err_close;
    }

    what = "sealing";
    if (fcntl(*fd, F_ADD_SEALS, NP_SEGMENT_SEALS) != 0) {
        goto err_close;
    }

    what = "mmap()";
    ptr  = mmap(*addr, part, PROT_READ | PROT_WRITE, MAP_SHARED, *fd, 0);
    if (ptr == MAP_FAILED) {
        goto err_close;
    }

    *addr = ptr;
    return UCS_OK;

err_close:
    close(*fd);
    *fd = -1;
err:
    np_error("no shared memory segment '%s' of %zu bytes: %s failed: %m. "
             "Check 'ulimit -v', 'ulimit -f', 'ulimit -n' and the memory "
             "limit of the job", name, size, what);
    return UCS_ERR_NO_MEMORY;
}

ucs_status_t np_segment_create(const char *name, size_t size, void **addr,
                               int *fd)
{
    return np_segment_create_part(name, size, size, addr, fd);
}

ucs_status_t np_segment_map_part(int fd, size_t size, size_t part, void **addr)
{
    struct statfs fs;
    struct stat st;
    int seals;
    void *ptr;

    /* huge pages that its owner takes out of the file may not come back, and be
     * a signal */
    seals = fcntl(fd, F_GET_SEALS);
    if ((seals < 0) || !(seals & F_SEAL_SHRINK) || (fstat(fd, &st) != 0) ||
        ((size_t)st.st_size != size) || (fstatfs(fd, &fs) != 0) ||
        (fs.f_type != TMPFS_MAGIC)) {
        np_error("a peer sent a segment that is not a sealed memfd of %zu "
                 "bytes", size);
        return UCS_ERR_INVALID_PARAM;
    }

    ptr = mmap(NULL, part, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (ptr == MAP_FAILED) {
        np_error("cannot map a peer's segment of %zu bytes: %m. Check "
                 "'ulimit -v' and vm.max_map_count", part);
        return UCS_ERR_NO_MEMORY;
    }

    *addr = ptr;
    return UCS_OK;
}

ucs_status_t np_segment_map(int fd, size_t size, void **addr)
{
    return np_segment_map_part(fd, size, size, addr);
}

void *np_segment_map_again(void *addr, size_t size)
{
    void *again;

    /* of an old size of 0 mremap() makes a second mapping, if it is shared */
    again = mremap(addr, 0, size, MREMAP_MAYMOVE);
    return (again == MAP_FAILED) ? NULL : again;
}

void np_segment_unmap(void *addr, size_t size)
{
    if (munmap(addr, size) != 0) {
        np_warn("munmap(%p, %zu) failed: %m", addr, size);
    }
}
