/* SPDX-License-Identifier: BSD-3-Clause */
/* A port, and those who send it descriptors of all kinds in all messages that
 * there are: strangers, initiators and targets. It never waits for what they
 * have sent, no signal comes, nothing of it stays, and others go on. */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "fuzz.h"

#include "../engine/foreign.h"
#include "../engine/pair.h"
#include "../engine/stopped.h"

#include "nprdma/clock.h"
#include "nprdma/segment.h"
#include "nprdma/mem/table.h"
#include "nprdma/pause.h"
#include "nprdma/proto/ep.h"

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define SENDERS     3
#define SLOTS       8
#define PAYLOAD     4096
#define MAX_FDS     253

/* One kind more: a file whose file system has stopped */
#define STOPPED     FOREIGN_LAST

/* Where the numbers of the pipe begin that each input has open: above that of
 * such a file. What closes in the order of numbers comes to the file first. */
#define ENDS_FIRST  768

/* Threads of the engine that such files may hold, as documented; heirs, which
 * close copies of what the program has, may be any number */
#define PORTERS     4

/* What is closed elsewhere is closed soon, and a step takes microseconds */
#define PATIENCE_NS UINT64_C(5000000000)
#define WATCH_NS    UINT64_C(50000000)

/* Somebody hostile: at a socket that the victim has accepted, or connected */
typedef struct sender {
    int       fd;
    int       listener;
    np_link_t link;      /* the victim's to it */
    int       has_link;
} sender_t;

unsigned tap_count, tap_failures; /* of pair.c */

static np_port_t *victim;
static np_port_t *honest;
static np_link_t to_victim;
static np_link_t from_victim;
static sender_t senders[SENDERS];
static int good_fds[3];   /* segment, port, directory */
static size_t good_size;

/* Of an input, if it has one: never closed before its file system is gone, for
 * that would hold the fuzzer; -1: it has none */
static int stopped_fd = -1;
static int has_stopped;

/* An heir has a copy of a table in which there is such a file */
static _Atomic int has_heir;

/* Since when the victim is at something; 0: it is not */
static _Atomic uint64_t victim_since;

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);


unsigned fuzz_get_regions(fuzz_region_t *regions)
{
    return 0;
}

/* A process with a thread in a file system that has stopped cannot end */
static void fail(const char *what, size_t number)
{
    stopped_end();
    fuzz_fail(what, NULL, number);
}

static void victim_begin(void)
{
    atomic_store(&victim_since, np_clock());
}

static void victim_end(void)
{
    atomic_store(&victim_since, 0);
}

/* Looks are counted: a machine that stands still accuses nobody */
static void *watch(void *arg)
{
    const struct timespec wait = {.tv_nsec = WATCH_NS};
    uint64_t since, last = 0;
    unsigned looks       = 0;

    for (;;) {
        nanosleep(&wait, NULL);
        since = atomic_load(&victim_since);
        looks = ((since != 0) && (since == last)) ? (looks + 1) : 0;
        last  = since;
        if (looks > (PATIENCE_NS / WATCH_NS)) {
            fail("a sender holds its victim", 0);
        }
    }
    return arg;
}

/* A porter waits for its heir's copy, and closes then */
static void on_pause(np_pause_point_t point)
{
    if (point == NP_PAUSE_DISCARD) {
        atomic_store(&has_heir, 1);
    }
}

static void on_signal(int number)
{
    fail("a sender's signal", number);
}

static void watch_signals(void)
{
    static const int signals[] = {SIGPIPE, SIGIO, SIGURG, SIGXFSZ};
    unsigned i;

    for (i = 0; i < ucs_static_array_size(signals); ++i) {
        signal(signals[i], on_signal);
    }
}

/* What an honest peer sends with CONNECT */
static void make_good(void)
{
    void *ptr = NULL;

    good_size = np_link_shm_size(SLOTS, PAYLOAD);
    if (np_segment_create("fuzz", good_size, &ptr, &good_fds[0]) != UCS_OK) {
        fuzz_fail("no segment", NULL, good_size);
    }

    np_link_shm_init(ptr, SLOTS, PAYLOAD, PAYLOAD);
    good_fds[1] = honest->shm_fd;
    good_fds[2] = np_directory_fd();
}

