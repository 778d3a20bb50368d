/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * The table of windows.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "window.h"

#include "../segment.h"
#include "../thread.h"

#include <pthread.h>
#include <stdlib.h>

/* Guards np_windows and every window's count. Never taken on the fast path:
 * a key keeps the window that it found. */
static pthread_mutex_t np_windows_lock = PTHREAD_MUTEX_INITIALIZER;
static UCS_LIST_HEAD(np_windows);

static pthread_once_t np_windows_once = PTHREAD_ONCE_INIT;


static void np_windows_fork_begin(void)
{
    pthread_mutex_lock(&np_windows_lock);
}

/* In the parent and in the child */
static void np_windows_fork_end(void)
{
    pthread_mutex_unlock(&np_windows_lock);
}

static void np_windows_init(void)
{
    np_at_fork(np_windows_fork_begin, np_windows_fork_end, np_windows_fork_end);
}

static np_window_t *
np_window_get_locked(uint64_t port_id, uint64_t segment_id)
{
    np_window_t *window;

    np_assert_locked(&np_windows_lock);
    ucs_list_for_each(window, &np_windows, list) {
        if ((window->segment_id == segment_id) &&
            (window->port_id == port_id)) {
            ++window->refs;
            return window;
        }
    }

    return NULL;
}

np_window_t *np_window_get(uint64_t port_id, uint64_t segment_id)
{
    np_window_t *window;

    pthread_mutex_lock(&np_windows_lock);
    window = np_window_get_locked(port_id, segment_id);
    pthread_mutex_unlock(&np_windows_lock);
    return window;
}

ucs_status_t np_window_add(uint64_t port_id, uint64_t segment_id, int fd,
                           size_t size, np_window_t **window_p)
{
    ucs_status_t status = UCS_OK;
    np_window_t *window;
    void *ptr;

    pthread_once(&np_windows_once, np_windows_init);
    pthread_mutex_lock(&np_windows_lock);
    window = np_window_get_locked(port_id, segment_id);
    if (window != NULL) {
        goto out; /* two endpoints asked for it */
    }

    status = (size > np_page_align(sizeof(np_alloc_head_t))) ?
             np_segment_map(fd, size, &ptr) : UCS_ERR_INVALID_PARAM;
    if (status != UCS_OK) {
        goto out;
    }

    window = calloc(1, sizeof(*window));
    if (window == NULL) {
        np_segment_unmap(ptr, size);
        status = UCS_ERR_NO_MEMORY;
        goto out;
    }

    window->port_id    = port_id;
    window->segment_id = segment_id;
    window->refs       = 1;
    window->head       = ptr;
    window->base       = UCS_PTR_BYTE_OFFSET(
            ptr, np_page_align(sizeof(np_alloc_head_t)));
    window->size       = size;
    ucs_list_add_head(&np_windows, &window->list);
out:
    pthread_mutex_unlock(&np_windows_lock);
    *window_p = window;
    return status;
}

void np_window_put(np_window_t *window)
{
    int last;

    pthread_mutex_lock(&np_windows_lock);
    np_assert(window->refs > 0);
    last = (--window->refs == 0);
    if (last) {
        ucs_list_del(&window->list);
    }
    pthread_mutex_unlock(&np_windows_lock);

    if (last) {
        np_segment_unmap(window->head, window->size);
        free(window);
    }
}
