/* SPDX-License-Identifier: BSD-3-Clause */
/* A shim for munged: its clock is an hour ahead. */

#include <sys/time.h>
#include <time.h>


time_t time(time_t *now)
{
    struct timeval value;

    (void)gettimeofday(&value, NULL);
    value.tv_sec += 3600;
    if (now != NULL) {
        *now = value.tv_sec;
    }
    return value.tv_sec;
}