static void progress(void)
{
    victim_begin();
    np_port_housekeep(victim);
    pair_progress(victim);
    victim_end();
}

/* Both progress until @a count messages have come to whom they were sent */
static void expect_received(const char *what, unsigned count)
{
    const uint64_t begin = np_clock();

    while ((pair_received < count) && ((np_clock() - begin) < PATIENCE_NS)) {
        progress();
        np_port_housekeep(honest);
        pair_progress(honest);
    }
    if (pair_received < count) {
        fail(what, pair_received);
    }
}

int LLVMFuzzerInitialize(int *argc, char ***argv)
{
    pthread_t thread;
    unsigned i;

    has_stopped = stopped_start() == 0;
    if (!has_stopped) {
        fprintf(stderr, "FUZZ: no file systems in user space here\n");
    }
    fuzz_start();
    watch_signals();
    np_pause_hook = on_pause;
    victim = pair_port();
    honest = pair_port();
    make_good();
    for (i = 0; i < SENDERS; ++i) {
        senders[i].fd = -1;
        if (np_sock_listen(victim->id + 1 + i, &senders[i].listener) !=
            UCS_OK) {
            return 1;
        }
    }

    pair_link(honest, victim, &to_victim);
    pair_link(victim, honest, &from_victim);
    pair_send(&to_victim);
    pair_send(&from_victim);
    expect_received("two that are honest do not connect", 2);
    return pthread_create(&thread, NULL, watch, NULL);
}

/* Who has sent them has no copy: the last close of what cannot be sent is for
 * who could not */
static void give_up(const int *fds, unsigned num, int is_sent)
{
    while (num > 0) {
        if (fds[--num] == stopped_fd) {
            continue;
        }
        if (is_sent) {
            close(fds[num]);
        } else {
            foreign_close(fds[num]);
        }
    }
}

static int open_stopped(void)
{
    if (has_stopped && (stopped_fd < 0)) {
        stopped_fd = stopped_open();
        if (stopped_fd < 0) {
            fail("no file system in user space any more", 0);
        }
        atomic_store(&has_heir, 0);
    }
    return stopped_fd;
}

static int open_kind(unsigned kind)
{
    return (kind == STOPPED) ? open_stopped() : foreign_open(kind);
}

static int open_again(int fd)
{
    return (fd == stopped_fd) ? fd : fcntl(fd, F_DUPFD_CLOEXEC, 0);
}

/* Four at most, of which @a record says the kinds, and more of the last one.
 * Returns how many. */
static unsigned open_fds(const fuzz_record_t *record, int *fds)
{
    const unsigned wanted = (record->b >> 5) % 5, more = record->b >> 8;
    unsigned num          = 0, i;

    for (i = 0; i < wanted; ++i) {
        fds[num] = ((i < 3) && (record->a & UCS_BIT(5 + i))) ?
                   open_again(good_fds[i]) :
                   open_kind(((record->c >> (8 * i)) & 0xff) % (STOPPED + 1));
        num     += (fds[num] >= 0);
    }

    for (i = 0; (num > 0) && (num < MAX_FDS) && (i < more); ++i) {
        fds[num] = open_again(fds[num - 1]);
        num     += (fds[num] >= 0);
    }
    return num;
}

/* a: type, which descriptors are good ones; b: what is wrong, how many; c:
 * their kinds; d: size */
static void send_message(int sock, const fuzz_record_t *record)
{
    const np_msg_t msg = {
        .type        = (record->a & 31) % 7,
        .version     = NP_WIRE_VERSION + !!(record->b & 1),
        .engine_id   = np_engine.id + 2,
        .cookie      = np_engine.cookie + !!(record->b & 2),
        .size        = (record->b & 4) ? record->d : good_size,
        .part        = (record->b & 4) ? record->d : good_size,
        .segment_id  = record->d,
        .has_tables  = !(record->d & 1),
        .has_barrier = !!(record->d & 2)
    };
    const size_t len   = !(record->b & 8) ? sizeof(msg) :
                         (record->b & 16) ? 0 : (sizeof(msg) / 2);
    int fds[MAX_FDS], is_sent;
    unsigned num;

    if (sock >= 0) {
        num     = open_fds(record, fds);
        is_sent = foreign_send(sock, &msg, len, fds, num);
        give_up(fds, num, is_sent);
    }
}

