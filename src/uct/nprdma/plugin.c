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

#include <dlfcn.h>
#include <stdio.h>

typedef void (*uct_nprdma_version_func_t)(unsigned*, unsigned*, unsigned*);


/* libuct does not tell its version; libucp, of the same package, does */
static int uct_nprdma_running_version(unsigned *major, unsigned *minor,
                                      unsigned *release)
{
    uct_nprdma_version_func_t get_version;
    void *handle = NULL;

    get_version = (uct_nprdma_version_func_t)dlsym(RTLD_DEFAULT,
                                                   "ucp_get_version");
    if (get_version == NULL) {
        handle = dlopen("libucp.so.0", RTLD_LAZY | RTLD_LOCAL);
        if (handle == NULL) {
            return 0;
        }
        get_version = (uct_nprdma_version_func_t)dlsym(handle,
                                                       "ucp_get_version");
    }

    if (get_version != NULL) {
        get_version(major, minor, release);
    }

    if (handle != NULL) {
        dlclose(handle);
    }
    return get_version != NULL;
}

/* Layouts: exported classes carry their size */
static int uct_nprdma_is_compatible(void)
{
    unsigned major, minor, release;

    if (uct_nprdma_running_version(&major, &minor, &release) &&
        ((major != UCT_VERNO_MAJOR) || (minor != UCT_VERNO_MINOR))) {
        fprintf(stderr, "nprdma: this plug-in was built for UCX %s, but UCX "
                "%u.%u.%u is running; it stays off. Install the nprdma "
                "package for UCX %u.%u, or configure with --with-ucx of that "
                "UCX\n", UCT_VERNO_STRING, major, minor, release, major,
                minor);
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
