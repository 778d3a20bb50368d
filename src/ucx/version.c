/* SPDX-License-Identifier: BSD-3-Clause */
/* Which UCX runs, and for which of them there is a plug-in */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "version.h"

#include <dirent.h>
#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define UCX_VERSION_LIBUCP   "libucp.so.0"
#define UCX_VERSION_FUNCTION "ucp_get_version"

typedef void (*ucx_version_func_t)(unsigned *major, unsigned *minor,
                                   unsigned *release);


/* For programs that hide their libucp, or have none. Another UCX may be where
 * the linker looks first: what is in use counts, then what lies beside the
 * libuct that is in use. */
static void *ucx_version_open_libucp(const void *in_libuct)
{
    char path[PATH_MAX];
    void *libucp;
    Dl_info info;
    char *slash;

    libucp = dlopen(UCX_VERSION_LIBUCP, RTLD_LAZY | RTLD_NOLOAD);
    if ((libucp == NULL) && (dladdr(in_libuct, &info) != 0) &&
        (info.dli_fname != NULL) &&
        ((slash = strrchr(info.dli_fname, '/')) != NULL)) {
        snprintf(path, sizeof(path), "%.*s/" UCX_VERSION_LIBUCP,
                 (int)(slash - info.dli_fname), info.dli_fname);
        libucp = dlopen(path, RTLD_LAZY | RTLD_LOCAL);
    }
    return (libucp != NULL) ? libucp :
           dlopen(UCX_VERSION_LIBUCP, RTLD_LAZY | RTLD_LOCAL);
}

int ucx_version_running(const void *in_libuct, ucx_version_t *version)
{
    void *libucp = NULL;
    ucx_version_func_t get_version;

    get_version = (ucx_version_func_t)dlsym(RTLD_DEFAULT,
                                            UCX_VERSION_FUNCTION);
    if (get_version == NULL) {
        libucp = ucx_version_open_libucp(in_libuct);
        if (libucp != NULL) {
            get_version = (ucx_version_func_t)dlsym(libucp,
                                                    UCX_VERSION_FUNCTION);
        }
    }

    if (get_version != NULL) {
        get_version(&version->major, &version->minor, &version->release);
    }
    if (libucp != NULL) {
        dlclose(libucp);
    }
    return (get_version != NULL) ? 0 : -1;
}

/* scandir() has no argument for its caller, so the file is looked for later */
static int ucx_version_is_name(const struct dirent *entry)
{
    unsigned major, minor;
    char more;

    return sscanf(entry->d_name, UCX_VERSION_DIR "%c", &major, &minor,
                  &more) == 2;
}

void ucx_version_installed(const char *dir, char *text, size_t size)
{
    struct dirent **entries = NULL;
    size_t len              = 0;
    int i, count = scandir(dir, &entries, ucx_version_is_name, versionsort);
    unsigned major, minor;
    char path[PATH_MAX];

    snprintf(text, size, "none");
    for (i = 0; i < count; ++i) {
        sscanf(entries[i]->d_name, UCX_VERSION_DIR, &major, &minor);
        snprintf(path, sizeof(path), "%s/" UCX_VERSION_PLUGIN, dir, major,
                 minor);
        if ((access(path, R_OK) == 0) && (len < size)) {
            len += snprintf(text + len, size - len, "%s%u.%u",
                            (len > 0) ? ", " : "", major, minor);
        }
        free(entries[i]);
    }
    free(entries);
}
