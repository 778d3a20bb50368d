/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the engine needs of libucs, so that nprdma_info also runs where UCX is
 * missing. It keeps what the engine says instead of printing it: that line
 * names the reason and the cure.
 */

#ifdef HAVE_CONFIG_H
#  include "config.h"
#endif

#include "info.h"

#include <ucs/config/global_opts.h>
#include <ucs/debug/assert.h>
#include <ucs/debug/log.h>
#include <ucs/type/status.h>

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

char info_log_text[INFO_LINE];

ucs_global_opts_t ucs_global_opts = {
    .log_component.log_level = UCS_LOG_LEVEL_WARN
};


void info_log_clear(void)
{
    info_log_text[0] = '\0';
}

/* By its symbol: UCX versions differ in a const of its declaration */
void info_log_dispatch(const char *file, unsigned line, const char *function,
                       int level, const void *component, const char *format,
                       ...) __asm__("ucs_log_dispatch");

/* The first line counts: what follows it is a consequence */
void info_log_dispatch(const char *file, unsigned line, const char *function,
                       int level, const void *component, const char *format,
                       ...)
{
    va_list args;

    if (info_log_text[0] == '\0') {
        va_start(args, format);
        vsnprintf(info_log_text, sizeof(info_log_text), format, args);
        va_end(args);
    }
}

/* An assertion (np_assert) does not hold */
void ucs_fatal_error_format(const char *file, unsigned line,
                            const char *function, const char *format, ...)
{
    va_list args;

    fprintf(stderr, "%s:%u: %s(): ", file, line, function);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fprintf(stderr, "\n");
    abort();
}

const char *ucs_status_string(ucs_status_t status)
{
    switch (status) {
    case UCS_OK:
        return "success";
    case UCS_ERR_NO_RESOURCE:
        return "no resource at the moment";
    case UCS_ERR_NO_MEMORY:
        return "no memory";
    case UCS_ERR_INVALID_PARAM:
        return "invalid message";
    case UCS_ERR_REJECTED:
        return "rejected";
    case UCS_ERR_CONNECTION_RESET:
        return "the other end is gone";
    default:
        return "input/output error";
    }
}
