/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma-file: files of a server (nprdma-filed), from the command line.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "tool.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Progress is shown so often, ns */
#define TOOL_SHOW_EACH  200000000

/* A command. A path of the server has a colon before it. */
typedef struct tool_command {
    const char *name;
    const char *arguments;  /* 'r': a path of the server, 'l': a file of
                               ours, 'e': either, 'w': a word; after '?': may be
                               left out */
    int        (*run)(tool_t *tool, char **paths);
    const char *help;
} tool_command_t;


int tool_fail(const char *what, const char *path, int error)
{
    const char *why =
            (error == -EXDEV) ? "it leads out of the server's directory" :
            (error == -ESTALE) ? "the server was away, and has another file of "
                                 "this name now" :
            (error == -ECONNRESET) ? "the server has gone meanwhile: look "
                                     "whether it has been done" :
            (error == -EMSGSIZE) ? "more than 64 MiB, or a line that is so "
                                   "long, are no single append" :
            (error == -ENODATA) ? "it became shorter meanwhile" :
            (error == -EDEADLK) ? "it is the same file" :
            (error == -EINVAL) ? "it is no file, or it cannot have such a "
                                 "name" :
            (error == -EADDRNOTAVAIL) ? "the server has used up its addresses: "
                                        "start it again" :
            (error == -EROFS) ? "the server shares it for reading" :
            strerror(-error);

    nf_say("cannot %s '%s': %s", what, path, why);
    return 1;
}

void tool_progress_begin(const tool_t *tool, tool_progress_t *progress,
                         const char *name, uint64_t total)
{
    *progress = (tool_progress_t){
        .name     = name,
        .total    = total,
        .begin    = nf_now(),
        .is_shown = !tool->is_quiet && !tool->is_json && isatty(STDERR_FILENO)
    };
    progress->shown = progress->begin;
}

static double tool_progress_rate(const tool_progress_t *progress)
{
    const double seconds = (nf_now() - progress->begin) * 1e-9;

    return (seconds > 0) ? (progress->done / seconds / 1e6) : 0;
}

static void tool_progress_show(tool_progress_t *progress)
{
    fprintf(stderr, "\r%s: %lu MB", progress->name, progress->done / 1000000);
    if (progress->total > 0) {
        fprintf(stderr, " of %lu, %.0f %%", progress->total / 1000000,
                100.0 * progress->done / progress->total);
    }
    fprintf(stderr, ", %.0f MB/s\033[K", tool_progress_rate(progress));
}

void tool_progress_add(tool_progress_t *progress, uint64_t bytes)
{
    progress->done += bytes;
    if (progress->is_shown && ((nf_now() - progress->shown) > TOOL_SHOW_EACH)) {
        progress->shown = nf_now();
        tool_progress_show(progress);
    }
}

void tool_progress_end(const tool_t *tool, tool_progress_t *progress)
{
    if (tool->is_json) {
        printf("{\"bytes\": %lu, \"seconds\": %.6f}\n", progress->done,
               (nf_now() - progress->begin) * 1e-9);
    } else if (progress->is_shown) {
        tool_progress_show(progress);
        fputc('\n', stderr);
    }
}

static int tool_cat(tool_t *tool, char **paths)
{
    return tool_get(tool, paths[0], "-");
}

/* As cp: into a directory, by the same name */
static const char *tool_last(const char *path)
{
    const char *slash = strrchr(path, '/');

    return (slash == NULL) ? path : (slash + 1);
}

static int tool_run_get(tool_t *tool, char **paths)
{
    char name[PATH_MAX];
    struct stat st;

    if ((paths[1] == NULL) || ((stat(paths[1], &st) == 0) &&
                               S_ISDIR(st.st_mode))) {
        snprintf(name, sizeof(name), "%s/%s",
                 (paths[1] == NULL) ? "." : paths[1], tool_last(paths[0]));
        return tool_get(tool, paths[0], name);
    }
    return tool_get(tool, paths[0], paths[1]);
}

static int tool_run_put(tool_t *tool, char **paths)
{
    char name[2 * TOOL_PATH_MAX];
    struct stat stat;

    if ((strcmp(paths[0], "-") != 0) &&
        (nprdma_remote_stat(tool->server, paths[1], &stat) == 0) &&
        S_ISDIR(stat.st_mode)) {
        snprintf(name, sizeof(name), "%s/%s", paths[1], tool_last(paths[0]));
        return tool_put(tool, paths[0], name);
    }
    return tool_put(tool, paths[0], paths[1]);
}

static int tool_run_append(tool_t *tool, char **paths)
{
    return tool_append(tool, paths[0], paths[1]);
}

