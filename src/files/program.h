/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * What the programs nprdma-filed and nprdma-file have in common.
 */

#ifndef NF_PROGRAM_H_
#define NF_PROGRAM_H_

/** The program's name, before each line that it says */
extern const char *nf_program;

/** A line on standard error: "nprdma-file: ...". Any thread. */
void nf_say(const char *format, ...) __attribute__((format(printf, 1, 2)));

/** The same, and the end of the program */
void nf_die(const char *format, ...)
        __attribute__((format(printf, 1, 2), noreturn));

/** The same, for what is wrong with the command line */
void nf_misused(const char *format, ...)
        __attribute__((format(printf, 1, 2), noreturn));

/** Is it the number of a port? */
int nf_is_port(const char *text);

/**
 * Start this program again by nprdma-run, which stands beside it or in PATH,
 * unless that has been done: UCX is told by its environment to use nprdma.
 * Returns if it has been, or if there is no nprdma-run (a line says so). Peers
 * reach what is registered for them, and no more: from here on
 * UCX_NPRDMA_MR_SCOPE is 'exact', or the program ends with a line.
 */
void nf_run_again(char **argv);

#endif
