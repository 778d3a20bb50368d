/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lets other processes of this host read a file by its offsets, until it is
 * stopped (^C).
 *
 *     cc -o share share.c $(pkg-config --cflags --libs nprdma ucx)
 *     nprdma-run ./share FILE TICKET
 *
 * TICKET is a file that is written for the readers: the address of this
 * process's worker, and a key.
 */
#include <nprdma/nprdma_file_ucp.h>

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static volatile sig_atomic_t is_stopped;

static void stop(int number)
{
    (void)number;
    is_stopped = 1;
}

static void die(const char *what, const char *why)
{
    fprintf(stderr, "share: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, ucs_status_t status)
{
    if (status != UCS_OK) {
        die(what, ucs_status_string(status));
    }
}

static void check_file(const char *what, int ret)
{
    if (ret != 0) {
        die(what, (ret == -ENOTCONN) ? "start me by nprdma-run" :
                                       strerror(-ret));
    }
}

/* The file may grow to 64 GiB while it is shared: all keys of a process
 * together have 16 TiB, so ask for no more than is needed */
static void export_file(const char *path, nprdma_filekey_t *key)
{
    nprdma_file_t *file;
    int fd = open(path, O_RDONLY);

    if (fd < 0) {
        perror(path);
        exit(1);
    }

    check_file("nprdma_file_create", nprdma_file_create(1ull << 36, &file));
    check_file("nprdma_file_bind",
               nprdma_file_bind(file, fd, NPRDMA_FILE_READ));
    check_file("nprdma_file_key",
               nprdma_file_key(file, NPRDMA_FILE_READ, key));
    close(fd); /* the file object has its own */
}

/* It is there as a whole, or not at all */
static void write_ticket(const char *path, const void *address,
                         size_t address_len, const void *key, size_t key_len)
{
    char name[4096];
    FILE *ticket;

    snprintf(name, sizeof(name), "%s.new", path);
    ticket = fopen(name, "w");
    if ((ticket == NULL) ||
        (fwrite(&address_len, sizeof(address_len), 1, ticket) != 1) ||
        (fwrite(address, address_len, 1, ticket) != 1) ||
        (fwrite(&key_len, sizeof(key_len), 1, ticket) != 1) ||
        (fwrite(key, key_len, 1, ticket) != 1) || (fclose(ticket) != 0) ||
        (rename(name, path) != 0)) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    const struct timespec pause       = {0, 1000000};
    struct sigaction action           = {0};
    ucp_params_t params               = {0};
    ucp_worker_params_t worker_params = {0};
    size_t address_len, key_len;
    ucp_address_t *address;
    ucp_context_h context;
    nprdma_filekey_t key;
    ucp_worker_h worker;
    void *packed;

    if (argc != 3) {
        die("usage", "share FILE TICKET");
    }

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_RMA;
    check("ucp_init", ucp_init(&params, NULL, &context));
    check("ucp_worker_create",
          ucp_worker_create(context, &worker_params, &worker));

    export_file(argv[1], &key);
    check("nprdma_file_pack_key",
          nprdma_file_pack_key(context, &key, &packed, &key_len));
    check("ucp_worker_get_address",
          ucp_worker_get_address(worker, &address, &address_len));
    write_ticket(argv[2], address, address_len, packed, key_len);

    printf("%s is shared, until ^C\n", argv[1]);
    fflush(stdout);
    action.sa_handler = stop;
    sigaction(SIGINT, &action, NULL);
    sigaction(SIGTERM, &action, NULL);
    while (!is_stopped) { /* nprdma answers peers without us, but sooner so */
        if (ucp_worker_progress(worker) == 0) {
            nanosleep(&pause, NULL);
        }
    }

    unlink(argv[2]);
    ucp_rkey_buffer_release(packed);
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