static int tool_mv(tool_t *tool, char **paths)
{
    int ret = nprdma_remote_rename(tool->server, paths[0], paths[1]);

    return (ret == 0) ? 0 : tool_fail("rename", paths[0], ret);
}

static int tool_rm(tool_t *tool, char **paths)
{
    int ret = tool->is_dir ? nprdma_remote_rmdir(tool->server, paths[0]) :
              nprdma_remote_unlink(tool->server, paths[0]);

    return (ret == 0) ? 0 : tool_fail("remove", paths[0], ret);
}

static int tool_mkdir(tool_t *tool, char **paths)
{
    int ret = nprdma_remote_mkdir(tool->server, paths[0], 0777);

    return (ret == 0) ? 0 : tool_fail("make", paths[0], ret);
}

static int tool_run_bench(tool_t *tool, char **paths)
{
    return tool_bench(tool, paths[0], paths[1]);
}

static const tool_command_t tool_commands[] = {
    {"ls", "r", tool_ls, "list a directory (-l: more)"},
    {"stat", "r", tool_stat, "what is known of a file"},
    {"cat", "r", tool_cat, "write a file to standard output"},
    {"get", "r?l", tool_run_get, "copy a file to here"},
    {"put", "lr", tool_run_put, "copy a file from here; -: standard input"},
    {"append", "lr", tool_run_append, "append it in one piece (-L: by lines)"},
    {"mv", "rr", tool_mv, "rename"},
    {"rm", "r", tool_rm, "remove a file (-d: a directory that is empty)"},
    {"mkdir", "r", tool_mkdir, "make a directory"},
    {"log", "we", tool_log, "append, cat or check: records of a log, here or "
                            "of a server"},
    {"bench", "r?l", tool_run_bench, "what calls take, beside system calls"},
    {NULL},
};

static void tool_usage(void)
{
    const tool_command_t *command;

    printf("Usage: nprdma-file [OPTION...] COMMAND PATH...\n"
           "Reads and writes files of a server (nprdma-filed) over nprdma.\n\n"
           "A path of a server has a colon before it: [HOST]:PATH. Without a "
           "host it is\na server of this host and user.\n\n");
    for (command = tool_commands; command->name != NULL; ++command) {
        printf("  %-7s %s\n", command->name, command->help);
    }
    printf("\n"
           "  -p, --port PORT     of the host; default: 7473\n"
           "  -t, --token FILE    default: ~/.config/nprdma/token\n"
           "  -a, --auth WAY      token or munge; default: what there is\n"
           "      --munge-socket PATH  of munged\n"
           "  -s, --socket PATH   of a server of this host\n"
           "  -w, --wait SECONDS  for a server that is away; default: 30\n"
           "  -D, --durable       end when it is on the disk\n"
           "  -l, --long          ls: size, owner, time\n"
           "  -L, --lines         append, log append: each line by itself\n"
           "  -d, --directory     rm: a directory\n"
           "  -j, --json          for programs: an object a line\n"
           "  -q, --quiet         no progress, no offsets\n"
           "  -h, --help          show this text\n"
           "      --version       show the version\n\n"
           "See nprdma-file(1).\n");
}

static unsigned tool_seconds(const char *text)
{
    char *end;
    unsigned long seconds = strtoul(text, &end, 10);

    if ((*end != '\0') || (end == text) || (seconds > UINT32_MAX)) {
        nf_misused("--wait %s: a number of seconds is needed", text);
    }
    return seconds;
}

/* The other options */
static void tool_flag(tool_t *tool, int option)
{
    switch (option) {
    case 'D':
        tool->is_durable = 1;
        break;
    case 'l':
        tool->is_long = 1;
        break;
    case 'L':
        tool->by_lines = 1;
        break;
    case 'd':
        tool->is_dir = 1;
        break;
    case 'j':
        tool->is_json = 1;
        break;
    case 'q':
        tool->is_quiet = 1;
        break;
    default:
        nf_way_take(option, optarg, &tool->way,
                    &tool->where.munge_socket);
    }
}

