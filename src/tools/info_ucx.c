/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * UCX, the plug-in and the preload stub: each is loaded in a child.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include "../ucx/version.h"

#include <ucs/sys/math.h>
#include <uct/api/uct.h>
#include <ucp/api/ucp.h>

#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define INFO_UCX_LIBRARY "libucp.so.0"
#define INFO_STUB        "libnprdma_preload.so"


void info_lib_path(const char *name, char *path, size_t size)
{
    char self[PATH_MAX], joined[2 * PATH_MAX], clean[PATH_MAX];
    ssize_t len = readlink("/proc/self/exe", self, sizeof(self) - 1);

    while ((len > 0) && (self[len - 1] != '/')) {
        --len;
    }
    self[ucs_max(len, 0)] = '\0';
    snprintf(joined, sizeof(joined), "%s%s", self, NPRDMA_PKGLIB_FROM_BIN);
    snprintf(path, size, "%s/%s",
             (realpath(joined, clean) == NULL) ? joined : clean, name);
}

static int info_plugin_is_given(void)
{
    const char *env = getenv("NPRDMA_PLUGIN");

    return (env != NULL) && (env[0] != '\0');
}

void info_plugins(char *text, size_t size)
{
    char dir[PATH_MAX];

    info_lib_path("", dir, sizeof(dir));
    ucx_version_installed(dir, text, size);
}

/* As the preload stub does. Returns 0, or -1 if no UCX is here. */
static int info_plugin_path(char *path, size_t size)
{
    char text[INFO_LINE / 2], name[64];
    unsigned major, minor;

    if (info_plugin_is_given()) {
        snprintf(path, size, "%s", getenv("NPRDMA_PLUGIN"));
        return 0;
    }

    if ((info_ucx_version(text, sizeof(text)) != 0) ||
        (sscanf(text, "%u.%u", &major, &minor) != 2)) {
        return -1;
    }

    snprintf(name, sizeof(name), UCX_VERSION_PLUGIN, major, minor);
    info_lib_path(name, path, size);
    return 0;
}

void info_show_paths(void)
{
    char path[PATH_MAX];

    printf("plug-in         %s\n",
           (info_plugin_path(path, sizeof(path)) == 0) ? path : "no UCX");
    info_lib_path(INFO_STUB, path, sizeof(path));
    printf("preload stub    %s\n", path);
}

int info_in_child(int (*func)(void), char *text, size_t size)
{
    size_t len = 0;
    int fds[2], status;
    char rest[512];
    ssize_t ret;
    pid_t pid;

    text[0] = '\0';
    if (pipe(fds) != 0) {
        snprintf(text, size, "no pipe: %s", strerror(errno));
        return -1;
    }

    fflush(stdout);
    pid = fork();
    if (pid == 0) {
        alarm(INFO_CHILD_LIMIT);
        unsetenv("UCX_LOG_LEVEL"); /* what UCX says is read here */
        unsetenv("UCX_LOG_FILE");
        dup2(fds[1], STDOUT_FILENO);
        dup2(fds[1], STDERR_FILENO);
        status = func();
        fflush(stdout);
        _exit(status);
    }

    close(fds[1]);
    while ((pid > 0) && (len < (size - 1)) &&
           ((ret = read(fds[0], text + len, size - 1 - len)) > 0)) {
        len += ret;
    }
    while ((pid > 0) && (read(fds[0], rest, sizeof(rest)) > 0)) {
        /* a child that prints more must not be killed by the pipe's end */
    }
    text[len] = '\0';
    close(fds[0]);
    if ((pid < 0) || (waitpid(pid, &status, 0) != pid)) {
        snprintf(text, size, "no child process: %s", strerror(errno));
        return -1;
    }

    if (WIFSIGNALED(status)) {
        snprintf(text, size, "it died by signal %d", WTERMSIG(status));
        return -1;
    }
    return WEXITSTATUS(status);
}

/* Keep the last line of a text, or the one that begins with @a mark */
static void info_keep_line(char *text, const char *mark)
{
    char *line = text, *next, *keep = text;

    for (; line != NULL; line = next) {
        next = strchr(line, '\n');
        if (next != NULL) {
            *next++ = '\0';
        }
        if ((mark != NULL) && (strncmp(line, mark, strlen(mark)) == 0)) {
            keep = line + strlen(mark);
            break;
        }
        if (line[0] != '\0') {
            keep = line;
        }
    }
    memmove(text, keep, strlen(keep) + 1);
}

static int info_child_ucx(void)
{
    __typeof__(&ucp_get_version_string) get_version;
    void *handle = dlopen(INFO_UCX_LIBRARY, RTLD_NOW | RTLD_LOCAL);

    if (handle == NULL) {
        puts(dlerror());
        return 1;
    }

    get_version = (__typeof__(get_version))dlsym(handle,
                                                 "ucp_get_version_string");
    if (get_version == NULL) {
        puts(dlerror());
        return 1;
    }
    puts(get_version());
    return 0;
}