static void sender_close(sender_t *sender)
{
    if (sender->fd >= 0) {
        close(sender->fd);
        sender->fd = -1;
    }
}

static void sender_close_link(sender_t *sender)
{
    if (sender->has_link) {
        victim_begin();
        np_ep_close(&sender->link.flight);
        victim_end();
        sender->has_link = 0;
    }
}

static void sender_connect(sender_t *sender)
{
    np_sock_cred_t cred;

    sender_close(sender);
    if (np_sock_connect(victim->id, &sender->fd, &cred) != UCS_OK) {
        sender->fd = -1;
    }
}

/* The victim connects to it */
static void sender_accept(sender_t *sender)
{
    const np_port_addr_t addr = {
        .port_id   = victim->id + 1 + (sender - senders),
        .engine_id = np_engine.id + 3
    };
    np_sock_cred_t cred;
    int spare = -1;

    sender_close(sender);
    sender_close_link(sender);
    np_link_init(&sender->link, victim, &addr);
    sender->has_link             = 1;
    sender->link.segments_asked = 2;
    victim_begin();
    np_link_connect(&sender->link);
    victim_end();
    if (np_sock_accept(sender->listener, &spare, &sender->fd, &cred) !=
        UCS_OK) {
        sender->fd = -1;
    }
}

static void victim_calls(sender_t *sender, const fuzz_record_t *record)
{
    if (!sender->has_link ||
        (sender->link.flight.gate & (NP_GATE_UNCONNECTED | NP_GATE_DOWN))) {
        return;
    }

    victim_begin();
    switch (record->a & 3) {
    case 0:
        np_link_wake(&sender->link);
        break;
    case 1:
        np_link_ring(&sender->link);
        break;
    case 2:
        pair_send(&sender->link);
        break;
    default:
        np_link_is_alive(&sender->link);
        break;
    }
    victim_end();
}

/* What a service thread does */
static void victim_serves(void)
{
    victim_begin();
    np_port_hear_bell(victim);
    np_port_accept(victim, 0);
    victim_end();
}

/* A port that closes before it has looked */
static void closing_port(const fuzz_record_t *record)
{
    np_port_t *port = pair_port();
    np_sock_cred_t cred;
    int fd;

    if (np_sock_connect(port->id, &fd, &cred) == UCS_OK) {
        send_message(fd, record);
        if (record->d & 4) {
            close(fd);
            fd = -1;
        }
    }

    victim_begin();
    if (record->d & 8) {
        np_port_housekeep(port);
    }
    np_proto_close(port);
    victim_end();
    if (fd >= 0) {
        close(fd);
    }
}

static void step(fuzz_input_t *input, const fuzz_record_t *record)
{
    sender_t *sender = &senders[(record->op >> 4) % SENDERS];
    fuzz_record_t more;
    unsigned i;

    switch (record->op & 15) {
    case 0:
        sender_connect(sender);
        break;
    case 1:
        sender_accept(sender);
        break;
    case 2:
        sender_close(sender);
        break;
    case 3:
        sender_close_link(sender);
        break;
    case 4:
    case 5:
        for (i = 0; i <= (record->a & 7u); ++i) {
            progress();
        }
        break;
    case 6:
        victim_serves();
        break;
    case 7:
        victim_calls(sender, record);
        break;
    case 8:
        if (fuzz_next(input, &more)) {
            closing_port(&more);
        }
        break;
    default:
        send_message(sender->fd, record);
        break;
    }
}

/* Those who were there before, and one who comes now */
static void expect_honest(void)
{
    np_link_t link;

    pair_received = 0;
    pair_link(honest, victim, &link);
    pair_send(&link);
    pair_send(&to_victim);
    victim_begin();
    pair_send(&from_victim);
    victim_end();
    expect_received("others do not go on", 3);
    np_ep_close(&link.flight);
}

