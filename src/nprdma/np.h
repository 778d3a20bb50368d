/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What every file of the engine shares: sizes, lines, and the words that every
 * transfer is described with. The engine uses libucs and nothing above it.
 */

#ifndef NP_H_
#define NP_H_

#include <stddef.h>
#include <stdint.h>
#include <stdatomic.h>

#include <ucs/sys/compiler.h>
#include <ucs/sys/math.h>
#include <ucs/sys/preprocessor.h>
#if __has_include(<ucs/sys/ptr_arith.h>)
#  include <ucs/sys/ptr_arith.h> /* UCX 1.17 and later: a part of math.h */
#endif
#include <ucs/type/status.h>
#include <ucs/debug/assert.h>
#include <ucs/debug/log.h>
#include <ucs/datastruct/list.h>
#include <ucs/datastruct/queue.h>

/** Bytes of one cache line; shared words of different writers keep this
 *  apart */
#define NP_LINE              64

/** Version of everything that two processes share: rings, keys, messages */
#define NP_WIRE_VERSION      14

/** Elements of a scatter list that one transfer may have */
#define NP_MAX_IOV           16

/* The reader of a log must see whose line it is */
#define np_error(_fmt, ...)  ucs_error("nprdma: " _fmt, ## __VA_ARGS__)
#define np_warn(_fmt, ...)   ucs_warn("nprdma: " _fmt, ## __VA_ARGS__)
#define np_diag(_fmt, ...)   ucs_diag("nprdma: " _fmt, ## __VA_ARGS__)
#define np_debug(_fmt, ...)  ucs_debug("nprdma: " _fmt, ## __VA_ARGS__)

/** What must hold, where it must hold: test builds of the engine, sanitizer
 *  builds and --enable-debug stop with a line if it does not; elsewhere it is
 *  nothing, and not even evaluated. Not UCX's ucs_assert: what turns that on
 *  changes the layout of UCX's structures. */
#if defined(NP_TEST_BUILD) || defined(NPRDMA_DEBUG)
#  define NP_HAS_ASSERT      1
#  define np_assert(_cond)   ucs_assert_always(_cond)
#  define np_assertv(_cond, _fmt, ...) \
       ucs_assertv_always(_cond, _fmt, ## __VA_ARGS__)
#else
#  define NP_HAS_ASSERT      0
#  define np_assert(_cond)   ((void)sizeof(!(_cond)))
#  define np_assertv(_cond, _fmt, ...)  ((void)sizeof(!(_cond)))
#endif

/** A variable of each thread, in the few bytes that the C library keeps for
 *  those of libraries that are loaded late: finding it takes no call.
 *  LeakSanitizer guesses where all others are, and crashes when it guesses
 *  wrong. */
#define NP_THREAD_OWN        __thread __attribute__((tls_model("initial-exec")))

#define NP_LINE_ALIGNED      __attribute__((aligned(NP_LINE)))

/** What a peer says: UCS_OK, or an error of UCX's. Any other number counts as
 *  an error: UCX keeps a status in a byte, and might take the number for
 *  UCS_OK. */
static inline ucs_status_t np_status_of_peer(int32_t status)
{
    return ((status <= UCS_OK) && (status > UCS_ERR_LAST)) ?
           (ucs_status_t)status : UCS_ERR_IO_ERROR;
}

/** One element of a scatter list: local memory */
typedef struct np_iov {
    void   *base;
    size_t len;     /**< bytes */
} np_iov_t;

/** Which way bytes go, seen from the caller */
typedef enum np_dir {
    NP_DIR_GET,   /**< remote to local */
    NP_DIR_PUT    /**< local to remote */
} np_dir_t;

/** Takes what a buffered read has brought */
typedef void (*np_unpack_t)(void *arg, const void *data, size_t len);

/** Write into a buffer; returns how many bytes */
typedef size_t (*np_pack_t)(void *dest, void *arg);

typedef enum np_atomic_op {
    NP_ATOMIC_ADD,
    NP_ATOMIC_AND,
    NP_ATOMIC_OR,
    NP_ATOMIC_XOR,
    NP_ATOMIC_SWAP,
    NP_ATOMIC_CSWAP,
    NP_ATOMIC_LAST
} np_atomic_op_t;

/** An atomic, as its target is asked for it */
typedef struct np_atomic {
    uint64_t addr;
    uint64_t value;     /**< operand, or the new value */
    uint64_t compare;   /**< CSWAP: the expected value */
    uint8_t  op;        /**< np_atomic_op_t */
    uint8_t  size;      /**< 4 or 8 */
} np_atomic_t;

#endif
