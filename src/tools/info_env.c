/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the environment says: whether nprdma would work with it.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define INFO_ENV_PREFIX  "UCX_NPRDMA_"

/* Largest number of variables that are tried one by one */
#define INFO_ENV_MAX     64

/* Begins our line among those of UCX */
#define INFO_ENV_REFUSED "\nrefused: "

/* The words before what is wrong, and before what would be right */
#define INFO_ENV_ERROR   "ERROR nprdma: "
#define INFO_ENV_WANTED  "Expected: "

/* Exit codes of the child */
#define INFO_ENV_TAKEN   0
#define INFO_ENV_ONE     1 /* refuses one setting */
#define INFO_ENV_ALL     2 /* opens nothing with all of them */

/* The part that reads settings: the memory domain, or interfaces once there is
 * a domain */
typedef struct info_env_ucx {
    uct_component_h                       component;
    uct_md_h                              md;        /**< NULL: not yet */
    __typeof__(&uct_md_config_read)       read_md;
    __typeof__(&uct_md_open)              open_md;
    __typeof__(&uct_md_iface_config_read) read_iface;
} info_env_ucx_t;

/* Settings "NAME=VALUE" */
typedef struct info_env {
    char     *settings[INFO_ENV_MAX];
    unsigned count;
} info_env_t;


static void info_env_find(info_env_t *env)
{
    char **setting;

    env->count = 0;
    for (setting = environ; *setting != NULL; ++setting) {
        if ((strncmp(*setting, INFO_ENV_PREFIX,
                     strlen(INFO_ENV_PREFIX)) == 0) &&
            (env->count < INFO_ENV_MAX)) {
            env->settings[env->count++] = strdup(*setting);
        }
    }
}

static void info_env_unset(const char *setting)
{
    char name[INFO_LINE];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(setting, "="), setting);
    unsetenv(name);
}

static int info_env_load(info_env_ucx_t *ucx)
{
    void *handle = info_load_component(&ucx->component);
    void *read_md, *read_iface;

    if (handle == NULL) {
        return -1;
    }

    read_md         = dlsym(handle, "uct_md_config_read");
    read_iface      = dlsym(handle, "uct_md_iface_config_read");
    ucx->md         = NULL;
    ucx->read_md    = (__typeof__(ucx->read_md))read_md;
    ucx->open_md    = (__typeof__(ucx->open_md))dlsym(handle, "uct_md_open");
    ucx->read_iface = (__typeof__(ucx->read_iface))read_iface;
    return ((ucx->read_md == NULL) || (ucx->open_md == NULL) ||
            (ucx->read_iface == NULL)) ? -1 : 0;
}

/* Try each setting without the others, to find which is refused */
static int info_env_try_each(const info_env_ucx_t *ucx, const info_env_t *env)
{
    uct_iface_config_t *iface_config;
    uct_md_config_t *md_config;
    ucs_status_t status;
    unsigned i;

    for (i = 0; i < env->count; ++i) {
        info_env_unset(env->settings[i]);
    }

    for (i = 0; i < env->count; ++i) {
        putenv(env->settings[i]);
        status = (ucx->md == NULL) ?
                 ucx->read_md(ucx->component, NULL, NULL, &md_config) :
                 ucx->read_iface(ucx->md, "nprdma", NULL, NULL, &iface_config);
        if (status != UCS_OK) {
            printf(INFO_ENV_REFUSED "%s\n", env->settings[i]);
            return INFO_ENV_ONE;
        }
        info_env_unset(env->settings[i]);
    }

    for (i = 0; i < env->count; ++i) {
        putenv(env->settings[i]);
    }
    return INFO_ENV_TAKEN;
}

static int info_child_env(void)
{
    uct_md_config_t *config;
    info_env_ucx_t ucx;
    info_env_t env;

    info_env_find(&env);
    if (info_env_load(&ucx) != 0) {
        return INFO_ENV_TAKEN; /* the plug-in is tried by itself */
    }

    if (info_env_try_each(&ucx, &env) != INFO_ENV_TAKEN) {
        return INFO_ENV_ONE;
    }

    if ((ucx.read_md(ucx.component, NULL, NULL, &config) != UCS_OK) ||
        (ucx.open_md(ucx.component, "nprdma", config, &ucx.md) != UCS_OK)) {
        return INFO_ENV_ALL;
    }
    return info_env_try_each(&ucx, &env);
}

/* The rest of the line after a mark, or NULL */
static char *info_env_after(char *text, const char *mark)
{
    char *at = strstr(text, mark);

    if (at == NULL) {
        return NULL;
    }

    at += strlen(mark);
    at[strcspn(at, "\n")] = '\0';
    return at;
}

/* Does UCX choose nprdma by a list such as "nprdma,tcp" or "^tcp"? */
static int info_env_has_nprdma(const char *list)
{
    int is_negated = (list[0] == '^'), is_named = 0;
    const char *name;
    size_t len;

    for (name = list + is_negated; *name != '\0';
         name += len + (name[len] == ',')) {
        len = strcspn(name, ",");
        if (((len == 6) && (strncmp(name, "nprdma", len) == 0)) ||
            ((len == 7) && (strncmp(name, "\\nprdma", len) == 0)) ||
            (!is_negated && (len == 3) && (strncmp(name, "all", len) == 0))) {
            is_named = 1;
        }
    }
    return is_named != is_negated;
}

static info_result_t info_env_transports(char *text, size_t size)
{
    const char *tls = getenv("UCX_TLS");

    if ((tls != NULL) && !info_env_has_nprdma(tls)) {
        snprintf(text, size, "UCX_TLS=%s leaves nprdma out: programs do not "
                 "use it. Unset UCX_TLS, or let it name nprdma", tls);
        return INFO_WARNING;
    }
    snprintf(text, size, "nothing that UCX refuses");
    return INFO_OK;
}

info_result_t info_check_env(char *text, size_t size)
{
    const char *intra_node = getenv(INFO_ENV_PREFIX "INTRA_NODE");
    char said[8 * INFO_LINE], copy[8 * INFO_LINE], names[INFO_LINE];
    const char *what, *wanted;
    int ret;

    ret = info_in_child(info_child_env, said, sizeof(said));
    memcpy(copy, said, sizeof(copy));
    wanted = info_env_after(copy, INFO_ENV_WANTED);
    if (ret == INFO_ENV_ONE) {
        what = info_env_after(said, INFO_ENV_REFUSED);
        snprintf(text, size, "UCX refuses %s. %s%s",
                 (what != NULL) ? what : "a value of " INFO_ENV_PREFIX "*",
                 (wanted != NULL) ? "Wanted: " : "Unset it, or see nprdma(7)",
                 (wanted != NULL) ? wanted : "");
        return INFO_MISSING;
    }

    if (ret == INFO_ENV_ALL) {
        what = info_env_after(said, INFO_ENV_ERROR);
        snprintf(text, size, "%s", (what != NULL) ? what :
                 "nprdma does not open with these values of " INFO_ENV_PREFIX
                 "*. Unset them");
        return INFO_MISSING;
    }

    info_verbs_names(names, sizeof(names));
    if ((intra_node != NULL) && (strcmp(intra_node, "verbs") == 0) &&
        (names[0] == '\0')) {
        snprintf(text, size, INFO_ENV_PREFIX "INTRA_NODE=verbs, and no RDMA "
                 "device works here: no peer can be reached. Unset it");
        return INFO_MISSING;
    }
    return info_env_transports(text, size);
}
