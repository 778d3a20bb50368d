/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Ranges of a transfer.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "ranges.h"

#include "np.h"


void np_ranges_add(np_ranges_t *ranges, size_t offset, size_t len)
{
    unsigned last = ranges->count - 1;
    size_t end;

    np_assert((len > 0) && (ranges->count <= NP_RANGES_MAX));
    if ((ranges->count > 0) &&
        ((ranges->range[last].offset + ranges->range[last].len == offset) ||
         (ranges->count == NP_RANGES_MAX))) {
        end = ucs_max(offset + len,
                      ranges->range[last].offset + ranges->range[last].len);
        ranges->range[last].offset = ucs_min(offset,
                                             ranges->range[last].offset);
        ranges->range[last].len    = end - ranges->range[last].offset;
        return;
    }

    ranges->range[ranges->count].offset = offset;
    ranges->range[ranges->count++].len  = len;
}
