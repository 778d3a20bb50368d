/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The door of nprdma-filed.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "door.h"
#include "program.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#define NF_BACKLOG      64
#define NF_EVENTS       32

/* Guests at a time, of this host, and of others: what they send is kept */
#define NF_GUESTS_MAX   128

/* Without descriptors nobody is let in for so long, us */
#define NF_DOOR_PAUSE   100000

/* How often it is looked whether a guest takes too long, ms */
#define NF_GUEST_LOOK   1000

/* What epoll is told of: its pointers are of these */
typedef enum nf_kind {
    NF_KIND_LISTENER,
    NF_KIND_SIGNAL,
    NF_KIND_CHECKER,
    NF_KIND_GUEST,
    NF_KIND_SESSION
} nf_kind_t;

typedef struct nf_watch {
    nf_kind_t kind;
    int       fd;
} nf_watch_t;

/* One that has not shown yet who it is */
typedef struct nf_guest {
    nf_watch_t      watch;
    struct nf_guest *next;      /* of the door */
    int             is_here;    /* it has come over a socket of this host */
    int             is_checked; /* the checker has it, and nobody else */
    uint64_t        deadline;
    size_t          have;       /* bytes of what follows */
    union {
        nf_hello_t hello;
        uint8_t    bytes[sizeof(nf_hello_t) + NF_AUTH_MAX + NF_ADDRESS_MAX];
    };
} nf_guest_t;

/* What a session is watched with: that is small */
typedef struct nf_watched {
    nf_watch_t   watch;
    nf_session_t *session;
} nf_watched_t;


static int nf_door_watch(nf_door_t *door, nf_watch_t *watch, uint32_t events)
{
    struct epoll_event event = {.events = events, .data = {.ptr = watch}};

    return (epoll_ctl(door->epoll, EPOLL_CTL_ADD, watch->fd, &event) == 0) ? 0 :
           -errno;
}

static void nf_door_forget(nf_door_t *door, int fd)
{
    (void)epoll_ctl(door->epoll, EPOLL_CTL_DEL, fd, NULL);
}

int nf_door_open(nf_door_t *door)
{
    door->lock  = -1;
    door->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (door->epoll < 0) {
        nf_say("epoll_create1() failed: %m");
        return -errno;
    }
    return 0;
}

/* Takes the descriptor in each case */
static int nf_door_add_listener(nf_door_t *door, int fd, const char *name)
{
    if (door->num_fds == NF_LISTENERS) {
        nf_say("%s: no more than %d sockets are listened on", name,
               NF_LISTENERS);
        close(fd);
        return -E2BIG;
    }

    if (listen(fd, NF_BACKLOG) != 0) {
        nf_say("%s cannot be listened on: %m", name);
        close(fd);
        return -errno;
    }

    door->fds[door->num_fds++] = fd;
    return 0;
}

/* Who has this lock has the socket: of a server that was killed it may be
 * removed. The file stays. Returns 0: another one has it, or there is none. */
static int nf_door_lock(nf_door_t *door, const char *path)
{
    char name[PATH_MAX];

    snprintf(name, sizeof(name), "%s.lock", path);
    door->lock = open(name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (door->lock < 0) {
        nf_say("'%s' cannot be made: %m", name);
        return 0;
    }

    if (flock(door->lock, LOCK_EX | LOCK_NB) != 0) {
        nf_say("'%s' is listened on already: a server runs. Stop it, or name "
               "another path with --socket", path);
        return 0;
    }
    return 1;
}

int nf_door_listen_here(nf_door_t *door, const char *path)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct stat st;
    mode_t mask;
    int fd, ret;

    if (strlen(path) >= sizeof(addr.sun_path)) {
        nf_say("'%s' is too long for a socket's path: name another one with "
               "--socket", path);
        return -ENAMETOOLONG;
    }

    strcpy(addr.sun_path, path);
    if (!nf_door_lock(door, path)) {
        return -EADDRINUSE;
    }

    if ((lstat(path, &st) == 0) && S_ISSOCK(st.st_mode)) {
        (void)unlink(path); /* of a server that was killed */
    }
    fd   = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    mask = umask(077);
    ret  = bind(fd, (struct sockaddr*)&addr, sizeof(addr));
    umask(mask);
    if (ret != 0) {
        ret = -errno;
        nf_say("'%s' cannot be made: %m", path);
        close(fd);
        return ret;
    }

    snprintf(door->path, sizeof(door->path), "%s", path);
    return nf_door_add_listener(door, fd, path);
}

