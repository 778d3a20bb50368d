/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What soft0 needs, each tried for real.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include "nprdma/start.h"
#include "nprdma/dev/soft/peer.h"
#include "nprdma/dev/soft/sock.h"
#include "nprdma/dev/soft/vm.h"
#include "nprdma/face/soft.h"
#include "nprdma/segment.h"

#include <uct/api/uct.h>

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* A ring as the transport makes it by default */
#define INFO_SLOTS        128
#define INFO_PAYLOAD      (32 * 1024)
#define INFO_PAYLOAD_WIDE (2 * 1024 * 1024) /* as a link is by default */

/* Active message id and content that the two processes exchange */
#define INFO_AM_ID        7
#define INFO_AM_WORD      UINT64_C(0x6e7072646d610001)

/* Descriptors of a process with UCX and Open MPI before it talks to any peer */
#define INFO_BASE_FILES   32


const char *info_read_line(const char *path, char *buf, size_t size)
{
    FILE *file = fopen(path, "re");

    if ((file == NULL) || (fgets(buf, size, file) == NULL)) {
        buf[0] = '\0';
    }
    if (file != NULL) {
        fclose(file);
    }
    buf[strcspn(buf, "\n")] = '\0';
    return buf;
}

static info_result_t info_check_segment(char *text, size_t size)
{
    static const char word[] = "seen on both sides";
    size_t len               = np_page_align(
            np_link_shm_size(INFO_SLOTS, INFO_PAYLOAD_WIDE));
    void *own = NULL, *other;
    char noexec[16];
    int fd, same = 0;

    if (np_segment_create("nprdma-info", len, &own, &fd) != UCS_OK) {
        info_read_line("/proc/sys/vm/memfd_noexec", noexec, sizeof(noexec));
        snprintf(text, size, "%s%s", info_log_text, (noexec[0] == '2') ?
                 ". Also set vm.memfd_noexec to 0 or 1 (it is 2)" : "");
        return INFO_MISSING;
    }

    if (np_segment_map(fd, len, &other) == UCS_OK) {
        memcpy(own, word, sizeof(word));
        same = (memcmp(other, word, sizeof(word)) == 0);
        np_segment_unmap(other, len);
    }
    np_segment_unmap(own, len);
    close(fd);

    if (!same) {
        snprintf(text, size, "%s", (info_log_text[0] != '\0') ? info_log_text :
                 "two mappings of a memfd differ. Use another kernel");
        return INFO_MISSING;
    }
    snprintf(text, size, "sealed memfd of %zu bytes", len);
    return INFO_OK;
}

/* One message with a descriptor from one end to the other */
static ucs_status_t info_pass_fd(int from, int to)
{
    const np_msg_t out = {.type = NP_MSG_SEGMENT, .version = NP_WIRE_VERSION};
    int fds[NP_MSG_MAX_FDS];
    ucs_status_t status;
    unsigned num_fds;
    np_msg_t in;
    int fd;

    /* a memfd, as all descriptors that are sent */
    fd = memfd_create("nprdma-check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (fd < 0) {
        return UCS_ERR_NO_MEMORY;
    }

    status = np_sock_send(from, &out, &fd, 1);
    close(fd);
    if (status != UCS_OK) {
        return status;
    }

    status = np_sock_recv(to, &in, fds, &num_fds);
    if (status == UCS_OK) {
        close(fds[0]);
    }
    return status;
}

static int info_is_self(const np_sock_cred_t *cred)
{
    return (cred->pid == getpid()) && (cred->uid == geteuid());
}

/* Connect with a listener of our own */
static ucs_status_t info_try_socket(int listen_fd, uint64_t id)
{
    np_sock_cred_t cred, other;
    ucs_status_t status;
    int client, server, spare = -1;

    status = np_sock_connect(id, &client, &cred);
    if (status != UCS_OK) {
        return status;
    }

    status = np_sock_accept(listen_fd, &spare, &server, &other);
    if (status == UCS_OK) {
        status = info_pass_fd(client, server);
        if ((status == UCS_OK) &&
            (!info_is_self(&cred) || !info_is_self(&other))) {
            status = UCS_ERR_REJECTED;
        }
        close(server);
    }
    close(client);
    return status;
}

static info_result_t info_check_socket(char *text, size_t size)
{
    ucs_status_t status;
    uint64_t id;
    int fd;

    if (getrandom(&id, sizeof(id), 0) != sizeof(id)) {
        snprintf(text, size, "no random bytes: %s. Let seccomp allow "
                 "getrandom", strerror(errno));
        return INFO_MISSING;
    }

    status = np_sock_listen(id, &fd);
    if (status == UCS_OK) {
        status = info_try_socket(fd, id);
        close(fd);
    }

    if (status != UCS_OK) {
        snprintf(text, size, "%s. Let seccomp and the security module allow "
                 "abstract unix sockets",
                 (info_log_text[0] != '\0') ? info_log_text :
                 ucs_status_string(status));
        return INFO_MISSING;
    }
    snprintf(text, size, "descriptors and credentials pass");
    return INFO_OK;
}

/* The child's part: connect with the parent's port, send one message */
static int info_send_word(const np_engine_config_t *engine,
                          const np_port_config_t *config,
                          const np_port_addr_t *addr)
{
    static const np_user_t user;
    ucs_status_t status;
    np_link_t link;
    np_slot_t *slot;
    np_port_t *port;
    uint64_t word = INFO_AM_WORD;

    alarm(INFO_CHILD_LIMIT);
    if ((np_engine_init(engine) != UCS_OK) ||
        (np_port_open(config, &np_proto_ops, &user, &port) != UCS_OK)) {
        return 1;
    }

    np_link_init(&link, port, addr);
    do {
        status = np_soft_reserve_inline(&link, &slot);
    } while (status == UCS_ERR_NO_RESOURCE);
    if (status != UCS_OK) {
        return 1;
    }

    memcpy(slot->data, &word, sizeof(word));
    np_fast_send_inline(&link, slot, INFO_AM_ID, sizeof(word));
    return 0;
}

