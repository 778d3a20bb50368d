/* SPDX-License-Identifier: BSD-3-Clause */
/* Runs combinations, several at a time, and writes a line for each. */
#include "control.h"

#include <errno.h>
#include <fnmatch.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define JOBS_MAX     32
#define NAME_MAX_LEN 80
#define RESULT_MAX   600

/* The two processes of a case */
typedef struct {
    unsigned index;           /* of its case */
    int      is_used;
    double   end;             /* when it is given up */
    pid_t    pid[NUM_SIDES];  /* 0 when it has ended */
    int      code[NUM_SIDES]; /* as waitpid tells */
    int      is_stuck[NUM_SIDES];
    seen_t   *seen;           /* of both sides */
} job_t;

static const char *only[64];
static unsigned   num_only;
static unsigned   sample  = 1;  /* one of so many cases */
static unsigned   offset;
static unsigned   num_jobs = 6;
static double     bound   = 1.0;
static int        is_verbose;
static job_t      jobs[JOBS_MAX];

static void die(const char *what)
{
    fprintf(stderr, "control: %s: %s\n", what, strerror(errno));
    exit(2);
}

double time_now(void)
{
    struct timespec ts;

    clock_gettime(CLOCK_MONOTONIC, &ts);
    return ts.tv_sec + (ts.tv_nsec * 1e-9);
}

static int is_wanted(const case_t *c)
{
    char name[NAME_MAX_LEN];
    unsigned hash = 2166136261u, i;

    case_name(c, name, sizeof(name));
    if (num_only > 0) {
        for (i = 0; i < num_only; ++i) {
            if (fnmatch(only[i], name, 0) == 0) {
                return 1;
            }
        }
        return 0;
    }

    for (i = 0; name[i] != '\0'; ++i) {
        hash = (hash ^ (uint8_t)name[i]) * 16777619u;
    }
    return ((hash >> 8) % sample) == offset;
}

static void start_side(job_t *job, const case_t *c, role_t role,
                       const int fds[2])
{
    fflush(NULL);
    job->pid[role] = fork();
    if (job->pid[role] < 0) {
        die("fork");
    }
    if (job->pid[role] > 0) {
        return;
    }

    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(fds[!role]);
    if (!is_verbose && (freopen("/dev/null", "w", stderr) == NULL ||
                        freopen("/dev/null", "w", stdout) == NULL)) {
        die("/dev/null");
    }
    side_run(c, role, fds[role], bound, &job->seen[role]);
}

static void start(job_t *job, const case_t *c, unsigned index)
{
    int fds[2], role;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0) {
        die("socketpair");
    }
    memset(job->seen, 0, NUM_SIDES * sizeof(*job->seen));
    job->index   = index;
    job->is_used = 1;
    job->end     = time_now() + 60 + (30 * bound);
    for (role = 0; role < NUM_SIDES; ++role) {
        job->is_stuck[role]     = 0;
        job->seen[role].failure = STATUS_NONE;
        job->seen[role].control = STATUS_NONE;
        job->seen[role].again   = STATUS_NONE;
        start_side(job, c, role, fds);
    }
    close(fds[0]);
    close(fds[1]);
}

/* A status in one word: UCX's own texts have blanks */
static const char *status_word(int status, char *buf, size_t size)
{
    switch (status) {
    case STATUS_NONE:
        return "-";
    case UCS_OK:
        return "ok";
    case UCS_INPROGRESS:
        return "pending";
    case UCS_ERR_CANCELED:
        return "canceled";
    case UCS_ERR_ENDPOINT_TIMEOUT:
        return "timeout";
    case UCS_ERR_CONNECTION_RESET:
        return "reset";
    case UCS_ERR_NOT_CONNECTED:
        return "not_connected";
    case UCS_ERR_UNREACHABLE:
        return "unreachable";
    case UCS_ERR_IO_ERROR:
        return "io_error";
    case UCS_ERR_INVALID_ADDR:
        return "invalid_addr";
    case UCS_ERR_UNSUPPORTED:
        return "unsupported";
    case UCS_ERR_REJECTED:
        return "rejected";
    default:
        snprintf(buf, size, "error%d", -status);
        return buf;
    }
}

