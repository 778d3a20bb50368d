/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lets other processes of this host read a file by its offsets, until the input
 * ends.
 *
 *     cc -o share share.c $(pkg-config --cflags --libs nprdma ucx)
 *     UCX_TLS=nprdma nprdma-run ./share FILE TICKET
 *
 * TICKET is a file that is written for the readers: the address of this
 * process's worker, and a key.
 */
#include <nprdma/nprdma_file_ucp.h>

#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

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

/* The file may grow to 1 TiB while it is shared */
static void export_file(const char *path, nprdma_filekey_t *key)
{
    nprdma_file_t *file;
    int fd  = open(path, O_RDONLY);
    int ret = (fd < 0) ? -1 : nprdma_file_create(1ull << 40, &file);

    if (fd < 0) {
        perror(path);
        exit(1);
    }

    if (ret == 0) {
        ret = nprdma_file_bind(file, fd, NPRDMA_FILE_READ);
    }
    if (ret == 0) {
        ret = nprdma_file_key(file, NPRDMA_FILE_READ, key);
    }
    if (ret != 0) {
        die(path, strerror(-ret));
    }
    close(fd); /* the file object has its own */
}

static void write_ticket(const char *path, const void *address,
                         size_t address_len, const void *key, size_t key_len)
{
    FILE *ticket = fopen(path, "w");

    if ((ticket == NULL) ||
        (fwrite(&address_len, sizeof(address_len), 1, ticket) != 1) ||
        (fwrite(address, address_len, 1, ticket) != 1) ||
        (fwrite(&key_len, sizeof(key_len), 1, ticket) != 1) ||
        (fwrite(key, key_len, 1, ticket) != 1) || (fclose(ticket) != 0)) {
        perror(path);
        exit(1);
    }
}

int main(int argc, char **argv)
{
    struct pollfd input                = {.fd = STDIN_FILENO, .events = POLLIN};
    ucp_params_t params                = {0};
    ucp_worker_params_t worker_params  = {0};
    size_t address_len, key_len;
    ucp_address_t *address;
    ucp_context_h context;
    nprdma_filekey_t key;
    ucp_worker_h worker;
    void *packed;
    char c;

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

    printf("%s is shared, until the input ends\n", argv[1]);
    fflush(stdout);
    do {
        while (ucp_worker_progress(worker) != 0) {
        }
    } while ((poll(&input, 1, 1) == 0) || (read(STDIN_FILENO, &c, 1) > 0));

    ucp_rkey_buffer_release(packed);
    ucp_worker_release_address(worker, address);
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
