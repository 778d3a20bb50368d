/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What an endpoint asks of its link, whatever the device: the calls of the face
 * to UCX, except active messages and soft0's short puts and gets, which are the
 * device's own (face/soft.h, face/rnic.h). Each takes the owner's turn where
 * service threads use links as well.
 *
 * UCS_ERR_NO_RESOURCE: try again after progress. Other errors are those of the
 * link, which is down, or of the call.
 */

#ifndef NP_EP_H_
#define NP_EP_H_

#include "op.h"

/** Close the link; what is outstanding completes with UCS_ERR_CANCELED, and
 *  what those completions begin on this link is refused with the same. Not
 *  inside a completion (np_user_t::complete). In a forked child this does
 *  nothing if threads use the port; the same holds for np_ep_cancel, and for
 *  the calls below that would have to wait for a thread. */
void np_ep_close(np_flight_t *flight);

/** A transfer of no bytes, whose key may be UCT_INVALID_RKEY. It is done at
 *  once, and tells as any other that the peer is gone: link_down follows, and
 *  if that is known already, this returns why. */
ucs_status_t np_ep_nothing(np_flight_t *flight);

/**
 * Move bytes between local memory, which stays the program's own until the
 * completion, and the memory of the link's target.
 *
 * @param [in] iov   At most NP_MAX_IOV buffers; a list that one call uses.
 * @param [in] addr  Address at the target.
 * @param [in] comp  Completed if UCS_INPROGRESS is returned; may be NULL.
 *
 * @return UCS_OK: done, both sides; UCS_INPROGRESS; UCS_ERR_NO_RESOURCE: try
 *         again; UCS_ERR_INVALID_ADDR: the key does not cover it, or it is not
 *         there; UCS_ERR_NO_MEMORY; or why the link is down.
 */
ucs_status_t np_ep_move(np_dir_t dir, np_flight_t *flight, np_key_t *key,
                        const np_iov_t *iov, size_t iovcnt, uint64_t addr,
                        void *comp);

/** Put of @a len bytes; @a data may change as soon as this returns. It is
 *  complete with the next flush. Returns as np_ep_move, but never
 *  UCS_INPROGRESS. */
ucs_status_t np_ep_put_copied(np_flight_t *flight, np_key_t *key,
                              const void *data, size_t len, uint64_t addr);

/** The same, of what @a pack writes; returns the length, or an error. With
 *  UCS_ERR_NO_RESOURCE nothing was packed. */
ssize_t np_ep_put_packed(np_flight_t *flight, np_key_t *key, np_pack_t pack,
                         void *arg, uint64_t addr);

/** As np_ep_move with a get, but @a unpack takes the bytes */
ucs_status_t np_ep_get_unpack(np_flight_t *flight, np_key_t *key, size_t len,
                              uint64_t addr, np_unpack_t unpack, void *arg,
                              void *comp);

/**
 * Execute an atomic at the target.
 *
 * @param [in,out] request  Its address: as in np_flight_start_key.
 * @param [out] result  The value before; NULL: not wanted.
 * @param [in]  comp    Completed if UCS_INPROGRESS is returned; may be NULL.
 *
 * @return as np_ep_move; without @a result and @a comp, UCS_OK also if it is
 *         only on its way.
 */
ucs_status_t np_ep_atomic(np_flight_t *flight, np_key_t *key,
                          np_atomic_t *request, void *result, void *comp);

/** As np_flight_flush, np_flight_fence, np_flight_has_resources */
ucs_status_t np_ep_flush(np_flight_t *flight, void *comp);
void np_ep_fence(np_flight_t *flight);
int np_ep_has_resources(np_flight_t *flight);

/** And of all links of a port */
ucs_status_t np_eps_flush(np_flights_t *all, void *comp);
void np_eps_fence(np_flights_t *all);

/** Earlier operations wait, so new ones are refused; or none wait any more. */
void np_ep_set_pending(np_flight_t *flight, int is_pending);

/** Complete all that is outstanding with @a status. The link cannot be used any
 *  more, and its user is not told that it is down. */
void np_ep_cancel(np_flight_t *flight, ucs_status_t status);

/** Find out whether the peer is there: its death is reported by link_down */
ucs_status_t np_ep_check(np_flight_t *flight);

#endif
