/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-filed: lets clients read and write the files of a directory, one-sided
 * (seed 001, novad).
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "door.h"
#include "path.h"
#include "program.h"
#include "way.h"

#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#define FILED_CLIENTS  256
#define FILED_FILES    1024
#define FILED_THREADS  4      /* at most, if nobody says how many */

typedef struct filed_options {
    const char *directory;
    const char *socket;
    const char *token;
    nf_way_t   way;
    const char *munge_socket;
    const char *listen[NF_LISTENERS];
    unsigned   num_listen;
    unsigned   threads;
    unsigned   clients;
    unsigned   files;
    int        is_readonly;
} filed_options_t;


static void filed_usage(void)
{
    printf("Usage: nprdma-filed [OPTION...] DIRECTORY\n"
           "Lets clients (nprdma-file) read and write the files in DIRECTORY "
           "over nprdma.\n\n"
           "  -r, --read-only        nothing is changed\n"
           "  -s, --socket PATH      for clients of this host and user; "
           "default: in\n"
           "                         $XDG_RUNTIME_DIR, or /tmp\n"
           "  -l, --listen PORT      and for those of other hosts that have "
           "the token, or\n"
           "                         are of this user by MUNGE; also "
           "ADDRESS:PORT; more\n"
           "                         than once\n"
           "  -a, --auth WAY         token or munge alone; default: both\n"
           "      --munge-socket PATH  of munged\n"
           "  -t, --token FILE       of the token, made if there is none; "
           "default:\n"
           "                         ~/.config/nprdma/token\n"
           "  -j, --threads N        that serve; default: one per CPU, at most "
           "%u\n"
           "  -c, --clients N        at a time and thread; default: %u\n"
           "  -f, --files N          that each may have open; default: %u\n"
           "  -h, --help             show this text\n"
           "      --version          show the version\n\n"
           "See nprdma-filed(8).\n", FILED_THREADS, FILED_CLIENTS,
           FILED_FILES);
}

static unsigned filed_number(const char *option, const char *text, unsigned max)
{
    char *end;
    unsigned long value = strtoul(text, &end, 10);

    if ((*end != '\0') || (end == text) || (value < 1) || (value > max)) {
        nf_misused("%s %s: a number from 1 to %u is needed", option, text, max);
    }
    return value;
}

static void filed_check_listen(const char *address)
{
    const char *colon = strrchr(address, ':');

    if (!nf_is_port((colon == NULL) ? address : (colon + 1))) {
        nf_misused("--listen %s: a port from 1 to 65535 is needed, after an "
                   "address and a colon, if any", address);
    }
}

static void filed_parse(int argc, char **argv, filed_options_t *options)
{
    static const struct option known[] = {
        {"read-only", no_argument, NULL, 'r'},
        {"socket", required_argument, NULL, 's'},
        {"listen", required_argument, NULL, 'l'},
        {"auth", required_argument, NULL, 'a'},
        {"munge-socket", required_argument, NULL, 'M'},
        {"token", required_argument, NULL, 't'},
        {"threads", required_argument, NULL, 'j'},
        {"clients", required_argument, NULL, 'c'},
        {"files", required_argument, NULL, 'f'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "rs:l:a:t:j:c:f:h", known,
                                 NULL)) != -1) {
        switch (option) {
        case 'r':
            options->is_readonly = 1;
            break;
        case 's':
            options->socket = optarg;
            break;
        case 'l':
            if (options->num_listen == (NF_LISTENERS - 1)) {
                nf_die("--listen: no more than %d times", NF_LISTENERS - 1);
            }
            filed_check_listen(optarg);
            options->listen[options->num_listen++] = optarg;
            break;
        case 't':
            options->token = optarg;
            break;
        case 'j':
            options->threads = filed_number("--threads", optarg, 256);
            break;
        case 'c':
            options->clients = filed_number("--clients", optarg, 65536);
            break;
        case 'f':
            options->files = filed_number("--files", optarg, 1u << 20);
            break;
        case 'h':
            filed_usage();
            exit(0);
        case 'V':
            printf("nprdma-filed " NPRDMA_VERSION "\n");
            exit(0);
        default:
            nf_way_take(option, optarg, &options->way, &options->munge_socket);
        }
    }
}

static const char *filed_take_directory(int argc, char **argv)
{
    if (optind != (argc - 1)) {
        nf_misused("%s", (optind == argc) ? "name the directory to share" :
                   "one directory is shared: name one");
    }
    return argv[optind];
}

/* The directory, and what the kernel must have */
static void filed_open_root(nf_export_t *export, const char *path)
{
    int fd;

    export->root = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (export->root < 0) {
        nf_die("'%s' cannot be shared: %m", path);
    }

    fd = nf_path_open(export, "/", O_PATH | O_DIRECTORY, 0);
    if (fd < 0) {
        nf_die("'%s' cannot be shared: openat2() failed: %s. Linux 5.6 or "
               "later is needed, and a container that allows the call", path,
               strerror(-fd));
    }
    close(fd);
}

/* Each client's files need descriptors */
static void filed_raise_limit(void)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
        limit.rlim_cur = limit.rlim_max;
        (void)setrlimit(RLIMIT_NOFILE, &limit);
    }
}

/* Signals that end it come as data; a file that is too large is an error */
static int filed_signals(void)
{
    sigset_t set;
    int fd;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGXFSZ, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0) {
        nf_die("signalfd() failed: %m");
    }
    return fd;
}

/* If munged may come later, credentials are taken then. Returns what clients
 * come with, for a line. */
