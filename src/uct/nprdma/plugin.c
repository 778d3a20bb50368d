/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What happens when the plug-in is loaded: it compares itself with the UCX
 * that runs, and registers, or refuses in one line.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "nprdma.h"

#include "../../ucx/version.h"

#include <stdio.h>


/* Layouts: exported classes carry their size */
static int uct_nprdma_is_compatible(void)
{
    ucx_version_t ucx;

    if ((ucx_version_running((void*)uct_component_register, &ucx) == 0) &&
        ((ucx.major != UCT_VERNO_MAJOR) || (ucx.minor != UCT_VERNO_MINOR))) {
        fprintf(stderr, "nprdma: this plug-in was built for UCX %s, but UCX "
                "%u.%u.%u is running; it stays off. Install the nprdma "
                "package for UCX %u.%u, or configure with --with-ucx of that "
                "UCX\n", UCT_VERNO_STRING, ucx.major, ucx.minor, ucx.release,
                ucx.major, ucx.minor);
        return 0;
    }

    if ((uct_base_iface_t_class.size != sizeof(uct_base_iface_t)) ||
        (uct_base_ep_t_class.size != sizeof(uct_base_ep_t))) {
        fprintf(stderr, "nprdma: this plug-in was built for a UCX %s "
                "configured otherwise (interface %zu bytes, here %zu); it "
                "stays off. Rebuild it with --with-ucx of the UCX that runs\n",
                UCT_VERNO_STRING, sizeof(uct_base_iface_t),
                uct_base_iface_t_class.size);
        return 0;
    }

    return 1;
}

static void __attribute__((constructor)) uct_nprdma_load(void)
{
    if (uct_nprdma_is_compatible()) {
        uct_component_register(&uct_nprdma_component);
        uct_tl_register(&uct_nprdma_component, &uct_nprdma_tl);
    }
}