/* Nothing of what was sent stays */
static void expect_files(unsigned wanted)
{
    const uint64_t begin       = np_clock();
    const struct timespec wait = {.tv_nsec = 200000};
    unsigned found;

    while (((found = pair_count_files() - foreign_count_own()) > wanted) &&
           ((np_clock() - begin) < PATIENCE_NS)) {
        progress();
        nanosleep(&wait, NULL);
    }
    if (found > wanted) {
        fail("descriptors of a sender stay", found - wanted);
    }
}

/* Threads of the process with this name */
static unsigned count_threads(const char *name)
{
    char path[300], line[32];
    unsigned count = 0;
    struct dirent *entry;
    FILE *file;
    DIR *dir       = opendir("/proc/self/task");

    while ((dir != NULL) && ((entry = readdir(dir)) != NULL)) {
        snprintf(path, sizeof(path), "/proc/self/task/%s/comm", entry->d_name);
        file = (entry->d_name[0] == '.') ? NULL : fopen(path, "r");
        if (file == NULL) {
            continue;
        }
        if (fgets(line, sizeof(line), file) != NULL) {
            line[strcspn(line, "\n")] = '\0';
            count                    += strcmp(line, name) == 0;
        }
        fclose(file);
    }
    closedir(dir);
    return count;
}

/* Of those which close what was sent: there is nothing any more */
static void expect_no_threads(void)
{
    const uint64_t begin       = np_clock();
    const struct timespec wait = {.tv_nsec = 200000};
    unsigned found;

    while (((found = count_threads("nprdma-porter") +
                     count_threads("nprdma-heir")) > 0) &&
           ((np_clock() - begin) < PATIENCE_NS)) {
        nanosleep(&wait, NULL);
    }
    if (found > 0) {
        fail("threads of the engine stay", found);
    }
}

static void open_ends(int *ends)
{
    int low[2] = {-1, -1}, i;

    if (pipe2(low, O_CLOEXEC) != 0) {
        fail("no pipe", 0);
    }
    for (i = 0; i < 2; ++i) {
        ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, ENDS_FIRST);
        if (ends[i] < 0) {
            fail("no number for a pipe: see 'ulimit -n'", ENDS_FIRST + i);
        }
        close(low[i]);
    }
}

/* The first heir of such a file, if one comes: what is closed earlier is in
 * nobody's copy. A porter that hangs has one. */
static void wait_for_heir(void)
{
    const uint64_t begin       = np_clock();
    const struct timespec wait = {.tv_nsec = 200000};

    while ((stopped_fd >= 0) && !atomic_load(&has_heir) &&
           (count_threads("nprdma-porter") > 0) &&
           ((np_clock() - begin) < PATIENCE_NS)) {
        nanosleep(&wait, NULL);
    }
}

/* What the program closes has an end, although heirs hang */
static void expect_end(int *ends)
{
    const uint64_t begin = np_clock();
    struct pollfd pfd    = {.fd = ends[0], .events = POLLIN};

    close(ends[1]);
    while ((poll(&pfd, 1, 100) != 1) &&
           ((np_clock() - begin) < PATIENCE_NS)) {
    }
    if (!(pfd.revents & POLLHUP)) {
        fail("a pipe has no end", 0);
    }
    close(ends[0]);
}

/* While a file system has stopped, and after it has gone */
static void expect_stopped(void)
{
    if (stopped_fd < 0) {
        return;
    }

    if (count_threads("nprdma-porter") > PORTERS) {
        fail("more threads are held than may be", PORTERS);
    }
    stopped_end();
    close(stopped_fd);
    stopped_fd = -1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    fuzz_input_t input = {data, size, 0};
    fuzz_record_t record;
    unsigned before, i;
    int ends[2];

    before = pair_count_files() - foreign_count_own();
    open_ends(ends);
    while (fuzz_next(&input, &record)) {
        step(&input, &record);
    }
    progress();

    for (i = 0; i < SENDERS; ++i) {
        sender_close(&senders[i]);
        sender_close_link(&senders[i]);
    }
    expect_honest();
    wait_for_heir();
    expect_end(ends);
    expect_stopped();
    expect_files(before);
    foreign_reset();
    expect_no_threads();
    return 0;
}
