/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Moving bytes between two processes by process_vm_readv and writev.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "vm.h"

#include "../../mem/access.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#define NP_YAMA_FILE "/proc/sys/kernel/yama/ptrace_scope"


static int np_vm_yama_scope(void)
{
    int scope = 0;
    FILE *file;

    file = fopen(NP_YAMA_FILE, "re");
    if (file != NULL) {
        if (fscanf(file, "%d", &scope) != 1) {
            scope = 0;
        }
        fclose(file);
    }
    return scope;
}

void np_vm_allow_peers(void)
{
    if ((np_vm_yama_scope() == 1) &&
        (prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0) != 0)) {
        np_debug("prctl(PR_SET_PTRACER) failed: %m");
    }
}

static ucs_status_t np_vm_error(void)
{
    switch (errno) {
    case EFAULT:
        return UCS_ERR_INVALID_ADDR;
    case EPERM:
    case EACCES:
    case ENOSYS:
        return UCS_ERR_UNSUPPORTED;
    case ESRCH:
        return UCS_ERR_CONNECTION_RESET;
    default:
        np_error("process_vm_readv/writev failed: %m");
        return UCS_ERR_IO_ERROR;
    }
}

/* Leave out the first @a done bytes of a list */
static void np_vm_advance(struct iovec **iov, size_t *iovcnt, size_t done)
{
    while (done >= (*iov)->iov_len) {
        done -= (*iov)->iov_len;
        ++(*iov);
        if (--(*iovcnt) == 0) {
            return;
        }
    }

    (*iov)->iov_base = UCS_PTR_BYTE_OFFSET((*iov)->iov_base, done);
    (*iov)->iov_len -= done;
}

static ucs_status_t
np_vm_move_self(np_dir_t dir, const np_iov_t *iov, size_t iovcnt,
                uint64_t remote, size_t *done)
{
    ucs_status_t status = UCS_OK;
    size_t i, some;

    for (i = 0; (i < iovcnt) && (status == UCS_OK); remote += iov[i++].len) {
        status = (dir == NP_DIR_GET) ?
                 np_access_read_some(iov[i].base, remote, iov[i].len, &some) :
                 np_access_write_some(remote, iov[i].base, iov[i].len, &some);
        *done += some;
    }
    return status;
}

ucs_status_t np_vm_move(np_dir_t dir, np_process_t *process,
                        const np_iov_t *iov, size_t iovcnt, uint64_t remote,
                        size_t *done)
{
    struct iovec vec[NP_MAX_IOV], *local = vec, there;
    size_t i, total = 0;
    ssize_t ret;

    *done = 0;
    if (process == NP_VM_SELF) {
        return np_vm_move_self(dir, iov, iovcnt, remote, done);
    }

    for (i = 0; i < iovcnt; ++i) {
        vec[i].iov_base = iov[i].base;
        vec[i].iov_len  = iov[i].len;
        total          += iov[i].len;
    }

    while (*done < total) {
        /* The call goes by the pid. Once it has found the process, it keeps its
         * memory. */
        if (ucs_unlikely(!np_process_has_pid(process))) {
            return UCS_ERR_CONNECTION_RESET;
        }

        there.iov_base = (void*)(remote + *done);
        there.iov_len  = total - *done;
        ret = (dir == NP_DIR_GET) ?
              process_vm_readv(process->pid, local, iovcnt, &there, 1, 0) :
              process_vm_writev(process->pid, local, iovcnt, &there, 1, 0);
        if (ret < 0) {
            return np_vm_error();
        }

        /* A short count means that the next page was not there, or that the
         * call had its limit; the next call tells which. */
        if (ret == 0) {
            return UCS_ERR_INVALID_ADDR;
        }

        *done += ret;
        if (*done < total) {
            np_vm_advance(&local, &iovcnt, ret);
        }
    }

    return UCS_OK;
}

static const char *np_vm_cure(char *buf, size_t size)
{
    int scope = np_vm_yama_scope();

    if (scope >= 2) {
        snprintf(buf, size, NP_YAMA_FILE " is %d: set it to 0 or 1", scope);
    } else {
        snprintf(buf, size, "let both processes run as one user, in one pid "
                 "namespace, with seccomp allowing process_vm_readv and "
                 "process_vm_writev (containers: --cap-add=SYS_PTRACE)");
    }
    return buf;
}

void np_vm_explain_refusal(int pid)
{
    static _Atomic int told;
    char cure[256];

    if (!atomic_exchange(&told, 1)) {
        np_warn("the kernel does not let this process reach the memory of "
                "process %d%s; data goes through the rings, which is slower. "
                "Cure: %s", pid,
                (pid == 0) ? " (one of another pid namespace)" : "",
                np_vm_cure(cure, sizeof(cure)));
    }
}

const char *np_vm_missing(char *buf, size_t size)
{
    uint64_t word = 0, copy = 0;
    np_iov_t iov  = {&copy, sizeof(copy)};
    int status    = 1;
    np_process_t parent;
    pid_t child;
    size_t done;

    /* A child that asks for its parent's memory is in a peer's place */
    np_vm_allow_peers();
    np_process_init(&parent);
    parent.pid = getpid();
    child      = fork();
    if (child == 0) {
        _exit(np_vm_move(NP_DIR_GET, &parent, &iov, 1, (uintptr_t)&word,
                         &done) != UCS_OK);
    }

    if ((child > 0) && (waitpid(child, &status, 0) == child) &&
        WIFEXITED(status) && (WEXITSTATUS(status) == 0)) {
        return NULL;
    }

    return np_vm_cure(buf, size);
}
