/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * A client's side of nprdma-filed: its connection, and the calls that are under
 * way. All of it belongs to the thread that uses the server.
 *
 * A call (nf_call_t) is what the program asks for. It goes through phases; in
 * each UCX has something to do for it, or an answer of the server is awaited.
 * While it lives it is in one list: that of what it waits for.
 */

#ifndef NF_SERVER_H_
#define NF_SERVER_H_

#include "common.h"
#include "way.h"
#include "wire.h"

#include <nprdma/nprdma_remote.h>

#include <ucs/datastruct/list.h>

/** Requests that may await answers. The server lets a client have 256. */
#define NF_ASKS          64

/** Appends up to this size are sent at once; of larger ones the server fetches
 *  the data, of one at a time */
#define NF_EAGER_MAX     32768

/** Pieces of an append, at most */
#define NF_IOV_MAX       1024

typedef enum nf_phase {
    NF_PHASE_BEGIN,
    NF_PHASE_SIZE,      /**< the size that a read or write needs is asked for */
    NF_PHASE_MOVE,      /**< bytes are moved */
    NF_PHASE_FLUSH,     /**< until what was put has arrived */
    NF_PHASE_ASK        /**< the call is one request, that awaits its answer */
} nf_phase_t;

typedef enum nf_kind {
    NF_KIND_ASK,        /**< one request */
    NF_KIND_READ,
    NF_KIND_WRITE
} nf_kind_t;

/** A file's key. Owner: who uses it, together. */
typedef struct nf_key {
    ucp_rkey_h rkey;
    unsigned   uses;
} nf_key_t;

/** A call that is under way. Owner: who has begun it, when it has ended. */
typedef struct nf_call {
    ucs_list_link_t    list;
    nprdma_server_t    *server;
    nprdma_remote_t    *file;     /**< NULL: of none */
    nf_kind_t          kind;
    nf_phase_t         phase;
    unsigned           round;     /**< how often it was begun again */
    unsigned           flying;    /**< requests that UCX has */
    int                is_once;   /**< it must not be done twice */
    int                is_bound;  /**< it is of no use by another connection */
    int                is_change; /**< it changes the file */
    int                is_sent;   /**< the server may have got it */
    int                is_asking; /**< an answer is awaited */
    int                is_ready;  /**< in the list of those that go on */
    int                status;    /**< the first error of a phase */

    nf_request_t       request;   /**< of this phase, and what follows it */
    const struct iovec *iov;
    size_t             iov_count;
    nf_reply_t         reply;
    ucp_rkey_h         rkey;      /**< that came with it; NULL: none */

    char               *data;     /**< read, write, and of a list's answer */
    size_t             len;
    uint64_t           offset;
    size_t             part;      /**< bytes that are moved in this round */
    size_t             done;      /**< of these, begun */
    nf_key_t           *key;      /**< they are moved by */
    uint64_t           covers;    /**< file->changes that a commit covers */

    int64_t            result;
    void               (*on_end)(struct nf_call *call);
    nprdma_remote_cb_t cb;
    void               *arg;
    struct iovec       one;       /**< an append of one piece */
} nf_call_t;

struct nprdma_remote {
    ucs_list_link_t list;         /**< of the server's files */
    nprdma_server_t *server;      /**< NULL: disconnected */
    char            *path;
    struct iovec    path_iov;
    unsigned        flags;        /**< NF_OPEN_.., for the next time */
    unsigned        epoch;        /**< of the connection that it is open by */
    uint32_t        handle;
    nf_key_t        *key;         /**< NULL: a directory */
    uint64_t        limit;        /**< bytes that the key reaches */
    nf_stat_t       stat;         /**< as it was last told */
    int             is_dirty;     /**< of ours may not be on the disk */
    uint64_t        boot;         /**< of the host then */
    uint64_t        changes;      /**< so many calls have changed it */
    unsigned        num_changing; /**< of these, under way */
    size_t          uses;         /**< the program's, and each call's */
    int             is_opening;   /**< it is opened again */
    nf_call_t       opening;      /**< with is_opening */
    ucs_list_link_t waiting;      /**< calls that wait for it */
};

