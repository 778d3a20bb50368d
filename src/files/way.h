/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Options that nprdma-filed and nprdma-file have both: how a client of another
 * host shows who it is.
 */

#ifndef NF_WAY_H_
#define NF_WAY_H_

/** How those of other hosts show who they are, as far as somebody has said */
typedef enum nf_way {
    NF_WAY_ANY,     /**< by a token, or without one by MUNGE */
    NF_WAY_TOKEN,
    NF_WAY_MUNGE
} nf_way_t;

/** An option has come: 'a' for --auth, 'M' for --munge-socket. What is wrong
 *  with its value ends the program, and so does another option: getopt has said
 *  why. */
void nf_way_take(int option, const char *value, nf_way_t *way,
                 const char **munge_socket);

/**
 * All options have come: what would be without effect ends the program.
 *
 * @param [in] token   As --token says; NULL: nothing.
 * @param [in] is_far  Other hosts have to do with it.
 * @param [in] needs   What is wrong if not, after the option's name.
 */
void nf_way_check(nf_way_t way, const char *munge_socket, const char *token,
                  int is_far, const char *needs);

#endif