static const char *
filed_get_munge(const filed_options_t *options, nf_door_t *door)
{
    const char *with = (options->way == NF_WAY_MUNGE) ?
                       "a credential of MUNGE" :
                       "the token, or a credential of MUNGE,";
    char why[NF_WHY_MAX];
    int ret;

    if ((options->num_listen == 0) || (options->way == NF_WAY_TOKEN) ||
        !nf_munge_is_built()) {
        return "the token";
    }

    ret = nf_munge_probe(options->munge_socket, why);
    if ((ret != 0) && (options->way == NF_WAY_MUNGE)) {
        nf_die("--auth munge: %s", why);
    }

    door->checker = nf_checker_start(options->munge_socket);
    if (door->checker == NULL) {
        exit(1);
    }
    return (ret == 0) ? with : "the token";
}

static void filed_get_token(const filed_options_t *options, nf_door_t *door)
{
    char path[PATH_MAX];
    int ret;

    if ((options->num_listen == 0) || (options->way == NF_WAY_MUNGE)) {
        return;
    }

    if (options->token != NULL) {
        snprintf(path, sizeof(path), "%s", options->token);
    } else if (!nf_default_token(path, sizeof(path))) {
        nf_die("no home directory for a token: name its file with --token");
    }

    ret = nf_token_read(path, door->token);
    if (ret == -ENOENT) {
        ret = nf_token_make(path, door->token);
        if (ret == 0) {
            nf_say("a new token is in %s: clients of other hosts need a copy "
                   "of it", path);
        }
    }
    if (ret != 0) {
        nf_die("no token from %s: %s", path,
               (ret == -EPERM) ? "it must be yours, and nobody else may read "
                                 "it (chmod 600)" :
               (ret == -EINVAL) ? "it is no token. Remove it, and a new one is "
                                  "made" : strerror(-ret));
    }
    door->has_token = 1;
}

/* UCX may use nothing that takes a file's offsets for addresses */
static void filed_set_ucx(void)
{
    const char *tls = getenv("UCX_TLS");

    if ((tls == NULL) || (strcmp(tls, "nprdma") != 0)) {
        nf_die("UCX_TLS is '%s': other transports take a file's offsets for "
               "addresses. Unset it, or set it to nprdma",
               (tls == NULL) ? "" : tls);
    }
}

static void filed_start_ucx(nf_export_t *export)
{
    const ucs_status_t status = nf_context_create(NULL, &export->context);

    if (status != UCS_OK) {
        nf_die("UCX does not start: %s. Try 'nprdma_info'",
               ucs_status_string(status));
    }
}

/* A number that is another one when the host has been started anew */
static uint64_t filed_boot(void)
{
    FILE *file    = fopen("/proc/sys/kernel/random/boot_id", "r");
    uint64_t boot = 0;
    int byte;

    while ((file != NULL) && ((byte = fgetc(file)) != EOF)) {
        boot = (boot * UINT64_C(0x100000001b3)) ^ byte; /* FNV */
    }
    if (file != NULL) {
        fclose(file);
    }
    return boot;
}

static int filed_listen(const filed_options_t *options, nf_door_t *door)
{
    char path[PATH_MAX];
    unsigned i;
    int ret;

    if (options->socket != NULL) {
        snprintf(path, sizeof(path), "%s", options->socket);
    } else if (!nf_default_socket(path, sizeof(path))) {
        nf_die("$XDG_RUNTIME_DIR is too long for a socket's path: name one "
               "with --socket");
    }

    ret = nf_door_listen_here(door, path);
    for (i = 0; (i < options->num_listen) && (ret == 0); ++i) {
        ret = nf_door_listen(door, options->listen[i]);
    }
    return ret;
}

int main(int argc, char **argv)
{
    const long num_cpus     = sysconf(_SC_NPROCESSORS_ONLN);
    filed_options_t options = {
        .threads = (num_cpus > FILED_THREADS) ? FILED_THREADS : num_cpus,
        .clients = FILED_CLIENTS,
        .files   = FILED_FILES
    };
    nf_export_t export      = {0};
    nf_door_t door          = {0};
    const char *with;
    int signal_fd, ret;
    unsigned i;

    nf_program = "nprdma-filed";
    filed_parse(argc, argv, &options);
    options.directory = filed_take_directory(argc, argv);
    nf_way_check(options.way, options.munge_socket, options.token,
                 options.num_listen > 0,
                 "needs --listen, by which clients of other hosts come");
    nf_run_again(argv);
    filed_set_ucx();
    filed_get_token(&options, &door);
    export = (nf_export_t){
        .boot        = filed_boot(),
        .is_readonly = options.is_readonly,
        .max_files   = options.files,
        .max_clients = options.clients
    };
    filed_open_root(&export, options.directory);
    filed_raise_limit();
    signal_fd = filed_signals();
    filed_start_ucx(&export);
    if (nf_door_open(&door) != 0) {
        return 1;
    }

    door.num_threads = options.threads;
    door.threads     = nf_serve_start(&export, options.threads);
    if (door.threads == NULL) {
        return 1;
    }

    with = filed_get_munge(&options, &door);
    ret  = filed_listen(&options, &door);
    if (ret == 0) {
        for (i = 0; i < options.num_listen; ++i) {
            nf_say("clients with %s come to %s", with, options.listen[i]);
        }
        nf_say("'%s' is shared%s: %s", options.directory,
               options.is_readonly ? ", for reading" : "", door.path);
        nf_door_run(&door, signal_fd);
    }
    nf_door_close(&door);
    nf_serve_stop(door.threads, options.threads);
    ucp_cleanup(export.context);
    return ret != 0;
}
