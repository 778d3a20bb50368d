/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The preload stub: brings the nprdma plug-in into a stock UCX program.
 *
 * UCX before 1.22 loads no transport that it was not built with. This library
 * is preloaded instead. It depends on nothing of UCX, so it is harmless in
 * programs without UCX. It acts when UCX first looks for its components.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "hooks.h"

#include <dlfcn.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PRELOAD_PLUGIN_NAME "ucx/libuct_nprdma.so.0"
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
    preload_query_func_t query;
} preload = {
    .once = PTHREAD_ONCE_INIT
};

PRELOAD_EXPORT preload_status_t uct_query_components(void **components_p,
                                                     unsigned *num_components_p);

/* The plug-in lies beside this library, even if both were moved */
static int preload_plugin_path(char *path, size_t size)
{
    const char *env = secure_getenv("NPRDMA_PLUGIN");
    char self[PATH_MAX];
    char *slash;
    Dl_info info;
    int len;

    if ((env != NULL) && (env[0] != '\0')) {
        len = snprintf(path, size, "%s", env);
        return (len < 0) || ((size_t)len >= size);
    }

    if ((dladdr((void*)preload_plugin_path, &info) == 0) ||
        (info.dli_fname == NULL) || (realpath(info.dli_fname, self) == NULL)) {
        return -1;
    }

    slash = strrchr(self, '/');
    if (slash == NULL) {
        return -1;
    }

    *slash = '\0';
    len    = snprintf(path, size, "%s/%s", self, PRELOAD_PLUGIN_NAME);
    return (len < 0) || ((size_t)len >= size);
}

static void preload_plugin_load(void)
{
    char path[PATH_MAX];
    void *plugin;

    if (preload_plugin_path(path, sizeof(path)) != 0) {
        fprintf(stderr, "nprdma: cannot tell where the UCX plug-in is, UCX "
                "goes on without it: set NPRDMA_PLUGIN to the path of "
                "libuct_nprdma.so.0\n");
        return;
    }

    plugin = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (plugin == NULL) {
        fprintf(stderr, "nprdma: cannot load the UCX plug-in, UCX goes on "
                "without it (%s): install nprdma again, built for the UCX "
                "that runs, or set NPRDMA_PLUGIN to the path of "
                "libuct_nprdma.so.0\n", dlerror());
        return;
    }

    hooks_attach(plugin);
}

static void preload_init(void)
{
    void *libuct;

    preload.query = (preload_query_func_t)dlsym(RTLD_NEXT, PRELOAD_FUNCTION);
    if (preload.query == NULL) {
        /* A program that loads libucp RTLD_LOCAL keeps libuct to itself */
        libuct = dlopen("libuct.so.0", RTLD_LAZY | RTLD_NOLOAD);
        if (libuct != NULL) {
            preload.query = (preload_query_func_t)dlsym(libuct,
                                                        PRELOAD_FUNCTION);
        }
    }

    if (preload.query == NULL) {
        fprintf(stderr, "nprdma: " PRELOAD_FUNCTION " was called, but no "
                "libuct.so.0 is loaded: is UCX linked statically? nprdma "
                "needs the shared libraries\n");
        return;
    }

    preload_plugin_load();
}

preload_status_t uct_query_components(void **components_p,
                                      unsigned *num_components_p)
{
    pthread_once(&preload.once, preload_init);
    if (preload.query == NULL) {
        return PRELOAD_ERR_UNSUPPORTED;
    }

    return preload.query(components_p, num_components_p);
}
