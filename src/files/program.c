/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the programs nprdma-filed and nprdma-file have in common.
 */

#ifndef _GNU_SOURCE
#  define _GNU_SOURCE
#endif

#include "program.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Set by nf_run_again, for itself */
#define NF_RUN_VARIABLE  "NPRDMA_FILE_RUNS"

const char *nf_program = "nprdma-file";


static void nf_say_args(const char *format, va_list args)
{
    char text[PATH_MAX + 512];

    vsnprintf(text, sizeof(text), format, args);
    fprintf(stderr, "%s: %s\n", nf_program, text);
}

void nf_say(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    nf_say_args(format, args);
    va_end(args);
}

void nf_die(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    nf_say_args(format, args);
    va_end(args);
    exit(1);
}

void nf_misused(const char *format, ...)
{
    va_list args;

    va_start(args, format);
    nf_say_args(format, args);
    va_end(args);
    fprintf(stderr, "Try '%s --help'\n", nf_program);
    exit(2);
}

int nf_is_port(const char *text)
{
    char *end;
    unsigned long port = strtoul(text, &end, 10);

    return (text[0] >= '0') && (text[0] <= '9') && (*end == '\0') &&
           (port > 0) && (port < 65536);
}

/* Peers reach what is registered for them, and no more */
static void nf_set_scope(void)
{
    const char *scope = getenv("UCX_NPRDMA_MR_SCOPE");

    if ((scope != NULL) && (strcmp(scope, "exact") != 0)) {
        nf_die("UCX_NPRDMA_MR_SCOPE is '%s': files need 'exact'. Unset it",
               scope);
    }

    setenv("UCX_NPRDMA_MR_SCOPE", "exact", 1);
}

void nf_run_again(char **argv)
{
    char self[PATH_MAX], run[PATH_MAX + 16], **args;
    const char *slash;
    ssize_t len;
    size_t count;

    nf_set_scope();
    if (getenv(NF_RUN_VARIABLE) != NULL) {
        unsetenv(NF_RUN_VARIABLE); /* not for programs that we start */
        return;
    }

    len = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (len < 0) {
        return;
    }

    self[len] = '\0';
    slash     = strrchr(self, '/');
    snprintf(run, sizeof(run), "%.*s/nprdma-run", (int)(slash - self), self);
    for (count = 0; argv[count] != NULL; ++count) {
    }
    args = calloc(count + 2, sizeof(*args));
    if (args == NULL) {
        return;
    }

    args[0] = "nprdma-run";
    args[1] = self;
    memcpy(&args[2], &argv[1], count * sizeof(*args));
    setenv(NF_RUN_VARIABLE, "1", 1);
    execv(run, args);
    execvp(args[0], args);
    nf_say("there is no nprdma-run, beside this program or in your PATH: UCX "
           "may not find nprdma. Install nprdma-utils");
    unsetenv(NF_RUN_VARIABLE);
    free(args);
}
