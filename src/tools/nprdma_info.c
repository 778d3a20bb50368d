/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * nprdma_info: tells which parts of nprdma work on this machine, and why the
 * others do not.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "info.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#define INFO_GROUPS_DIR "/sys/kernel/iommu_groups"
#define INFO_NOT_YET    "no: not in this version of nprdma. "

/* Longest time between two looks at counters, seconds: a year */
#define INFO_MAX_INTERVAL (366 * 86400.0)

/* What to do, from the command line */
typedef struct info_options {
    int    check;
    int    verbose;
    int    stats;
    int    ucx;
    pid_t  pid;        /**< 0: all processes of this user */
    double interval;   /**< seconds; 0: once */
} info_options_t;

/* One row of the table of modes; design and manual have the same */
typedef struct info_mode {
    const char *device;
    const char *mapper;
    const char *one_sided;
    const char *pinned;
    const char *here;       /**< NULL: as the checks say */
} info_mode_t;

static const info_mode_t info_modes[] = {
    {"soft0", "user", "yes", "no", NULL},
    {"soft0", "kmod", "yes", "no",
     INFO_NOT_YET "Use soft0 with the user mapper: it needs no module"},
    {"verbs", "kmod", "yes", "no", NULL},
    {"verbs", "user", "no", "briefly", NULL}
};


/* Fill @a text with the names in a directory; returns how many */
static unsigned info_list_dir(const char *path, char *text, size_t size)
{
    struct dirent *entry;
    unsigned count = 0;
    size_t len     = 0;
    DIR *dir       = opendir(path);

    text[0] = '\0';
    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        if (len < size) {
            len += snprintf(text + len, size - len, "%s%s",
                            (count > 0) ? " " : "", entry->d_name);
        }
        ++count;
    }

    if (dir != NULL) {
        closedir(dir);
    }
    return count;
}

static void info_show_iommu(void)
{
    unsigned translating = 0, passthrough = 0;
    char path[PATH_MAX], type[32];
    struct dirent *entry;
    DIR *dir = opendir(INFO_GROUPS_DIR);

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        snprintf(path, sizeof(path), INFO_GROUPS_DIR "/%s/type",
                 entry->d_name);
        info_read_line(path, type, sizeof(type));
        if (strncmp(type, "DMA", 3) == 0) {
            ++translating;
        } else {
            ++passthrough;
        }
    }
    if (dir != NULL) {
        closedir(dir);
    }

    if ((translating + passthrough) == 0) {
        printf("IOMMU           none in use\n");
    } else {
        printf("IOMMU           %s: %u groups translate, %u do not\n",
               (passthrough == 0) ? "translating" :
               (translating == 0) ? "passthrough" : "mixed", translating,
               passthrough);
    }
}

static void info_show_limits(void)
{
    struct utsname name;
    struct rlimit limit;
    char buf[64];

    uname(&name);
    getrlimit(RLIMIT_NOFILE, &limit);
    printf("kernel          %s %s\n", name.sysname, name.release);
    printf("CPUs            %ld\n", sysconf(_SC_NPROCESSORS_ONLN));
    printf("ulimit -n       %lu, hard %lu\n", (unsigned long)limit.rlim_cur,
           (unsigned long)limit.rlim_max);
    info_read_line("/proc/sys/kernel/yama/ptrace_scope", buf, sizeof(buf));
    printf("ptrace_scope    %s\n", (buf[0] != '\0') ? buf : "no Yama");
    info_read_line("/proc/sys/vm/memfd_noexec", buf, sizeof(buf));
    printf("memfd_noexec    %s\n", (buf[0] != '\0') ? buf :
           "not in this kernel");
}

/* Does soft0 work here? If not, @a text names the first thing missing. */
static int info_soft_works(char *text, size_t size)
{
    unsigned i;
    int len;

    for (i = 0; i < info_num_checks; ++i) {
        info_log_clear();
        len = snprintf(text, size, "no: %s: ", info_checks[i].name);
        if (info_checks[i].run(text + len, size - len) == INFO_MISSING) {
            return 0;
        }
    }
    return 1;
}