int info_ucx_version(char *text, size_t size)
{
    int ret = info_in_child(info_child_ucx, text, size);

    info_keep_line(text, NULL);
    return (ret == 0) ? 0 : -1;
}

info_result_t info_check_ucx(char *text, size_t size)
{
    char found[INFO_LINE / 2], plugins[INFO_LINE / 4], path[PATH_MAX];

    info_plugins(plugins, sizeof(plugins));
    if (info_ucx_version(found, sizeof(found)) != 0) {
        snprintf(text, size, "%s. Install UCX (Debian: apt-get install "
                 "libucx0); there are plug-ins for: %s", found, plugins);
        return INFO_MISSING;
    }

    if (!info_plugin_is_given() &&
        ((info_plugin_path(path, sizeof(path)) != 0) ||
         (access(path, F_OK) != 0))) {
        snprintf(text, size, "this is %s, nprdma is installed for: %s. Install "
                 "the nprdma package for the UCX that is here, or configure "
                 "with --with-ucx of it and the same --prefix", found, plugins);
        return INFO_MISSING;
    }
    snprintf(text, size, "version %s", found);
    return INFO_OK;
}

void *info_load_component(uct_component_h *component_p)
{
    uct_component_attr_t attr = {.field_mask = UCT_COMPONENT_ATTR_FIELD_NAME};
    __typeof__(&uct_query_components) query;
    __typeof__(&uct_component_query) query_one;
    uct_component_h *components;
    char path[PATH_MAX];
    unsigned i, count;
    void *handle;

    if (info_plugin_path(path, sizeof(path)) != 0) {
        puts("no UCX is here");
        return NULL;
    }

    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (handle == NULL) {
        puts(dlerror());
        return NULL;
    }

    query     = (__typeof__(query))dlsym(handle, "uct_query_components");
    query_one = (__typeof__(query_one))dlsym(handle, "uct_component_query");
    if ((query == NULL) || (query_one == NULL) ||
        (query(&components, &count) != UCS_OK)) {
        puts("it is no plug-in of UCX");
        return NULL;
    }

    for (i = 0; i < count; ++i) {
        if ((query_one(components[i], &attr) == UCS_OK) &&
            (strcmp(attr.name, "nprdma") == 0)) {
            *component_p = components[i];
            return handle;
        }
    }
    return NULL;
}

/* UCX itself must know the component after the plug-in is loaded */
static int info_child_plugin(void)
{
    uct_component_h component;

    return info_load_component(&component) == NULL;
}

/* What to do about a plug-in that is not ours; for ours: @a install */
static const char *info_plugin_cure(const char *install)
{
    return info_plugin_is_given() ?
           "Unset NPRDMA_PLUGIN, or let it name a plug-in" : install;
}

info_result_t info_check_plugin(char *text, size_t size)
{
    char path[PATH_MAX], found[INFO_LINE / 2];

    if ((info_ucx_version(found, sizeof(found)) != 0) ||
        (info_plugin_path(path, sizeof(path)) != 0)) {
        snprintf(text, size, "it cannot be tried without UCX. Install UCX");
        return INFO_MISSING;
    }

    if (access(path, R_OK) != 0) {
        snprintf(text, size, "%s: %s. %s", path, strerror(errno),
                 info_plugin_cure("Install nprdma for the UCX that is here"));
        return INFO_MISSING;
    }

    if (info_in_child(info_child_plugin, found, sizeof(found)) != 0) {
        info_keep_line(found, "nprdma: ");
        snprintf(text, size, "%s. %s", found, info_plugin_cure(
                 "Install nprdma again, built for the UCX that is here"));
        return INFO_MISSING;
    }
    snprintf(text, size, "%s", path);
    return INFO_OK;
}

static int info_child_stub(void)
{
    char path[PATH_MAX];
    void *handle;

    info_lib_path(INFO_STUB, path, sizeof(path));
    handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if ((handle == NULL) || (dlsym(handle, "uct_query_components") == NULL)) {
        puts(dlerror());
        return 1;
    }
    puts(path);
    return 0;
}

info_result_t info_check_stub(char *text, size_t size)
{
    char found[INFO_LINE / 2];
    int ret = info_in_child(info_child_stub, found, sizeof(found));

    info_keep_line(found, NULL);
    if (ret != 0) {
        snprintf(text, size, "%s. Install nprdma again (make install)", found);
        return INFO_MISSING;
    }

    /* as nprdma-run says */
    if (strpbrk(found, ": ;") != NULL) {
        snprintf(text, size, "LD_PRELOAD cannot hold '%s'. Install nprdma "
                 "where the path has no blank, colon or semicolon", found);
        return INFO_MISSING;
    }
    snprintf(text, size, "%s", found);
    return INFO_OK;
}
