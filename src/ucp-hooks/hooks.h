/* SPDX-License-Identifier: BSD-3-Clause */
/* Announcing buffers of transfers to the engine */
#ifndef HOOKS_H_
#define HOOKS_H_

/** The plug-in is loaded: what is posted from now on is told to it.
 *  @param [in] plugin  its handle, of dlopen()
 *  @return 0, or -1: it is no plug-in of nprdma's */
int hooks_attach(void *plugin);

#endif
