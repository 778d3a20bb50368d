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
#define INFO_ENV_UNKNOWN "\nunknown: "

/* The words before what is wrong, and before what would be right */
#define INFO_ENV_ERROR   "ERROR nprdma: "
#define INFO_ENV_WANTED  "Expected: "

/* Exit codes of the child */
#define INFO_ENV_TAKEN   0
#define INFO_ENV_ONE     1 /* refuses one setting */
#define INFO_ENV_ALL     2 /* opens nothing with all of them */
#define INFO_ENV_NAME    3 /* takes all, and one has a name that is none */

/* What is called in UCX: X(name) */
#define INFO_ENV_CALLS(_X) \
  _X(uct_md_config_read) \
  _X(uct_md_open) \
  _X(uct_md_iface_config_read) \
  _X(uct_md_query_tl_resources) \
  _X(uct_config_get) \
  _X(ucs_async_context_create) \
  _X(uct_worker_create) \
  _X(uct_iface_open)

#define INFO_ENV_MEMBER(_name) __typeof__(&_name) _name;

/* The part that reads settings: the memory domain, or interfaces once there is
 * a domain. Nothing is released: the process ends. */
typedef struct info_env_ucx {
    uct_component_h    component;
    uct_md_config_t    *md_config;
    uct_md_h           md;             /**< NULL: not yet */
    uct_iface_config_t *iface_config;
    INFO_ENV_CALLS(INFO_ENV_MEMBER)
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

    if (handle == NULL) {
        return -1;
    }

#define INFO_ENV_FIND(_name) \
  ucx->_name = (__typeof__(&_name))dlsym(handle, #_name); \
  if (ucx->_name == NULL) { \
    return -1; \
  }
    INFO_ENV_CALLS(INFO_ENV_FIND)
#undef INFO_ENV_FIND
    ucx->md = NULL;
    return 0;
}

/* Read all settings. Returns UCX's status. */
static ucs_status_t info_env_read(info_env_ucx_t *ucx)
{
    return (ucx->md == NULL) ?
           ucx->uct_md_config_read(ucx->component, NULL, NULL,
                                   &ucx->md_config) :
           ucx->uct_md_iface_config_read(ucx->md, "nprdma", NULL, NULL,
                                         &ucx->iface_config);
}

/* Try each setting without the others, to find which is refused */
static int info_env_try_each(info_env_ucx_t *ucx, const info_env_t *env)
{
    unsigned i;

    for (i = 0; i < env->count; ++i) {
        info_env_unset(env->settings[i]);
    }

    for (i = 0; i < env->count; ++i) {
        putenv(env->settings[i]);
        if (info_env_read(ucx) != UCS_OK) {
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

/* Open all devices: some settings are refused only there */
static ucs_status_t info_env_open(info_env_ucx_t *ucx)
{
    uct_iface_params_t params = {
        .field_mask = UCT_IFACE_PARAM_FIELD_OPEN_MODE |
                      UCT_IFACE_PARAM_FIELD_DEVICE,
        .open_mode  = UCT_IFACE_OPEN_MODE_DEVICE
    };
    uct_tl_resource_desc_t *resources;
    ucs_async_context_t *async;
    ucs_status_t status = UCS_OK;
    uct_worker_h worker;
    uct_iface_h iface;
    unsigned count, i;

    /* without any device INTRA_NODE is looked at by itself */
    if ((ucx->uct_md_query_tl_resources(ucx->md, &resources, &count) !=
         UCS_OK) ||
        (ucx->ucs_async_context_create(UCS_ASYNC_MODE_THREAD_SPINLOCK,
                                       &async) != UCS_OK) ||
        (ucx->uct_worker_create(async, UCS_THREAD_MODE_SINGLE, &worker) !=
         UCS_OK)) {
        return UCS_OK;
    }

    for (i = 0; (i < count) && (status == UCS_OK); ++i) {
        params.mode.device.tl_name  = resources[i].tl_name;
        params.mode.device.dev_name = resources[i].dev_name;
        status = ucx->uct_iface_open(ucx->md, worker, &params,
                                     ucx->iface_config, &iface);
    }
    return status;
}

/* Has a configuration a setting of that name? Newer UCX want it with the name
 * of the transport before it, older ones without. */
static int info_env_has(const info_env_ucx_t *ucx, void *config,
                        const char *setting)
{
    char name[INFO_LINE], value[INFO_LINE];

    snprintf(name, sizeof(name), "%.*s", (int)strcspn(setting, "="), setting);
    if (strcmp(name, INFO_ENV_PREFIX) == 0) {
        return 0;
    }
    return (ucx->uct_config_get(config, name + strlen(INFO_ENV_PREFIX),
                                value, sizeof(value)) == UCS_OK) ||
           (ucx->uct_config_get(config, name + strlen("UCX_"), value,
                                sizeof(value)) == UCS_OK);
}

/* UCX warns of a name that is none, and goes on */
static int info_env_find_unknown(const info_env_ucx_t *ucx,
                                 const info_env_t *env)
{
    unsigned i, count = 0;

    for (i = 0; i < env->count; ++i) {
        if (!info_env_has(ucx, ucx->md_config, env->settings[i]) &&
            !info_env_has(ucx, ucx->iface_config, env->settings[i])) {
            printf("%s%.*s", (count++ == 0) ? INFO_ENV_UNKNOWN : ", ",
                   (int)strcspn(env->settings[i], "="), env->settings[i]);
        }
    }
    printf("\n");
    return (count > 0) ? INFO_ENV_NAME : INFO_ENV_TAKEN;
}

static int info_child_env(void)
{
    info_env_ucx_t ucx;
    info_env_t env;

    info_env_find(&env);
    if ((env.count == 0) || (info_env_load(&ucx) != 0)) {
        return INFO_ENV_TAKEN; /* the plug-in is tried by itself */
    }

    if (info_env_try_each(&ucx, &env) != INFO_ENV_TAKEN) {
        return INFO_ENV_ONE;
    }

    if ((info_env_read(&ucx) != UCS_OK) ||
        (ucx.uct_md_open(ucx.component, "nprdma", ucx.md_config, &ucx.md) !=
         UCS_OK)) {
        return INFO_ENV_ALL;
    }

    if (info_env_try_each(&ucx, &env) != INFO_ENV_TAKEN) {
        return INFO_ENV_ONE;
    }

    if ((info_env_read(&ucx) != UCS_OK) || (info_env_open(&ucx) != UCS_OK)) {
        return INFO_ENV_ALL;
    }
    return info_env_find_unknown(&ucx, &env);
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
    info_result_t result;
    size_t len;
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
    result = info_env_transports(text, size);
    if (ret == INFO_ENV_NAME) {
        len  = (result == INFO_OK) ? 0 : strlen(text);
        what = info_env_after(said, INFO_ENV_UNKNOWN);
        snprintf(text + len, size - len, "%snprdma has no %s, and UCX ignores "
                 "it: 'ucx_info -cf' has the names", (len > 0) ? "; " : "",
                 (what != NULL) ? what : "setting of one of these names");
        return INFO_WARNING;
    }
    return result;
}