/* "PORT", "HOST:PORT" or "[HOST]:PORT" in two parts */
static int nf_split(const char *address, char *host, size_t size,
                    const char **port)
{
    const char *colon = strrchr(address, ':');
    size_t len        = (colon == NULL) ? 0 : (size_t)(colon - address);

    *port = (colon == NULL) ? address : (colon + 1);
    if ((len >= 2) && (address[0] == '[') && (colon[-1] == ']')) {
        ++address;
        len -= 2;
    }
    return (size_t)snprintf(host, size, "%.*s", (int)len, address) < size;
}

int nf_door_listen(nf_door_t *door, const char *address)
{
    const struct addrinfo hints = {
        .ai_flags    = AI_PASSIVE,
        .ai_socktype = SOCK_STREAM
    };
    struct addrinfo *found, *one;
    char host[NI_MAXHOST];
    const char *port;
    int fd, ret, on = 1;

    ret = !nf_split(address, host, sizeof(host), &port) ? EAI_NONAME :
          getaddrinfo((host[0] == '\0') ? NULL : host, port, &hints, &found);
    if (ret != 0) {
        nf_say("--listen %s: %s. Name a port, or an address of this host and a "
               "port", address, gai_strerror(ret));
        return -EINVAL;
    }

    ret = -EAFNOSUPPORT; /* each that can be made says more */
    for (one = found; one != NULL; one = one->ai_next) {
        fd = socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK,
                    0);
        if (fd < 0) {
            continue;
        }

        (void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
        if (one->ai_family == AF_INET6) {
            (void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof(on));
        }
        if (bind(fd, one->ai_addr, one->ai_addrlen) != 0) {
            ret = -errno;
            nf_say("--listen %s: %m", address);
            close(fd);
        } else {
            ret = nf_door_add_listener(door, fd, address);
        }
        if (ret != 0) {
            break;
        }
    }
    freeaddrinfo(found);
    if (ret == -EAFNOSUPPORT) {
        nf_say("--listen %s: this host has no such network", address);
    }
    return ret;
}

static void nf_guest_free(nf_door_t *door, nf_guest_t *guest)
{
    nf_guest_t **link;

    for (link = &door->guests; *link != guest; link = &(*link)->next) {
    }
    *link = guest->next;
    free(guest);
}

/* One that is turned away hears why */
static void nf_guest_refuse(nf_door_t *door, nf_guest_t *guest, int error)
{
    const nf_welcome_t welcome = {
        .magic   = NF_MAGIC,
        .version = NF_VERSION,
        .status  = error,
        .user    = geteuid()
    };

    (void)send(guest->watch.fd, &welcome, sizeof(welcome),
               MSG_NOSIGNAL | MSG_DONTWAIT);
    nf_door_forget(door, guest->watch.fd);
    close(guest->watch.fd);
    nf_guest_free(door, guest);
}

/* Is the user at the other end of a socket of this host ours? */
static int nf_guest_is_ours(const nf_guest_t *guest)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    return guest->is_here &&
           (getsockopt(guest->watch.fd, SOL_SOCKET, SO_PEERCRED, &cred,
                       &len) == 0) && (cred.uid == geteuid());
}

/* Takes as long whatever differs */
static int nf_guest_has_token(const nf_door_t *door, const nf_guest_t *guest)
{
    const uint8_t *shown = guest->bytes + sizeof(guest->hello);
    uint8_t differs      = 0;
    unsigned i;

    if (!door->has_token || (guest->hello.auth_len != NF_TOKEN_BYTES)) {
        return 0;
    }

    for (i = 0; i < NF_TOKEN_BYTES; ++i) {
        differs |= shown[i] ^ door->token[i];
    }
    return differs == 0;
}

/* It is not looked at any more until the checker is through with it. Returns
 * -EINPROGRESS or another negative errno. */
static int nf_guest_begin_check(nf_door_t *door, nf_guest_t *guest)
{
    int ret;

    if (door->checker == NULL) {
        return -EOPNOTSUPP;
    }

    ret = nf_checker_put(door->checker, guest, guest->watch.fd, &guest->hello,
                         guest->deadline);
    if (ret != 0) {
        return ret;
    }

    guest->is_checked = 1;
    nf_door_forget(door, guest->watch.fd);
    return -EINPROGRESS;
}

/* All of it is here: one that is refused earlier may not hear why, since what
 * it has sent is lost. Returns 0 or a negative errno. */
