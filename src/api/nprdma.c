/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * libnprdma: finds the engine in the plug-in that UCX has loaded, and passes
 * every call on. It goes into programs of every kind, so it needs no UCX.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include <nprdma/nprdma.h>
#include <nprdma/nprdma_file.h>

#include "nprdma/extension.h"

#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#define NPRDMA_PLUGIN_NAME "libuct_nprdma.so.0"

/* The engine, once found; the plug-in is never unloaded */
static const np_extension_t *_Atomic nprdma_engine;

/* Objects that had been loaded into the process when the engine was not found.
 * A look for a library that is not there asks the file system: many
 * microseconds. */
static _Atomic unsigned long long nprdma_seen_objects;


static int nprdma_count_objects(struct dl_phdr_info *info, size_t size,
                                void *arg)
{
    (void)size;
    *(unsigned long long*)arg = info->dlpi_adds;
    return 1; /* each of them tells the same */
}

/* Returns 0, -ENOTCONN, or -EPROTO */
static int nprdma_search(const np_extension_t **engine_p)
{
    void *handle = dlopen(NPRDMA_PLUGIN_NAME, RTLD_NOLOAD | RTLD_LAZY);
    const np_extension_t *engine;

    if (handle == NULL) {
        return -ENOTCONN;
    }

    engine = dlsym(handle, NP_EXTENSION_SYMBOL);
    dlclose(handle);
    if ((engine == NULL) || (engine->size < sizeof(*engine))) {
        return -EPROTO;
    }

    atomic_store_explicit(&nprdma_engine, engine, memory_order_release);
    *engine_p = engine;
    return 0;
}

/* As nprdma_search, but costs little if nothing was loaded since the last
 * search that found nothing */
static int nprdma_find(const np_extension_t **engine_p)
{
    unsigned long long objects = 0;
    int ret;

    *engine_p = atomic_load_explicit(&nprdma_engine, memory_order_acquire);
    if (*engine_p != NULL) {
        return 0;
    }

    dl_iterate_phdr(nprdma_count_objects, &objects);
    if (objects == atomic_load_explicit(&nprdma_seen_objects,
                                        memory_order_relaxed)) {
        return -ENOTCONN;
    }

    ret = nprdma_search(engine_p);
    if (ret == -ENOTCONN) {
        atomic_store_explicit(&nprdma_seen_objects, objects,
                              memory_order_relaxed);
    }
    return ret;
}

int nprdma_version(unsigned *major, unsigned *minor, unsigned *patch)
{
    unsigned number[3] = {0};
    const np_extension_t *engine;
    int ret;

    sscanf(NPRDMA_VERSION, "%u.%u.%u", &number[0], &number[1], &number[2]);
    if (major != NULL) {
        *major = number[0];
    }
    if (minor != NULL) {
        *minor = number[1];
    }
    if (patch != NULL) {
        *patch = number[2];
    }

    ret = nprdma_find(&engine);
    if (ret != 0) {
        return ret;
    }
    return engine->is_running() ? 0 : -ENOTCONN;
}

int nprdma_notify_swap_out(void *va, size_t len)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    if (ret == -ENOTCONN) {
        return 0;
    }
    return (ret == 0) ? engine->notify_swap_out(va, len) : ret;
}

int nprdma_notify_swap_in(void *va, size_t len)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    if (ret == -ENOTCONN) {
        return 0;
    }
    return (ret == 0) ? engine->notify_swap_in(va, len) : ret;
}

int nprdma_register_swapper(void *va, size_t len,
                            const nprdma_swapper_t *swapper)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->register_swapper(va, len, swapper) : ret;
}

int nprdma_unregister_swapper(void *va, size_t len)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->unregister_swapper(va, len) : ret;
}

int nprdma_prefetch(void *va, size_t len, int flags)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->prefetch(va, len, flags) : ret;
}

int64_t nprdma_scan(void *va, size_t len)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->scan(va, len) : ret;
}

int nprdma_set_order(unsigned flags)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->set_order(flags) : ret;
}

unsigned nprdma_get_order(void)
{
    const np_extension_t *engine;

    return (nprdma_find(&engine) == 0) ? engine->get_order() : 0;
}

int nprdma_set_hint(unsigned flags)
{
    const np_extension_t *engine;
    int ret = nprdma_find(&engine);

    return (ret == 0) ? engine->set_hint(flags) : ret;
}

unsigned nprdma_get_hint(void)
{
    const np_extension_t *engine;

    return (nprdma_find(&engine) == 0) ? engine->get_hint() : 0;
}

int nprdma_get_counters(nprdma_counters_t *counters, size_t size)
{
    const np_extension_t *engine;
    int ret;

    if ((counters == NULL) || (size == 0) ||
        ((size % sizeof(uint64_t)) != 0)) {
        return -EINVAL;
    }

    ret = nprdma_find(&engine);
    if (ret != 0) {
        memset(counters, 0, size);
        return ret;
    }
    return engine->get_counters(counters, size);
}

int nprdma_file_create(uint64_t max_size, nprdma_file_t **file)
{
    const np_extension_t *engine;
    int ret;

    if (file == NULL) {
        return -EINVAL;
    }

    *file = NULL;
    ret   = nprdma_find(&engine);
    return (ret == 0) ? engine->file_create(max_size, file) : ret;
}

int nprdma_file_bind(nprdma_file_t *file, int fd, unsigned rights)
{
    const np_extension_t *engine;
    int ret = (file == NULL) ? -EINVAL : nprdma_find(&engine);

    return (ret == 0) ? engine->file_bind(file, fd, rights) : ret;
}

int nprdma_file_key(nprdma_file_t *file, unsigned rights, nprdma_filekey_t *key)
{
    const np_extension_t *engine;
    int ret = ((file == NULL) || (key == NULL)) ? -EINVAL :
              nprdma_find(&engine);

    return (ret == 0) ? engine->file_key(file, rights, key) : ret;
}

int nprdma_file_revoke(nprdma_file_t *file, const nprdma_filekey_t *key)
{
    const np_extension_t *engine;
    int ret = (file == NULL) ? -EINVAL : nprdma_find(&engine);

    return (ret == 0) ? engine->file_revoke(file, key) : ret;
}

int nprdma_file_unbind(nprdma_file_t *file)
{
    const np_extension_t *engine;
    int ret = (file == NULL) ? -EINVAL : nprdma_find(&engine);

    return (ret == 0) ? engine->file_unbind(file) : ret;
}

int nprdma_file_resize(nprdma_file_t *file, uint64_t size)
{
    const np_extension_t *engine;
    int ret = (file == NULL) ? -EINVAL : nprdma_find(&engine);

    return (ret == 0) ? engine->file_resize(file, size) : ret;
}

int nprdma_file_commit(nprdma_file_t *file)
{
    const np_extension_t *engine;
    int ret = (file == NULL) ? -EINVAL : nprdma_find(&engine);

    return (ret == 0) ? engine->file_commit(file) : ret;
}

void nprdma_file_destroy(nprdma_file_t *file)
{
    const np_extension_t *engine;

    if ((file != NULL) && (nprdma_find(&engine) == 0)) {
        engine->file_destroy(file);
    }
}
