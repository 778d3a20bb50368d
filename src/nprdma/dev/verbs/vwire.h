/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What travels between two ports of RNICs. Both sides are little-endian, as
 * all hosts of nprdma are.
 */

#ifndef NP_VWIRE_H_
#define NP_VWIRE_H_

#include "../../np.h"

#define NP_VWIRE_MAGIC    0x4156504eu  /**< "NPVA" */
#define NP_VWIRE_VERSION  5

/** Bytes of a message with its header; not 1024 of payload (facts of UCP
 *  1.13) */
#define NP_VSEG_SIZE      8320
#define NP_VSEG_PAYLOAD   (NP_VSEG_SIZE - sizeof(np_vmsg_t))

/** Datagrams of the handshake */
typedef enum np_hello_kind {
    NP_HELLO_REQUEST,   /**< a link wants a queue pair */
    NP_HELLO_REPLY,     /**< here it is */
    NP_HELLO_REFUSE,    /**< no: status says why */
    NP_HELLO_RESET,     /**< to a link: its queue pair has failed here */
    NP_HELLO_GONE       /**< to a link: this port has been closed */
} np_hello_kind_t;

typedef struct np_hello {
    uint32_t magic;
    uint16_t version;
    uint16_t kind;
    uint64_t engine_id;  /**< of the link's process, also in a reply */
    uint64_t cookie;     /**< of the port that is asked */
    uint32_t link_id;    /**< of the link, unique in its process */
    uint32_t epoch;      /**< queue pairs that this link had before */
    uint32_t credits;    /**< messages that may be under way: what the link
                              would like, and what the other side has room
                              for */
    uint32_t taken;      /**< REPLY: messages of the link that have been */
    int32_t  status;     /**< REPLY: of a put that has failed, or UCS_OK */
    uint32_t qpn;        /**< the sender's reliable queue pair */
    uint32_t psn;
    uint32_t ud_qpn;     /**< where to answer */
    uint16_t lid;
    uint8_t  is_roce;
    uint8_t  mtu;
    uint8_t  reads;      /**< RDMA Reads of the other side that may be under
                              way */
    uint8_t  gid[16];
} __attribute__((packed)) np_hello_t;

typedef enum np_vmsg_kind {
    NP_VMSG_AM,       /**< payload */
    NP_VMSG_PUT,      /**< addr; payload */
    NP_VMSG_READ,     /**< op, addr, len: the link's memory is the sink */
    NP_VMSG_WRITE,    /**< op, addr, len: the link's memory is the source */
    NP_VMSG_READY,    /**< op, addr, len, offset, rkey: may be written; rkey 0:
                           by DATA */
    NP_VMSG_DATA,     /**< op, offset; payload */
    NP_VMSG_DONE,     /**< op, status: the sender will move nothing more. An
                           error is answered by another one. */
    NP_VMSG_ATOMIC,   /**< op, addr, offset: operand, compare */
    NP_VMSG_RESULT,   /**< op, status, offset: the value before */
    NP_VMSG_ACK,      /**< only what every header has; not counted */
    NP_VMSG_BYE,      /**< the link has ended */
    NP_VMSG_VIEWS,    /**< np_vviews_t: the link asks for the keys of an
                           arena's views; it is told those of each region of
                           the row, in order, or why there are none */
    NP_VMSG_LAST
} np_vmsg_kind_t;

enum {
    NP_VMSG_ACK_NOW = 1u << 0,  /**< tell at once how far you are */
    NP_VMSG_NO_KEYS = 1u << 1,  /**< READ: answer by DATA, no READY will come */
    NP_VMSG_WAKE    = 1u << 2,  /**< sent with the solicited event */
    NP_VMSG_DISTANT = 1u << 3,  /**< answer: a service thread has sent it;
                                     WRITE: one has taken the key of the last */
    NP_VMSG_AGAIN   = 1u << 4,  /**< ATOMIC: it was taken, its answer is lost */
    NP_VMSG_ABSENT  = 1u << 5   /**< PUT, READ, WRITE: bring these pages into
                                     your views as well */
};

/** Header of every message */
typedef struct np_vmsg {
    uint8_t  kind;
    uint8_t  id;        /**< AM: whose; ATOMIC: np_atomic_op_t */
    uint8_t  flags;
    uint8_t  size;      /**< ATOMIC: 4 or 8 */
    uint32_t ack;       /**< of the link's messages, those that were taken */
} __attribute__((packed)) np_vmsg_t;

/** What follows the header, except for AM, ACK, BYE and VIEWS. The link's side
 *  names an operation, both sides use that name. */
typedef struct np_vbody {
    uint32_t op;
    int32_t  status;
    uint64_t addr;
    uint64_t len;
    uint64_t offset;    /**< in the transfer */
    uint64_t compare;
    uint32_t rkey;
    uint32_t reserved;
} __attribute__((packed)) np_vbody_t;

/** What follows the header of VIEWS. A link asks by addr alone. */
typedef struct np_vviews {
    uint32_t index;     /**< of a region of a view's row */
    int32_t  status;    /**< UCS_OK; UCS_ERR_NO_RESOURCE: ask again later;
                             another: there are none */
    uint64_t addr;      /**< what the views cover */
    uint64_t len;
    uint64_t size;      /**< bytes of each region, but the last */
    uint32_t read;      /**< keys of this one in the read view .. */
    uint32_t write;     /**< .. and in the write view .. */
    uint32_t table;     /**< .. and of the table of entries */
} __attribute__((packed)) np_vviews_t;

/** A message without payload */
typedef struct np_vctl {
    np_vmsg_t       msg;
    union {
        np_vbody_t  body;
        np_vviews_t views;
    };
} __attribute__((packed)) np_vctl_t;

_Static_assert(sizeof(np_vviews_t) <= sizeof(np_vbody_t),
               "all messages without payload have one size");

/** Nanoseconds until views that were refused for a time are tried again, by
 *  their owner and by the links that ask for them; twice as long after each
 *  time */
#define NP_VIEWS_RETRY_MIN UINT64_C(100000000)
#define NP_VIEWS_RETRY_MAX UINT64_C(60000000000)

/** Payload of PUT and DATA */
#define NP_VSEG_DATA      (NP_VSEG_SIZE - sizeof(np_vctl_t))

#endif
