/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * How a client of another host shows who it is, as the command line says.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "way.h"
#include "program.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef HAVE_MUNGE
#  define NF_HAS_MUNGE 1
#else
#  define NF_HAS_MUNGE 0
#endif


void nf_way_take(int option, const char *value, nf_way_t *way,
                 const char **munge_socket)
{
    switch (option) {
    case 'a':
        *way = (strcmp(value, "token") == 0) ? NF_WAY_TOKEN :
               (strcmp(value, "munge") == 0) ? NF_WAY_MUNGE : NF_WAY_ANY;
        if (*way == NF_WAY_ANY) {
            nf_misused("--auth %s: token or munge is needed", value);
        }
        break;
    case 'M':
        *munge_socket = value;
        break;
    default: /* getopt has said why */
        fprintf(stderr, "Try '%s --help'\n", nf_program);
        exit(2);
    }
}

void nf_way_check(nf_way_t way, const char *munge_socket, const char *token,
                  int is_far, const char *needs)
{
    const char *what = (way != NF_WAY_ANY) ? "--auth" : "--munge-socket";

    if ((way == NF_WAY_ANY) && (munge_socket == NULL)) {
        return;
    }

    if (!is_far) {
        nf_misused("%s %s", what, needs);
    }

    if (((way == NF_WAY_MUNGE) || (munge_socket != NULL)) && !NF_HAS_MUNGE) {
        nf_misused("%s%s: this nprdma was built without MUNGE. Build it where "
                   "libmunge is, or use a token", what,
                   (way == NF_WAY_MUNGE) ? " munge" : "");
    }

    if ((way == NF_WAY_MUNGE) && (token != NULL)) {
        nf_misused("--token is of no use with --auth munge: leave one of them "
                   "out");
    }

    if ((way == NF_WAY_TOKEN) && (munge_socket != NULL)) {
        nf_misused("--munge-socket is of no use with --auth token: leave one "
                   "of them out");
    }
}