static void info_take_word(void *arg, uint8_t id, void *data, unsigned len)
{
    const uint64_t word = INFO_AM_WORD;

    if ((id == INFO_AM_ID) && (len == sizeof(word)) &&
        (memcmp(data, &word, sizeof(word)) == 0)) {
        *(int*)arg = 1;
    }
}

static int info_receive_word(np_port_t *port, pid_t child)
{
    int has_exited, received = 0;

    /* What was sent before its exit is in the ring: look once more then */
    do {
        has_exited = (waitpid(child, NULL, WNOHANG) != 0);
        np_port_housekeep(port);
        np_port_poll(port, info_take_word, &received);
    } while (!received && !has_exited);

    if (!has_exited) {
        waitpid(child, NULL, 0);
    }
    return received;
}

static info_result_t info_check_message(char *text, size_t size)
{
    static const np_engine_config_t engine = {
        .peer_users  = NP_PEER_USERS_SAME,
        .single_copy = NP_SINGLE_COPY_AUTO,
        .share_min   = 256 * 1024,
        .share_chunk = 128 * 1024
    };
    const np_port_config_t config = {
        .data_slots   = INFO_SLOTS,
        .payload_size = INFO_PAYLOAD
    };
    static const np_user_t user;
    np_port_addr_t addr;
    np_port_t *port;
    int received = 0;
    char *said;
    pid_t child;

    said = mmap(NULL, INFO_LINE, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (said == MAP_FAILED) {
        snprintf(text, size, "no shared memory: %s. Check 'ulimit -v' and the "
                 "memory limit", strerror(errno));
        return INFO_MISSING;
    }

    if ((np_engine_init(&engine) == UCS_OK) &&
        (np_port_open(&config, &np_proto_ops, &user, &port) == UCS_OK)) {
        np_port_get_addr(port, &addr);
        child = fork();
        if (child == 0) {
            received = info_send_word(&engine, &config, &addr);
            memcpy(said, info_log_text, INFO_LINE);
            _exit(received);
        }
        received = (child > 0) && info_receive_word(port, child);
        np_proto_close(port);
    }

    if (!received) {
        snprintf(text, size, "%s", (info_log_text[0] != '\0') ? info_log_text :
                 (said[0] != '\0') ? said :
                 "none arrived at another process. See what else is missing");
    }
    munmap(said, INFO_LINE);
    if (!received) {
        return INFO_MISSING;
    }
    snprintf(text, size, "sent through a ring to another process");
    return INFO_OK;
}

static info_result_t info_check_vm(char *text, size_t size)
{
    char cure[INFO_LINE / 2];

    if (np_vm_missing(cure, sizeof(cure)) != NULL) {
        snprintf(text, size, "the kernel refuses process_vm_readv: data goes "
                 "through the rings, which is slower. Cure: %s", cure);
        return INFO_WARNING;
    }
    snprintf(text, size, "process_vm_readv works between two processes");
    return INFO_OK;
}

static info_result_t info_check_membarrier(char *text, size_t size)
{
    if (!np_engine.has_membarrier) {
        snprintf(text, size, "the kernel refuses it: every message costs a "
                 "fence and a locked instruction. Let seccomp allow "
                 "membarrier, or use a kernel with CONFIG_MEMBARRIER");
        return INFO_WARNING;
    }
    snprintf(text, size, "global, expedited");
    return INFO_OK;
}

static info_result_t info_check_files(char *text, size_t size)
{
    long cpus = sysconf(_SC_NPROCESSORS_ONLN), peers;
    struct rlimit limit;

    getrlimit(RLIMIT_NOFILE, &limit);
    peers = (limit.rlim_cur <= INFO_BASE_FILES) ? 0 :
            (long)(ucs_min(limit.rlim_cur, (rlim_t)INT_MAX) -
                   INFO_BASE_FILES) / NP_SOCK_FDS;
    if (peers < cpus) {
        snprintf(text, size, "'ulimit -n' is %lu, which is enough for %ld "
                 "peers; this host has %ld CPUs. Set it to %ld or more",
                 (unsigned long)limit.rlim_cur, peers, cpus,
                 INFO_BASE_FILES + (NP_SOCK_FDS * cpus) + 64);
        return (peers == 0) ? INFO_MISSING : INFO_WARNING;
    }
    snprintf(text, size, "'ulimit -n' is %lu, enough for %ld peers",
             (unsigned long)limit.rlim_cur, peers);
    return INFO_OK;
}

const info_check_t info_checks[] = {
    {"file descriptors",       info_check_files},
    {"shared memory segments", info_check_segment},
    {"unix sockets",           info_check_socket},
    {"a message over soft0",   info_check_message},
    {"direct access to peers", info_check_vm},
    {"membarrier",             info_check_membarrier},
    {"RDMA devices",           info_check_verbs},
    {"UCX",                    info_check_ucx},
    {"the plug-in",            info_check_plugin},
    {"the preload stub",       info_check_stub},
    {"the environment",        info_check_env}
};

const unsigned info_num_checks = sizeof(info_checks) / sizeof(info_checks[0]);