static void info_show_modes(void)
{
    const unsigned count = sizeof(info_modes) / sizeof(info_modes[0]);
    const info_mode_t *mode;
    char why[INFO_LINE];
    char verbs[INFO_LINE], kmod[INFO_LINE], names[INFO_LINE];
    const char *here;

    info_verbs_names(names, sizeof(names));
    info_verbs_works(verbs, sizeof(verbs));
    info_kmod_works(kmod, sizeof(kmod));
    if (info_soft_works(why, sizeof(why))) {
        snprintf(why, sizeof(why), "yes");
    }
    printf("devices         %s%s\n\n", (strcmp(why, "yes") == 0) ? "soft0" :
           (names[0] == '\0') ? "none" : "", names);
    printf("%-7s %-7s %-10s %-8s %s\n", "device", "mapper", "one-sided",
           "pinned", "here");
    for (mode = info_modes; mode < info_modes + count; ++mode) {
        here = (mode->here != NULL) ? mode->here :
               (strcmp(mode->mapper, "kmod") == 0) ? kmod :
               (strcmp(mode->device, "verbs") == 0) ? verbs : why;
        printf("%-7s %-7s %-10s %-8s %s\n", mode->device, mode->mapper,
               mode->one_sided, mode->pinned, here);
    }
}

static void info_show(int verbose)
{
    char text[INFO_LINE];
    int ret;

    info_plugins(text, sizeof(text));
    printf("nprdma          " NPRDMA_VERSION ", for UCX: %s\n", text);
    ret = info_ucx_version(text, sizeof(text));
    printf("UCX             %s%s\n", (ret == 0) ? "" : "missing: ", text);
    if (verbose) {
        info_show_paths();
        info_show_limits();
    }
    printf("kernel module   %s\n", (access("/sys/module/nprdma", F_OK) == 0) ?
           "nprdma is loaded" : "not loaded");
    info_show_iommu();
    ret = info_list_dir(INFO_RDMA_DIR, text, sizeof(text));
    printf("RDMA devices    %s\n", (ret > 0) ? text : "none");
    info_verbs_show();
    info_show_modes();
}

static int info_check(int verbose)
{
    static const char *labels[] = {
        [INFO_OK]      = "ok",
        [INFO_WARNING] = "warning",
        [INFO_MISSING] = "missing"
    };
    unsigned count[3] = {0}, i;
    char text[INFO_LINE];
    info_result_t result;

    signal(SIGXFSZ, SIG_IGN); /* 'ulimit -f': an error line instead */
    for (i = 0; i < info_num_checks; ++i) {
        info_log_clear();
        result = info_checks[i].run(text, sizeof(text));
        ++count[result];
        printf("%s: %s%s%s\n", labels[result], info_checks[i].name,
               ((result == INFO_OK) && !verbose) ? "" : ": ",
               ((result == INFO_OK) && !verbose) ? "" : text);
    }

    if (count[INFO_MISSING] > 0) {
        printf("nprdma does not work here: %u missing\n", count[INFO_MISSING]);
        return 1;
    }
    printf("nprdma works here%s\n", (count[INFO_WARNING] > 0) ?
           ", with the warnings above" : "");
    return 0;
}

static void info_usage(void)
{
    printf("Usage: nprdma_info [OPTION...]\n"
           "Shows what of nprdma works on this machine, and why the rest does "
           "not.\n\n"
           "  --check          try what the transport needs; exit code 1 if it "
           "would not\n"
           "                   work\n"
           "  --stats [PID]    show the counters of a process; without PID, "
           "which processes\n"
           "                   of this user have some\n"
           "  --watch SECONDS  with --stats PID: again and again, with rates\n"
           "  --ucx            show the version of the UCX that programs here "
           "would load\n"
           "  -v               show more\n"
           "  -h, --help       show this text\n"
           "  --version        show the version\n");
}

