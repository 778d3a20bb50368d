/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Lists of what has something to do, each in turn.
 */

#ifndef NP_WORK_H_
#define NP_WORK_H_

#include "np.h"

/** Run each that is in the list now. It is at the end of the list meanwhile,
 *  and takes itself out if it has nothing more to do; what it does may add
 *  others, and take any out.
 *
 *  @return the sum of what they return. */
static UCS_F_ALWAYS_INLINE unsigned
np_work(ucs_list_link_t *list, unsigned (*run)(ucs_list_link_t *element))
{
    unsigned long turns = ucs_list_length(list);
    unsigned count      = 0;
    ucs_list_link_t *element;

    for (; (turns > 0) && !ucs_list_is_empty(list); --turns) {
        element = list->next;
        ucs_list_del(element);
        ucs_list_add_tail(list, element);
        count += run(element);
    }
    return count;
}

#endif
