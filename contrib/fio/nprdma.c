/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * An engine of fio for files of an nprdma-filed. Each job has a connection of
 * its own; filename= is a path of the server. contrib/fio.sh builds and runs
 * it.
 */

#include "fio.h"
#include "optgroup.h"

#include <nprdma/nprdma_remote.h>

/* Where the server is. fio wants its own word first. */
typedef struct nf_options {
    void *pad;
    char *host;
    char *port;
    char *socket;
    char *token;
} nf_options_t;

/* Of a job. Owner: its thread. */
typedef struct nf_job {
    nprdma_server_t *server;
    struct io_u     **ended;    /* calls that fio has not asked for yet */
    unsigned        num_ended;
    unsigned        next_ended; /* of those that it is told of */
} nf_job_t;

static struct fio_option options[] = {
    {
        .name     = "host",
        .lname    = "nprdma host",
        .type     = FIO_OPT_STR_STORE,
        .off1     = offsetof(nf_options_t, host),
        .help     = "Host of the server; default: this one",
        .category = FIO_OPT_C_ENGINE,
        .group    = FIO_OPT_G_INVALID,
    },
    {
        .name     = "port",
        .lname    = "nprdma port",
        .type     = FIO_OPT_STR_STORE,
        .off1     = offsetof(nf_options_t, port),
        .help     = "Port of the server, with host; default: 7473",
        .category = FIO_OPT_C_ENGINE,
        .group    = FIO_OPT_G_INVALID,
    },
    {
        .name     = "socket",
        .lname    = "nprdma socket",
        .type     = FIO_OPT_STR_STORE,
        .off1     = offsetof(nf_options_t, socket),
        .help     = "Socket of a server of this host",
        .category = FIO_OPT_C_ENGINE,
        .group    = FIO_OPT_G_INVALID,
    },
    {
        .name     = "token",
        .lname    = "nprdma token",
        .type     = FIO_OPT_STR_STORE,
        .off1     = offsetof(nf_options_t, token),
        .help     = "File with the server's token, with host",
        .category = FIO_OPT_C_ENGINE,
        .group    = FIO_OPT_G_INVALID,
    },
    {
        .name     = NULL,
    },
};


static void nf_say(void *arg, const char *line)
{
    log_err("nprdma: %s\n", line);
}

/* The sizes that files are to have. Nobody is asked: jobs connect when they
 * run. */
static int nf_setup(struct thread_data *td)
{
    struct fio_file *file;
    unsigned i;

    if (td->o.size == 0) {
        log_err("nprdma: size= is needed\n");
        return 1;
    }

    for_each_file(td, file, i) {
        file->real_file_size = td->o.file_size_low ? td->o.file_size_low :
                               (td->o.size / td->o.nr_files);
        file->filetype       = FIO_TYPE_FILE;
        fio_file_set_size_known(file);
    }
    return 0;
}

static int nf_init(struct thread_data *td)
{
    const nf_options_t *where     = td->eo;
    nprdma_server_params_t params = {
        .size     = sizeof(params),
        .host     = where->host,
        .port     = where->port,
        .socket   = where->socket,
        .token    = where->token,
        .patience = 30,
        .say      = nf_say,
    };
    nf_job_t *job = calloc(1, sizeof(*job));
    int ret;

    if (job == NULL) {
        return ENOMEM;
    }

    job->ended = calloc(td->o.iodepth, sizeof(*job->ended));
    ret        = (job->ended == NULL) ? -ENOMEM :
                 nprdma_server_connect(&params, &job->server);
    if (ret != 0) {
        free(job->ended);
        free(job);
        return -ret;
    }

    td->io_ops_data = job;
    return 0;
}

static void nf_cleanup(struct thread_data *td)
{
    nf_job_t *job = td->io_ops_data;

    if (job != NULL) {
        nprdma_server_disconnect(job->server);
        free(job->ended);
        free(job);
        td->io_ops_data = NULL;
    }
}

/* Opened for writing it has its size before it is measured */
static int nf_open_file(struct thread_data *td, struct fio_file *file)
{
    const uint64_t size   = file->real_file_size;
    nf_job_t *job         = td->io_ops_data;
    nprdma_remote_t *open = NULL;
    struct stat st        = {0};
    int ret;

    ret = nprdma_remote_open(job->server, file->file_name,
                             td_write(td) ? (O_RDWR | O_CREAT) : O_RDONLY, 0600,
                             &open);
    ret = (ret != 0) ? ret : nprdma_remote_fstat(open, &st);
    if ((ret == 0) && ((uint64_t)st.st_size < size)) {
        if (td_write(td)) {
            ret = nprdma_remote_allocate(open, size);
            ret = (ret != 0) ? ret : nprdma_remote_truncate(open, size);
        } else {
            log_err("nprdma: %s has %lu bytes, and the job reads %lu: write it "
                    "first\n", file->file_name, (unsigned long)st.st_size,
                    (unsigned long)size);
            ret = -ENODATA;
        }
    }
    if (ret != 0) {
        td_verror(td, -ret, file->file_name);
        nprdma_remote_close(open);
        return 1;
    }

    FILE_SET_ENG_DATA(file, open);
    return 0;
}