static int nf_guest_check(nf_door_t *door, nf_guest_t *guest)
{
    if (guest->hello.version != NF_VERSION) {
        return -EPROTONOSUPPORT;
    }

    switch (guest->hello.auth) {
    case NF_AUTH_PEER:
        return nf_guest_is_ours(guest) ? 0 : -EACCES;
    case NF_AUTH_TOKEN:
        return nf_guest_has_token(door, guest) ? 0 :
               (door->has_token || (door->checker == NULL)) ? -EACCES :
               -ENOPROTOOPT;
    case NF_AUTH_MUNGE:
        return guest->is_here ? -EPROTONOSUPPORT :
               nf_guest_begin_check(door, guest);
    default:
        return -EPROTONOSUPPORT;
    }
}

/* How many bytes it will have sent; 0: that cannot be */
static size_t nf_guest_wants(const nf_guest_t *guest)
{
    const nf_hello_t *hello = &guest->hello;

    if (guest->have < sizeof(*hello)) {
        return sizeof(*hello);
    }

    return ((hello->auth_len > NF_AUTH_MAX) || (hello->address_len == 0) ||
            (hello->address_len > NF_ADDRESS_MAX)) ? 0 :
           sizeof(*hello) + hello->auth_len + hello->address_len;
}

/* Its session is a thread's from now on */
static int nf_guest_enter(nf_door_t *door, nf_guest_t *guest)
{
    const uint8_t *address = guest->bytes + sizeof(guest->hello) +
                             guest->hello.auth_len;
    nf_watched_t *watched  = calloc(1, sizeof(*watched));
    nf_session_t *session  = calloc(1, sizeof(*session));
    struct epoll_event event = {.events = EPOLLIN | EPOLLRDHUP,
                                .data = {.ptr = watched}};

    if ((watched != NULL) && (session != NULL)) {
        session->address = calloc(1, NF_ADDRESS_ROOM);
    }
    if ((session == NULL) || (session->address == NULL)) {
        free(session);
        free(watched);
        return -ENOMEM;
    }

    memcpy(session->address, address, guest->hello.address_len);
    session->fd      = guest->watch.fd;
    watched->watch   = (nf_watch_t){NF_KIND_SESSION, session->fd};
    watched->session = session;
    (void)epoll_ctl(door->epoll, EPOLL_CTL_MOD, session->fd, &event);
    nf_serve_begin(&door->threads[door->next_thread++ % door->num_threads],
                   session);
    nf_guest_free(door, guest);
    return 0;
}

/* @a ret: whether it may */
static void nf_guest_decide(nf_door_t *door, nf_guest_t *guest, int ret)
{
    if (ret == 0) {
        ret = nf_guest_enter(door, guest);
    }
    if (ret != 0) {
        nf_guest_refuse(door, guest, ret);
    }
}

static void nf_guest_read(nf_door_t *door, nf_guest_t *guest)
{
    size_t wants = nf_guest_wants(guest);
    ssize_t len;
    int ret;

    while ((wants > 0) && (guest->have < wants)) {
        len = recv(guest->watch.fd, guest->bytes + guest->have,
                   wants - guest->have, MSG_DONTWAIT);
        if (len <= 0) {
            if ((len == 0) || ((errno != EAGAIN) && (errno != EINTR))) {
                nf_guest_refuse(door, guest, -ECONNRESET);
            }
            return;
        }

        guest->have += len;
        wants        = nf_guest_wants(guest);
        if (guest->have < sizeof(guest->hello)) {
            continue;
        }

        if (guest->hello.magic != NF_MAGIC) {
            nf_guest_refuse(door, guest, -EPROTO);
            return;
        }
    }

    ret = (wants == 0) ? -EPROTO : nf_guest_check(door, guest);
    if (ret != -EINPROGRESS) {
        nf_guest_decide(door, guest, ret);
    }
}

/* Those that the checker is through with */
static void nf_door_take_checked(nf_door_t *door)
{
    nf_guest_t *guest;
    int ret;

    while ((guest = nf_checker_take(door->checker, &ret)) != NULL) {
        guest->is_checked = 0;
        if (ret == 0) {
            ret = nf_door_watch(door, &guest->watch, EPOLLIN | EPOLLRDHUP);
        }
        nf_guest_decide(door, guest, ret);
    }
}

/* Those of this host do not wait for those of others */
static unsigned nf_door_num_guests(const nf_door_t *door, int is_here)
{
    const nf_guest_t *guest;
    unsigned count = 0;

    for (guest = door->guests; guest != NULL; guest = guest->next) {
        count += guest->is_here == is_here;
    }
    return count;
}