static void add(char *out, size_t size, const char *separator,
                const char *word)
{
    size_t len = strlen(out);

    snprintf(out + len, size - len, "%s%s", (len > 0) ? separator : "", word);
}

static void requests_text(const seen_t *seen, char *out, size_t size)
{
    char buf[32];
    int i;

    out[0] = '\0';
    for (i = 0; i < STATUS_MAX; ++i) {
        if (seen->ended[i] > 0) {
            add(out, size, "+", status_word(-i, buf, sizeof(buf)));
        }
    }
    if (seen->pending > 0) {
        add(out, size, "+", "pending");
    }
    if (seen->abandoned > 0) {
        add(out, size, "+", "abandoned");
    }
    if (out[0] == '\0') {
        add(out, size, "", "-");
    }
}

static void end_text(const job_t *job, role_t role, char *out, size_t size)
{
    const seen_t *seen = &job->seen[role];
    int code           = job->code[role];

    if (job->is_stuck[role]) {
        snprintf(out, size, "stuck:%s", stage_name(seen->stage));
    } else if (WIFSIGNALED(code) && (WTERMSIG(code) == SIGKILL) &&
               (seen->stage == STAGE_CONTROL)) {
        snprintf(out, size, "killed");
    } else if (WIFSIGNALED(code)) {
        snprintf(out, size, "signal%d:%s", WTERMSIG(code),
                 stage_name(seen->stage));
    } else if ((WEXITSTATUS(code) != 0) ||
               ((seen->stage != STAGE_DONE) &&
                (seen->stage != STAGE_CONTROL))) {
        snprintf(out, size, "exit%d:%s", WEXITSTATUS(code),
                 stage_name(seen->stage));
    } else {
        snprintf(out, size, "exit");
    }
}

/* "NAME FIELD=VALUE ...", the fields in a fixed order */
static void result_text(const job_t *job, char *out, size_t size)
{
    static const char *prefix[NUM_SIDES] = {"init", "target"};
    char requests[128], end[64], failure[32], control[32], again[32];
    const seen_t *seen;
    const char *reason;
    case_t c;
    int role;

    case_get(job->index, &c, &reason);
    case_name(&c, out, size);
    for (role = 0; role < NUM_SIDES; ++role) {
        seen = &job->seen[role];
        requests_text(seen, requests, sizeof(requests));
        end_text(job, role, end, sizeof(end));
        snprintf(out + strlen(out), size - strlen(out),
                 " %s.req=%s %s.data=%s%s%s%s %s.handler=%s %s.control=%s "
                 "%s.again=%s %s.end=%s%s", prefix[role], requests,
                 prefix[role], (seen->data == 0) ? "-" : "",
                 (seen->data & DATA_RIGHT) ? "right" : "",
                 (seen->data & DATA_WRONG) ? "wrong" : "",
                 (seen->data & DATA_LATE) ? "late" : "", prefix[role],
                 status_word(seen->failure, failure, sizeof(failure)),
                 prefix[role],
                 status_word(seen->control, control, sizeof(control)),
                 prefix[role], status_word(seen->again, again, sizeof(again)),
                 prefix[role], seen->is_late ? "missed," : "", end);
    }
}

static void reap(job_t *job)
{
    int role;

    for (role = 0; role < NUM_SIDES; ++role) {
        if (job->pid[role] == 0) {
            continue;
        }
        if (time_now() > job->end) {
            job->is_stuck[role] = 1;
            kill(job->pid[role], SIGKILL);
            waitpid(job->pid[role], &job->code[role], 0);
            job->pid[role] = 0;
        } else if (waitpid(job->pid[role], &job->code[role], WNOHANG) ==
                   job->pid[role]) {
            job->pid[role] = 0;
        }
    }
}