struct nprdma_server {
    nprdma_server_params_t params;   /**< with copies of what it names */
    nf_way_t               way;      /**< how we show who we are */
    ucp_context_h          context;
    nf_worker_t            worker;
    int                    fd;       /**< -1: not connected */
    ucp_ep_h               ep;
    int                    is_broken; /**< the server is gone */
    unsigned               epoch;    /**< connections so far */
    unsigned               resets;   /**< since the server has last answered */
    uint64_t               boot;     /**< of its host */
    uint64_t               used;     /**< nf_now() when it last answered */
    uint64_t               looked;   /**< and when its socket was looked at */
    uint64_t               gone;     /**< since when it is waited for; 0: not */
    uint64_t               next_try;
    int                    is_waiting_said;
    uint32_t               session;
    uint64_t               secret;
    uint32_t               seq;      /**< of the last request */
    nf_call_t              *asks[NF_ASKS]; /**< by seq */
    nf_call_t              *large;   /**< an append that is fetched, or NULL */
    unsigned               flying;   /**< requests that UCX has */
    size_t                 num_calls; /**< of programs, without blocking */
    int                    is_calling; /**< a callback of a program */
    int                    is_over;  /**< disconnected: nothing begins */
    ucs_list_link_t        files;
    ucs_list_link_t        busy;     /**< calls: UCX or the server has them */
    ucs_list_link_t        ready;    /**< they go on */
    ucs_list_link_t        unsent;   /**< there is no room for a request */
    ucs_list_link_t        waiting;  /**< for the server */
    ucs_list_link_t        ended;    /**< their callbacks are to be called */
    ucs_list_link_t        spare;    /**< calls that nobody uses */
};


/* connect.c: the connection */

/** What a connection says to the program, in one line */
void nf_server_say(const nprdma_server_t *server, const char *format, ...)
        __attribute__((format(printf, 2, 3)));

/** Returns 0 or a negative errno; says nothing */
int nf_server_up(nprdma_server_t *server);

/** The endpoint goes, and UCX gives back what it has of calls */
void nf_server_down(nprdma_server_t *server);

/** Say why there is no connection */
void nf_server_say_why(const nprdma_server_t *server, int error);

/** Is it so bad that to wait does not help? */
int nf_server_is_final(int error);

/** Is it gone, as far as its socket knows?
 *
 *  @param [in] patience  Milliseconds that this may become so within. */
int nf_server_is_gone(nprdma_server_t *server, int patience);

/** Its UCP worker. Returns 0 or a negative errno; a line says why. */
int nf_server_worker(nprdma_server_t *server);


/* progress.c: how calls come to their end */

/** Make a call that blocks. Returns what it returns; -EDEADLK: a callback does
 *  that. */
int64_t nf_call_run(nf_call_t *call);

/** Begin a call that is told of; @a what is copied. Returns 0, -EINVAL, or
 *  -ENOMEM. */
int nf_call_run_nb(const nf_call_t *what, nprdma_remote_cb_t cb, void *arg);

/** Call the callbacks of calls that have ended. Returns how many. */
unsigned nf_server_tell(nprdma_server_t *server);


/* ask.c: what a call asks UCX and the server for */

/** A call is in this list from now on, and in no other */
void nf_call_move_to(nf_call_t *call, ucs_list_link_t *list);

/** It goes on with the next nf_server_go_on() */
void nf_call_ready(nf_call_t *call);

/** How UCX tells that a part of a call is done */
ucp_request_param_t nf_call_param(nf_call_t *call);

/** @a request is what UCX has returned: it is done, or will be */
void nf_call_asked_ucx(nf_call_t *call, ucs_status_ptr_t request);

/** All is asked for: the call waits, or goes on if all is done */
void nf_call_flies(nf_call_t *call);

/** Ask the server for something, when there is room for a request */
void nf_call_ask(nf_call_t *call, nf_phase_t phase);

/** No answer is awaited any more */
void nf_call_forget_answer(nf_call_t *call);

/** Requests for which there was no room are sent */
void nf_server_send(nprdma_server_t *server);

/** An answer has come. @a data follows it. */
ucs_status_t nf_server_on_reply(void *arg, const void *header,
                                size_t header_len, void *data, size_t len,
                                const ucp_am_recv_param_t *param);

size_t nf_iov_len(const struct iovec *iov, size_t count);


/* call.c: what becomes of calls */

/** Begin a call, whose struct is filled in as far as its kind needs it. It ends
 *  with its on_end, perhaps at once. */
void nf_call_begin(nf_call_t *call);

/** Calls that can go on do. Returns how many. */
unsigned nf_server_go_on(nprdma_server_t *server);

/** The server is gone: calls wait for it, and it is tried again from time to
 *  time, or they end */
void nf_server_mend(nprdma_server_t *server);

/** The connection and all calls end, with this result */
void nf_server_end_calls(nprdma_server_t *server, int result);

/** Close a handle; nobody waits for that */
void nf_server_drop(nprdma_server_t *server, uint32_t handle);

/** A use of a file ends. After the last it is closed, and freed. */
void nf_remote_put(nprdma_remote_t *file);

/** A use of a key ends. NULL: nothing. */
void nf_key_put(nf_key_t *key);

#endif