static int nf_close_file(struct thread_data *td, struct fio_file *file)
{
    nprdma_remote_close(FILE_ENG_DATA(file));
    FILE_SET_ENG_DATA(file, NULL);
    return 0;
}

static int nf_unlink_file(struct thread_data *td, struct fio_file *file)
{
    nf_job_t *job = td->io_ops_data;

    return (job == NULL) ? 0 :
           -nprdma_remote_unlink(job->server, file->file_name);
}

/* The pages are the server's */
static int nf_invalidate(struct thread_data *td, struct fio_file *file)
{
    return 0;
}

static void nf_end(struct io_u *io_u, int64_t result)
{
    io_u->error = (result < 0) ? -result : 0;
    io_u->resid = (result < 0) || ddir_sync(io_u->ddir) ? 0 :
                  (io_u->xfer_buflen - result);
}

static void nf_on_end(void *arg, int64_t result)
{
    struct io_u *io_u = arg;
    nf_job_t *job     = io_u->engine_data;

    nf_end(io_u, result);
    job->ended[job->num_ended++] = io_u;
}

/* One at a time: no callback is needed */
static int64_t nf_do(struct io_u *io_u)
{
    nprdma_remote_t *file = FILE_ENG_DATA(io_u->file);

    return (io_u->ddir == DDIR_READ) ?
           nprdma_remote_pread(file, io_u->xfer_buf, io_u->xfer_buflen,
                               io_u->offset) :
           (io_u->ddir == DDIR_WRITE) ?
           nprdma_remote_pwrite(file, io_u->xfer_buf, io_u->xfer_buflen,
                                io_u->offset) :
           ddir_sync(io_u->ddir) ? nprdma_remote_fsync(file) : -EINVAL;
}

static int nf_begin(struct io_u *io_u)
{
    nprdma_remote_t *file = FILE_ENG_DATA(io_u->file);

    return (io_u->ddir == DDIR_READ) ?
           nprdma_remote_pread_nb(file, io_u->xfer_buf, io_u->xfer_buflen,
                                  io_u->offset, nf_on_end, io_u) :
           (io_u->ddir == DDIR_WRITE) ?
           nprdma_remote_pwrite_nb(file, io_u->xfer_buf, io_u->xfer_buflen,
                                   io_u->offset, nf_on_end, io_u) :
           ddir_sync(io_u->ddir) ?
           nprdma_remote_fsync_nb(file, nf_on_end, io_u) : -EINVAL;
}

static enum fio_q_status nf_queue(struct thread_data *td, struct io_u *io_u)
{
    nf_job_t *job = td->io_ops_data;
    int ret;

    fio_ro_check(td, io_u);
    if (td->o.iodepth > 1) {
        io_u->engine_data = job;
        ret               = nf_begin(io_u);
        if (ret == 0) {
            return FIO_Q_QUEUED;
        }
        nf_end(io_u, ret);
    } else {
        nf_end(io_u, nf_do(io_u));
    }
    if (io_u->error != 0) {
        td_verror(td, io_u->error, "xfer");
    }
    return FIO_Q_COMPLETED;
}

static int nf_getevents(struct thread_data *td, unsigned min, unsigned max,
                        const struct timespec *limit)
{
    nf_job_t *job = td->io_ops_data;
    unsigned i;

    /* what was told of last time goes */
    for (i = job->next_ended; i < job->num_ended; ++i) {
        job->ended[i - job->next_ended] = job->ended[i];
    }
    job->num_ended -= job->next_ended;
    job->next_ended = 0;
    (void)nprdma_server_progress(job->server);
    while (job->num_ended < min) {
        (void)nprdma_server_wait(job->server, -1);
    }
    return (job->num_ended < max) ? job->num_ended : max;
}

static struct io_u *nf_event(struct thread_data *td, int event)
{
    nf_job_t *job = td->io_ops_data;

    job->next_ended = event + 1;
    return job->ended[event];
}

struct ioengine_ops ioengine = {
    .name               = "nprdma",
    .version            = FIO_IOOPS_VERSION,
    .flags              = FIO_DISKLESSIO | FIO_NOEXTEND | FIO_NODISKUTIL,
    .setup              = nf_setup,
    .init               = nf_init,
    .cleanup            = nf_cleanup,
    .open_file          = nf_open_file,
    .close_file         = nf_close_file,
    .unlink_file        = nf_unlink_file,
    .invalidate         = nf_invalidate,
    .queue              = nf_queue,
    .getevents          = nf_getevents,
    .event              = nf_event,
    .options            = options,
    .option_struct_size = sizeof(nf_options_t),
};