static int info_show_ucx(void)
{
    char text[INFO_LINE];
    int ret = info_ucx_version(text, sizeof(text));

    fprintf((ret == 0) ? stdout : stderr, "%s%s\n",
            (ret == 0) ? "" : "nprdma_info: no UCX is here: ", text);
    return (ret == 0) ? 0 : 1;
}

static void info_show_version(void)
{
    char text[INFO_LINE];

    info_plugins(text, sizeof(text));
    printf("nprdma_info " NPRDMA_VERSION " (for UCX: %s)\n", text);
}

static int info_misuse(const char *what, const char *argument)
{
    fprintf(stderr, "nprdma_info: %s '%s': nprdma_info -h shows what there "
            "is\n", what, argument);
    return 2;
}

/* Take a process id, if there is one. Returns 0, or the exit code. */
static int info_parse_pid(char ***arg_p, pid_t *pid_p)
{
    const char *text = (*arg_p)[1];
    char *end;
    long pid;

    if ((text == NULL) || (text[0] == '-')) {
        return 0;
    }

    errno = 0;
    pid   = strtol(text, &end, 10);
    if ((errno != 0) || (*end != '\0') || (pid < 1) || (pid > INT_MAX)) {
        return info_misuse("--stats takes the number of a process, not", text);
    }

    *pid_p = pid;
    ++*arg_p;
    return 0;
}

static int info_parse_interval(char ***arg_p, double *interval_p)
{
    const char *text = (*arg_p)[1];
    char *end;

    if (text == NULL) {
        return info_misuse("a number of seconds is missing after", **arg_p);
    }

    *interval_p = strtod(text, &end);
    /* written so that a value that is no number is refused as well */
    if ((end == text) || (*end != '\0') ||
        !((*interval_p >= 0.001) && (*interval_p <= INFO_MAX_INTERVAL))) {
        return info_misuse("--watch takes seconds, 0.001 or more, not", text);
    }

    ++*arg_p;
    return 0;
}

/* Returns 0, or the exit code */
static int info_parse(char **argv, info_options_t *options)
{
    char **arg;
    int ret;

    for (arg = argv + 1; *arg != NULL; ++arg) {
        ret = 0;
        if (strcmp(*arg, "--check") == 0) {
            options->check = 1;
        } else if (strcmp(*arg, "--stats") == 0) {
            options->stats = 1;
            ret            = info_parse_pid(&arg, &options->pid);
        } else if (strcmp(*arg, "--watch") == 0) {
            ret = info_parse_interval(&arg, &options->interval);
        } else if (strcmp(*arg, "-v") == 0) {
            options->verbose = 1;
        } else if ((strcmp(*arg, "-h") == 0) || (strcmp(*arg, "--help") == 0)) {
            info_usage();
            exit(0);
        } else if (strcmp(*arg, "--version") == 0) {
            info_show_version();
            exit(0);
        } else if (strcmp(*arg, "--ucx") == 0) {
            options->ucx = 1;
        } else {
            ret = info_misuse("unknown argument", *arg);
        }
        if (ret != 0) {
            return ret;
        }
    }

    if ((options->interval > 0) && (options->pid == 0)) {
        return info_misuse("--stats PID is missing with", "--watch");
    }
    if (options->stats && options->check) {
        return info_misuse("--stats does not go with", "--check");
    }
    if (options->ucx && (options->stats || options->check)) {
        return info_misuse("--ucx does not go with",
                           options->stats ? "--stats" : "--check");
    }
    return 0;
}

int main(int argc, char **argv)
{
    info_options_t options = {0};
    int ret;

    ret = info_parse(argv, &options);
    if (ret != 0) {
        return ret;
    }

    if (options.ucx) {
        return info_show_ucx();
    }
    if (options.stats) {
        return (options.pid == 0) ? info_stats_list() :
               info_stats_show(options.pid, options.interval);
    }
    if (options.check) {
        return info_check(options.verbose);
    }
    info_show(options.verbose);
    return 0;
}