static void tool_parse(int argc, char **argv, tool_t *tool)
{
    static const struct option known[] = {
        {"port", required_argument, NULL, 'p'},
        {"token", required_argument, NULL, 't'},
        {"auth", required_argument, NULL, 'a'},
        {"munge-socket", required_argument, NULL, 'M'},
        {"socket", required_argument, NULL, 's'},
        {"wait", required_argument, NULL, 'w'},
        {"durable", no_argument, NULL, 'D'},
        {"long", no_argument, NULL, 'l'},
        {"lines", no_argument, NULL, 'L'},
        {"directory", no_argument, NULL, 'd'},
        {"json", no_argument, NULL, 'j'},
        {"quiet", no_argument, NULL, 'q'},
        {"help", no_argument, NULL, 'h'},
        {"version", no_argument, NULL, 'V'},
        {NULL, 0, NULL, 0},
    };
    int option;

    while ((option = getopt_long(argc, argv, "p:t:a:s:w:DlLdjqh", known,
                                 NULL)) != -1) {
        switch (option) {
        case 'p':
            tool->where.port = optarg;
            if (!nf_is_port(optarg)) {
                nf_misused("--port %s: a port from 1 to 65535 is needed",
                           optarg);
            }
            break;
        case 't':
            tool->where.token = optarg;
            break;
        case 's':
            tool->where.socket = optarg;
            break;
        case 'w':
            tool->where.patience = tool_seconds(optarg);
            break;
        case 'h':
            tool_usage();
            exit(0);
        case 'V':
            printf("nprdma-file " NPRDMA_VERSION "\n");
            exit(0);
        default:
            tool_flag(tool, option);
        }
    }
}

/* The colon of "[HOST]:PATH"; NULL: it is a file of ours */
static char *tool_colon(char *path)
{
    char *colon = (path[0] == '[') ? strstr(path, "]:") : NULL;

    colon = (colon != NULL) ? (colon + 1) : strchr(path, ':');
    return ((colon == NULL) || (memchr(path, '/', colon - path) != NULL)) ?
           NULL : colon;
}

/* A path of a server, whose host is that of all. Returns what it is there. */
static char *tool_remote(tool_t *tool, char *path, int is_first)
{
    char *colon = tool_colon(path), *host = path;

    if (colon == NULL) {
        nf_misused("a path of a server has a colon before it, as in ':%s'",
                   path);
    }

    *colon = '\0';
    if (host[0] == '[') {
        ++host;
        colon[-1] = '\0';
    }
    if (host[0] == '\0') {
        host = NULL;
    }
    if (!is_first && ((host == NULL) != (tool->where.host == NULL) ||
                      ((host != NULL) &&
                       (strcmp(host, tool->where.host) != 0)))) {
        nf_misused("both paths must be of one server");
    }
    tool->where.host = host;
    return colon + 1;
}

/* Its paths, as the command wants them. Returns whether one is of a server. */
static int tool_take_paths(tool_t *tool, const tool_command_t *command,
                           int argc, char **argv, char **paths)
{
    int count = 0, is_optional = 0, is_first = 1;
    const char *kind;

    for (kind = command->arguments; *kind != '\0'; ++kind) {
        if (*kind == '?') {
            is_optional = 1;
            continue;
        }

        if (count == argc) {
            if (is_optional) {
                break;
            }
            nf_misused("too few paths for %s", command->name);
        }

        if (*kind == 'w') {
            paths[count] = argv[count];
        } else if ((*kind == 'r') || ((*kind == 'e') &&
                                      (tool_colon(argv[count]) != NULL))) {
            paths[count] = tool_remote(tool, argv[count], is_first);
            is_first     = 0;
        } else {
            if (tool_colon(argv[count]) != NULL) {
                nf_misused("a file of this host is wanted (./NAME, if it has a "
                           "colon), found %s", argv[count]);
            }
            paths[count] = argv[count];
        }
        ++count;
    }
    if (count < argc) {
        nf_misused("one path too many: %s", argv[count]);
    }
    return !is_first;
}

static void tool_say(void *arg, const char *line)
{
    nf_say("%s", line);
}

int main(int argc, char **argv)
{
    tool_t tool     = {
        .where = {
            .size     = sizeof(tool.where),
            .patience = 30,
            .say      = tool_say
        },
    };
    char *paths[2]  = {NULL, NULL};
    const tool_command_t *command;
    int ret, is_remote;

    tool_parse(argc, argv, &tool);
    if (optind == argc) {
        nf_misused("name a command");
    }

    for (command = tool_commands; (command->name != NULL) &&
                                  (strcmp(command->name, argv[optind]) != 0);
         ++command) {
    }
    if (command->name == NULL) {
        nf_misused("there is no such command: %s", argv[optind]);
    }

    nf_run_again(argv);
    is_remote = tool_take_paths(&tool, command, argc - optind - 1,
                                &argv[optind + 1], paths);
    nf_way_check(tool.way, tool.where.munge_socket, tool.where.token,
                 tool.where.host != NULL, "needs a host before the colon");
    tool.where.auth = (tool.way == NF_WAY_TOKEN) ? "token" :
                      (tool.way == NF_WAY_MUNGE) ? "munge" : NULL;
    if (is_remote &&
        (nprdma_server_connect(&tool.where, &tool.server) != 0)) {
        return 1;
    }

    ret = command->run(&tool, paths);
    nprdma_server_disconnect(tool.server);
    if (fflush(stdout) != 0) {
        nf_say("standard output: %m");
        ret = 1;
    }
    return ret;
}
