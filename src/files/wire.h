/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What nprdma-filed and its clients say to each other.
 *
 * 1. A client connects to a socket of the server, says who it is (nf_hello_t),
 *    and both exchange the addresses of UCP workers (nf_welcome_t). From then
 *    on the socket carries nothing: its end is the end of the session, whatever
 *    has ended it.
 * 2. What a client asks for is an active message (nf_request_t, and a path or
 *    data behind it), and so is the answer (nf_reply_t). A request names its
 *    session and shows the secret that the server has given to it.
 * 3. The bytes of files go by UCP's put and get, with the key that the answer
 *    to an open has: the server's programs have no part in that.
 *
 * All numbers are little-endian, as both hosts are.
 */

#ifndef NF_WIRE_H_
#define NF_WIRE_H_

#include <stdint.h>

#define NF_MAGIC     0x3144464eu /* NFD1 */
#define NF_VERSION   1

/** UCP's ids of active messages */
enum {
    NF_AM_REQUEST = 1,
    NF_AM_REPLY   = 2
};

/** Bytes that a client may send before it is known, beside its nf_hello_t */
#define NF_AUTH_MAX     16384
#define NF_ADDRESS_MAX  65536

/** UCP reads an address as far as it says that it goes, and fails with one that
 *  is none: who has shown who it is can end the server by that. There are
 *  zeroes behind what has come. */
#define NF_ADDRESS_ROOM (NF_ADDRESS_MAX + 4096)

/** Bytes of a path, with no zero at its end */
#define NF_PATH_MAX     4095

/** Bytes of one append, and of an answer's data */
#define NF_APPEND_MAX   (64u << 20)
#define NF_DATA_MAX     32768

/** How a client shows who it is */
typedef enum nf_auth {
    NF_AUTH_PEER,   /**< the kernel says so: a socket of this host */
    NF_AUTH_TOKEN,  /**< it has the server's token (common.h) */
    NF_AUTH_MUNGE   /**< munged says so: a credential (munge.h) */
} nf_auth_t;

typedef struct nf_hello {
    uint32_t magic;
    uint32_t version;
    uint32_t auth;         /**< nf_auth_t */
    uint32_t auth_len;     /**< bytes that follow, and then the address */
    uint32_t address_len;
} nf_hello_t;

typedef struct nf_welcome {
    uint32_t magic;
    uint32_t version;      /**< the server's; of others nothing more is said */
    int32_t  status;       /**< 0, or a negative errno and nothing more */
    uint32_t session;
    uint64_t secret;
    uint64_t boot;         /**< of the server's host: what was not on the disk
                                is lost if it has another one */
    uint32_t address_len;  /**< bytes that follow */
    uint32_t user;         /**< the server's, where -EACCES refuses another's */
} nf_welcome_t;

typedef enum nf_op {
    NF_OP_OPEN,      /**< path, flags, mode; gives handle, stat, key */
    NF_OP_CLOSE,     /**< handle */
    NF_OP_STAT,      /**< path, or handle if there is none; gives stat */
    NF_OP_LIST,      /**< handle of a directory; gives entries, or none */
    NF_OP_MKDIR,     /**< path, mode */
    NF_OP_RENAME,    /**< path and other path */
    NF_OP_REMOVE,    /**< path, flags: NF_REMOVE_DIR */
    NF_OP_RESIZE,    /**< handle, length, flags: NF_RESIZE_..; gives stat, and a
                          key if the old one does not reach so far */
    NF_OP_APPEND,    /**< handle, data; gives value: where it is */
    NF_OP_COMMIT,    /**< handle: it is on the disk */
    NF_OP_LAST
} nf_op_t;

/** Flags of an open. To write is to read as well. */
enum {
    NF_OPEN_WRITE     = 1u << 0,
    NF_OPEN_APPEND    = 1u << 1, /**< and nothing else is written */
    NF_OPEN_CREATE    = 1u << 2,
    NF_OPEN_EXCLUSIVE = 1u << 3,
    NF_OPEN_TRUNCATE  = 1u << 4,
    NF_OPEN_DIRECTORY = 1u << 5,
    NF_OPEN_ALL       = (1u << 6) - 1
};

enum {
    NF_RESIZE_GROW     = 1u << 0, /**< to this length, if it is shorter */
    NF_RESIZE_ALLOCATE = 1u << 1, /**< with room for all of it on the disk */
    NF_RESIZE_RESERVE  = 1u << 2, /**< such room alone: its size stays */
    NF_RESIZE_ALL      = (1u << 3) - 1
};

enum {
    NF_REMOVE_DIR = 1u << 0
};

typedef struct nf_request {
    uint64_t secret;
    uint32_t session;
    uint32_t seq;          /**< the answer has it as well */
    uint32_t op;           /**< nf_op_t */
    uint32_t flags;
    uint32_t handle;
    uint32_t mode;
    uint64_t length;
    uint32_t path_len;     /**< of what follows; the rest is another path, or
                                data */
    uint32_t reserved;
} nf_request_t;

/** What statx() says, as far as clients want it. A file is known by its first
 *  four words: its inode may be another file's when it is gone. */
typedef struct nf_stat {
    uint64_t device;
    uint64_t inode;
    int64_t  birth_sec;    /**< with birth_nsec: 0 where nobody knows */
    uint64_t birth_nsec;
    uint64_t size;
    int64_t  mtime_sec;
    uint32_t mtime_nsec;
    uint32_t mode;         /**< with the type, as st_mode */
    uint32_t uid;
    uint32_t gid;
} nf_stat_t;

typedef struct nf_reply {
    uint32_t  seq;
    int32_t   status;      /**< 0, or a negative errno: nothing else is set */
    uint32_t  handle;
    uint32_t  key_len;     /**< bytes of a packed key, first in what follows */
    uint64_t  value;
    uint64_t  limit;       /**< bytes that the key reaches, as the file grows */
    nf_stat_t stat;
} nf_reply_t;

/** One of a list; its name follows. The next begins at once, not aligned. */
typedef struct nf_entry {
    uint8_t  type;         /**< as d_type */
    uint8_t  reserved;
    uint16_t name_len;
} nf_entry_t;

#endif