static void run_all(void)
{
    const struct timespec tick = {.tv_nsec = 500000};
    unsigned next = 0, busy, i;
    char text[RESULT_MAX];
    const char *reason;
    int is_more = 1;
    case_t c;

    for (;;) {
        busy = 0;
        for (i = 0; i < num_jobs; ++i) {
            if (jobs[i].is_used) {
                reap(&jobs[i]);
                if ((jobs[i].pid[0] == 0) && (jobs[i].pid[1] == 0)) {
                    result_text(&jobs[i], text, sizeof(text));
                    puts(text);
                    fflush(stdout);
                    jobs[i].is_used = 0;
                }
            }
            while (!jobs[i].is_used && is_more) {
                is_more = case_get(next, &c, &reason);
                if (is_more && (reason == NULL) && is_wanted(&c)) {
                    start(&jobs[i], &c, next);
                }
                ++next;
            }
            busy += jobs[i].is_used;
        }
        if ((busy == 0) && !is_more) {
            return;
        }
        nanosleep(&tick, NULL);
    }
}

static void list_all(void)
{
    char name[NAME_MAX_LEN];
    const char *reason;
    unsigned i;
    case_t c;

    for (i = 0; case_get(i, &c, &reason); ++i) {
        if (!is_wanted(&c)) {
            continue;
        }
        case_name(&c, name, sizeof(name));
        if (reason == NULL) {
            puts(name);
        } else {
            printf("%s  # left out: %s\n", name, reason);
        }
    }
}

static void usage(FILE *file)
{
    fprintf(file,
            "Usage: control [OPTION...] [PATTERN...]\n"
            "Runs combinations of data and control operations whose names match\n"
            "a shell pattern (all), and writes what both sides saw of each.\n\n"
            "  -l        list them, and why some are left out\n"
            "  -s N[/I]  one of N, the I-th (of all)\n"
            "  -j N      so many at a time, 1 to %d (%u)\n"
            "  -t S      seconds after which a request counts as pending (%g)\n"
            "  -v        show what the sides print\n",
            JOBS_MAX, num_jobs, bound);
}

/* UCX reads some of its variables when it is loaded: start again with them.
 * Death must be seen by us, not shown by UCX; protocols must not depend on what
 * a transport thinks is faster, and 1.13's new ones cannot abort requests; dead
 * peers are to be noticed soon. */
static void set_environment(char **argv)
{
    char path[PATH_MAX];
    ssize_t length;

    if (getenv("CONTROL_IS_SET") != NULL) {
        return;
    }

    setenv("CONTROL_IS_SET", "y", 1);
    setenv("UCX_HANDLE_ERRORS", "none", 0);
    setenv("UCX_RNDV_THRESH", "16k", 0);
    setenv("UCX_KEEPALIVE_INTERVAL", "100ms", 0);
    setenv("UCX_PROTO_ENABLE", "n", 0);
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 0);
    length = readlink("/proc/self/exe", path, sizeof(path) - 1);
    if (length > 0) {
        path[length] = '\0';
        execv(path, argv);
    }
    die("cannot start again");
}

int main(int argc, char **argv)
{
    int opt, do_list = 0;
    unsigned i;

    set_environment(argv);
    while ((opt = getopt(argc, argv, "ls:j:t:vh")) != -1) {
        switch (opt) {
        case 'l':
            do_list = 1;
            break;
        case 's':
            if ((sscanf(optarg, "%u/%u", &sample, &offset) < 1) ||
                (sample == 0) || (offset >= sample)) {
                usage(stderr);
                return 2;
            }
            break;
        case 'j':
            num_jobs = strtoul(optarg, NULL, 0);
            break;
        case 't':
            bound = strtod(optarg, NULL);
            break;
        case 'v':
            is_verbose = 1;
            break;
        default:
            usage((opt == 'h') ? stdout : stderr);
            return (opt == 'h') ? 0 : 2;
        }
    }
    if ((num_jobs == 0) || (num_jobs > JOBS_MAX) || !(bound > 0)) {
        usage(stderr);
        return 2;
    }
    for (; (optind < argc) && (num_only < 64); ++optind) {
        only[num_only++] = argv[optind];
    }
    if (optind < argc) {
        fprintf(stderr, "control: more than 64 patterns\n");
        return 2;
    }
    if (do_list) {
        list_all();
        return 0;
    }

    for (i = 0; i < num_jobs; ++i) {
        jobs[i].seen = mmap(NULL, NUM_SIDES * sizeof(seen_t),
                            PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        if (jobs[i].seen == MAP_FAILED) {
            die("mmap");
        }
    }

    run_all();
    return 0;
}
