/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The preload stub: brings the nprdma plug-in into a stock UCX program.
 *
 * UCX before 1.22 loads no transport that it was not built with. This library
 * is preloaded instead. It depends on nothing of UCX, so it is harmless in
 * programs without UCX. It acts when UCX first looks for its components, and
 * takes the plug-in that was made for the UCX that runs.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hooks.h"

#include "../ucx/version.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PRELOAD_LIBUCT      "libuct.so.0"
#define PRELOAD_FUNCTION    "uct_query_components"
#define PRELOAD_EXPORT      __attribute__((visibility("default")))

/* As UCX has them: ucs_status_t is a packed enumeration, one signed byte */
typedef signed char preload_status_t;
typedef preload_status_t (*preload_query_func_t)(void **components_p,
                                                 unsigned *num_components_p);

enum {
    PRELOAD_ERR_UNSUPPORTED = -22
};

static struct {
    pthread_once_t       once;
    void *_Atomic        caller; /* where from; any caller's will do */
    preload_query_func_t query;
} preload = {
    .once = PTHREAD_ONCE_INIT
};

PRELOAD_EXPORT preload_status_t uct_query_components(void **components_p,
                                                     unsigned *num_components_p);

/* The directory of this library, even if it was moved: plug-ins are below it.
 * Returns 0, or -1 if there is no telling. */
static int preload_self_dir(char dir[PATH_MAX])
{
    Dl_info info;

    if ((dladdr((void*)preload_self_dir, &info) == 0) ||
        (info.dli_fname == NULL) || (realpath(info.dli_fname, dir) == NULL)) {
        return -1;
    }

    *strrchr(dir, '/') = '\0';
    return 0;
}

/* Returns 0, or -1 after a line that says why there is none */
static int preload_plugin_path(char path[PATH_MAX])
{
    const char *env = secure_getenv("NPRDMA_PLUGIN");
    ucx_version_t ucx;
    char dir[PATH_MAX], installed[256];

    if ((env != NULL) && (env[0] != '\0')) {
        snprintf(path, PATH_MAX, "%s", env);
        return 0;
    }

    if ((preload_self_dir(dir) != 0) ||
        (ucx_version_running((void*)preload.query, &ucx) != 0)) {
        fprintf(stderr, "nprdma: cannot tell which UCX this is and where its "
                "plug-in is, UCX goes on without it: set NPRDMA_PLUGIN to the "
                "path of libuct_nprdma.so.0\n");
        return -1;
    }

    if (snprintf(path, PATH_MAX, "%s/" UCX_VERSION_PLUGIN, dir, ucx.major,
                 ucx.minor) >= PATH_MAX) {
        path[0] = '\0';
    }
    if (access(path, R_OK) == 0) {
        return 0;
    }

    ucx_version_installed(dir, installed, sizeof(installed));
    fprintf(stderr, "nprdma: UCX %u.%u.%u is running and goes on without the "
            "plug-in, which is installed in %s for: %s. Install the nprdma "
            "package for UCX %u.%u, or configure with --with-ucx of that UCX "
            "and the same --prefix\n",
            ucx.major, ucx.minor, ucx.release, dir, installed, ucx.major,
            ucx.minor);
    return -1;
}

/* A plug-in finds libuct by its name, which a UCX that comes with a program may
 * have changed: a second one would be loaded beside it. Is it that one? */
static int preload_is_libuct(void)
{
    void *libuct = dlopen(PRELOAD_LIBUCT, RTLD_LAZY | RTLD_NOLOAD);
    int is_it    = (libuct != NULL) &&
                   (dlsym(libuct, PRELOAD_FUNCTION) == (void*)preload.query);

    if (libuct != NULL) {
        dlclose(libuct);
    }
    return is_it;
}

/* Two launchers, one in the other, have preloaded two stubs: the last one that
 * UCX is called through loads a plug-in */
static int preload_is_stub(const void *function)
{
    const char *slash;
    Dl_info info;

    if ((dladdr(function, &info) == 0) || (info.dli_fname == NULL)) {
        return 0;
    }

    slash = strrchr(info.dli_fname, '/');
    return strcmp((slash != NULL) ? slash + 1 : info.dli_fname,
                  "libnprdma_preload.so") == 0;
}

static void preload_plugin_load(void)
{
    char path[PATH_MAX];
    void *plugin;

    if (preload_is_stub((void*)preload.query)) {
        return;
    }

    if (!preload_is_libuct()) {
        fprintf(stderr, "nprdma: UCX goes on without it: it calls its library "
                "otherwise than " PRELOAD_LIBUCT ", as one that comes with a "
                "program may. nprdma needs a UCX as distributions have it\n");
        return;
    }

    if (preload_plugin_path(path) != 0) {
        return;
    }

    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if ((plugin == NULL) || (hooks_attach(plugin) != 0)) {
        fprintf(stderr, "nprdma: cannot load the UCX plug-in, UCX goes on "
                "without it (%s%s): %s\n",
                (plugin != NULL) ? path : dlerror(),
                (plugin != NULL) ? " is none of nprdma's" : "",
                (getenv("NPRDMA_PLUGIN") != NULL) ?
                "unset NPRDMA_PLUGIN, or let it name a plug-in" :
                "install nprdma again, built for the UCX that runs");
    }
}

/* In the libraries that somebody uses who has called us */
static preload_query_func_t preload_query_of(const void *caller)
{
    void *query = NULL, *handle;
    Dl_info info;

    if ((dladdr(caller, &info) != 0) && (info.dli_fname != NULL)) {
        handle = dlopen(info.dli_fname, RTLD_LAZY | RTLD_NOLOAD);
        query  = (handle != NULL) ? dlsym(handle, PRELOAD_FUNCTION) : NULL;
    }
    return (query == (void*)uct_query_components) ? NULL :
           (preload_query_func_t)query;
}

static void preload_init(void)
{
    void *libuct;

    preload.query = (preload_query_func_t)dlsym(RTLD_NEXT, PRELOAD_FUNCTION);
    if (preload.query == NULL) {
        /* A program that loads libucp RTLD_LOCAL keeps libuct to itself */
        libuct = dlopen(PRELOAD_LIBUCT, RTLD_LAZY | RTLD_NOLOAD);
        if (libuct != NULL) {
            preload.query = (preload_query_func_t)dlsym(libuct,
                                                        PRELOAD_FUNCTION);
        }
    }

    if (preload.query == NULL) {
        preload.query = preload_query_of(preload.caller);
    }

    if (preload.query == NULL) {
        fprintf(stderr, "nprdma: " PRELOAD_FUNCTION " was called, but no "
                PRELOAD_LIBUCT " is loaded: is UCX linked statically? nprdma "
                "needs the shared libraries\n");
        return;
    }

    preload_plugin_load();
}

preload_status_t uct_query_components(void **components_p,
                                      unsigned *num_components_p)
{
    preload.caller = __builtin_return_address(0);
    pthread_once(&preload.once, preload_init);
    if (preload.query == NULL) {
        return PRELOAD_ERR_UNSUPPORTED;
    }

    return preload.query(components_p, num_components_p);
}
