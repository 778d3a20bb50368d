/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reads a part of a file that share.c shares, with UCP alone.
 *
 *     cc -o read read.c $(pkg-config --cflags --libs ucx)
 *     nprdma-run ./read TICKET OFFSET LENGTH
 */
#include <ucp/api/ucp.h>

#include <stdio.h>
#include <stdlib.h>

static void die(const char *what, const char *why)
{
    fprintf(stderr, "read: %s: %s\n", what, why);
    exit(1);
}

static void check(const char *what, ucs_status_t status)
{
    if (status != UCS_OK) {
        die(what, ucs_status_string(status));
    }
}

static void *read_part(FILE *ticket)
{
    void *part = NULL;
    size_t len;

    if ((ticket == NULL) || (fread(&len, sizeof(len), 1, ticket) != 1) ||
        (len > 65536) || ((part = malloc(len)) == NULL) ||
        (fread(part, len, 1, ticket) != 1)) {
        die("ticket", "there is none, or not a whole one");
    }
    return part;
}

static void wait_for(const char *what, ucp_worker_h worker,
                     ucs_status_ptr_t request)
{
    ucs_status_t status = UCS_PTR_STATUS(request);

    if (UCS_PTR_IS_PTR(request)) {
        while ((status = ucp_request_check_status(request)) ==
               UCS_INPROGRESS) {
            ucp_worker_progress(worker);
        }
        ucp_request_free(request);
    }
    check(what, status);
}

int main(int argc, char **argv)
{
    const ucp_request_param_t none    = {0};
    ucp_params_t params               = {0};
    ucp_worker_params_t worker_params = {0};
    ucp_ep_params_t ep_params         = {0};
    uint64_t offset, length;
    ucp_context_h context;
    ucp_worker_h worker;
    ucp_rkey_h rkey;
    FILE *ticket;
    void *data;
    ucp_ep_h ep;

    if (argc != 4) {
        die("usage", "read TICKET OFFSET LENGTH");
    }
    ticket = fopen(argv[1], "r");
    offset = strtoull(argv[2], NULL, 0);
    length = strtoull(argv[3], NULL, 0);
    data   = malloc(length);
    if (data == NULL) {
        die("malloc", "no memory");
    }

    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features   = UCP_FEATURE_RMA;
    check("ucp_init", ucp_init(&params, NULL, &context));
    check("ucp_worker_create",
          ucp_worker_create(context, &worker_params, &worker));
    ep_params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    ep_params.address    = read_part(ticket);
    check("ucp_ep_create", ucp_ep_create(worker, &ep_params, &ep));
    check("ucp_ep_rkey_unpack",
          ucp_ep_rkey_unpack(ep, read_part(ticket), &rkey));

    wait_for("ucp_get_nbx", worker,
             ucp_get_nbx(ep, data, length, offset, rkey, &none));
    fwrite(data, length, 1, stdout);

    ucp_rkey_destroy(rkey);
    wait_for("ucp_ep_close_nbx", worker, ucp_ep_close_nbx(ep, &none));
    ucp_worker_destroy(worker);
    ucp_cleanup(context);
    return 0;
}