static void nf_door_accept(nf_door_t *door, int listener)
{
    int fd            = accept4(listener, NULL, NULL,
                                SOCK_CLOEXEC | SOCK_NONBLOCK);
    socklen_t len     = sizeof(int);
    int domain        = AF_UNSPEC;
    nf_guest_t *guest = NULL;

    if (fd < 0) {
        if ((errno == EMFILE) || (errno == ENFILE)) {
            usleep(NF_DOOR_PAUSE); /* they are still there then */
        }
        return;
    }

    (void)getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &domain, &len);
    if (nf_door_num_guests(door, domain == AF_UNIX) < NF_GUESTS_MAX) {
        guest = malloc(sizeof(*guest));
    }
    if (guest == NULL) {
        close(fd);
        return;
    }

    if (domain != AF_UNIX) {
        nf_keep_alive(fd);
    }
    guest->watch      = (nf_watch_t){NF_KIND_GUEST, fd};
    guest->is_here    = domain == AF_UNIX;
    guest->is_checked = 0;
    guest->deadline   = nf_now() + (NF_CONNECT_LIMIT * UINT64_C(1000000000));
    guest->have       = 0;
    guest->next       = door->guests;
    door->guests      = guest;
    if (nf_door_watch(door, &guest->watch, EPOLLIN | EPOLLRDHUP) != 0) {
        nf_guest_refuse(door, guest, -ENOMEM);
    }
}

static void nf_door_look_at_guests(nf_door_t *door)
{
    nf_guest_t *guest, *next;

    for (guest = door->guests; guest != NULL; guest = next) {
        next = guest->next;
        if (!guest->is_checked && (nf_now() > guest->deadline)) {
            nf_guest_refuse(door, guest, -ETIMEDOUT);
        }
    }
}

/* Whatever comes over a session's socket is its end */
static void nf_door_end_session(nf_door_t *door, nf_watched_t *watched)
{
    nf_door_forget(door, watched->watch.fd);
    nf_serve_end(watched->session);
    free(watched);
}

/* Returns 0: it is time to go */
static int nf_door_serve(nf_door_t *door, nf_watch_t *watch)
{
    switch (watch->kind) {
    case NF_KIND_LISTENER:
        nf_door_accept(door, watch->fd);
        return 1;
    case NF_KIND_CHECKER:
        nf_door_take_checked(door);
        return 1;
    case NF_KIND_GUEST:
        nf_guest_read(door, (nf_guest_t*)watch);
        return 1;
    case NF_KIND_SESSION:
        nf_door_end_session(door, (nf_watched_t*)watch);
        return 1;
    default:
        return 0;
    }
}

void nf_door_run(nf_door_t *door, int signal_fd)
{
    nf_watch_t watches[NF_LISTENERS + 2];
    struct epoll_event events[NF_EVENTS];
    int i, count, goes_on = 1;

    for (i = 0; i < (int)door->num_fds; ++i) {
        watches[i] = (nf_watch_t){NF_KIND_LISTENER, door->fds[i]};
        (void)nf_door_watch(door, &watches[i], EPOLLIN);
    }
    watches[i] = (nf_watch_t){NF_KIND_SIGNAL, signal_fd};
    (void)nf_door_watch(door, &watches[i], EPOLLIN);
    if (door->checker != NULL) {
        watches[++i] = (nf_watch_t){NF_KIND_CHECKER,
                                    nf_checker_fd(door->checker)};
        (void)nf_door_watch(door, &watches[i], EPOLLIN);
    }

    while (goes_on) {
        count = epoll_wait(door->epoll, events, NF_EVENTS,
                           (door->guests == NULL) ? -1 : NF_GUEST_LOOK);
        for (i = 0; i < count; ++i) {
            goes_on = nf_door_serve(door, events[i].data.ptr) && goes_on;
        }
        nf_door_look_at_guests(door);
    }
}

void nf_door_close(nf_door_t *door)
{
    unsigned i;

    if (door->checker != NULL) {
        nf_checker_stop(door->checker);
    }
    while (door->guests != NULL) {
        nf_guest_refuse(door, door->guests, -ESHUTDOWN);
    }
    for (i = 0; i < door->num_fds; ++i) {
        close(door->fds[i]);
    }
    if (door->path[0] != '\0') {
        (void)unlink(door->path);
    }
    if (door->lock >= 0) {
        close(door->lock);
    }
    close(door->epoll);
}
