/*
 * SPDX-License-Identifier: BSD-3-Clause
 *
 * Files that peers reach by their offsets (seed 001, FileMR).
 *
 * Each key of a file has a place of its own (file_area.h): addresses of this
 * process at which the file is mapped, shared, with the rights of the key. The
 * initiator makes such an address of an offset, and all that holds for memory
 * holds for it: entries, views, fault-in. So the page cache is the memory, and
 * what a key does not allow cannot be got by the kernel's calls either: its
 * mapping lacks the right.
 *
 * Of a place peers reach what the file has, to the byte: that part is a region
 * (region.h), with each scope. It follows the file's size.
 *
 * Who owns what: the program owns the file, and the file its keys. A key that
 * has ended lives on as long as handles of it do, and reaches nothing.
 */

#ifndef NP_FILE_H_
#define NP_FILE_H_

#include "../np.h"

#include <stdatomic.h>

typedef struct np_file np_file_t;
typedef struct np_file_key np_file_key_t;

/** Of a key, as NPRDMA_FILE_.. of nprdma_file.h */
enum {
    NP_FILE_READ  = 1u << 0,
    NP_FILE_WRITE = 1u << 1
};

/** The addresses at which files are mapped (file_area.h). Set once, size last,
 *  with release. A forked child has none: no size. */
typedef struct np_file_area {
    _Atomic uint64_t size;
    uint64_t         first;
} np_file_area_t;

extern np_file_area_t np_file_area;


/** May any file be reached? Any thread, no lock. */
static inline int np_file_are_there(void)
{
    return atomic_load_explicit(&np_file_area.size, memory_order_acquire) > 0;
}

/** Is this an address of the area? Any thread, no lock. */
static UCS_F_ALWAYS_INLINE int np_file_has(uint64_t va)
{
    const uint64_t size = atomic_load_explicit(&np_file_area.size,
                                               memory_order_acquire);

    return ucs_unlikely((va - np_file_area.first) < size);
}

/*
 * What the program calls: as nprdma_file.h says, with its errors (negative
 * errno). Any thread; calls for one file wait for each other.
 */
int np_file_create(uint64_t max_size, np_file_t **file_p);
int np_file_bind(np_file_t *file, int fd, unsigned rights);
int np_file_make_key(np_file_t *file, unsigned rights, void **address,
                     uint64_t *len);
int np_file_revoke(np_file_t *file, const void *address);
int np_file_unbind(np_file_t *file);
int np_file_resize(np_file_t *file, uint64_t size);
int np_file_commit(np_file_t *file);
void np_file_destroy(np_file_t *file);

/**
 * A handle of the key whose place is just [@a va, @a va + @a len). Any thread.
 *
 * @return NULL: there is none.
 */
np_file_key_t *np_file_key_get(uint64_t va, uint64_t len);

/** The handle is given back; the key stays */
void np_file_key_put(np_file_key_t *key);

uint64_t np_file_key_va(const np_file_key_t *key);

/** Bytes of its place: how large the file may become */
uint64_t np_file_key_len(const np_file_key_t *key);

/**
 * May a peer reach [@a va, @a va + @a len), an address that np_file_has? Asks
 * the file for its size, which others may have changed. Any thread that is not
 * moving.
 *
 * @param [in] is_write  With the right to write.
 *
 * @return UCS_OK; UCS_ERR_INVALID_ADDR: no key has this address or right, or
 *         the file ends before.
 */
ucs_status_t np_file_resolve(uint64_t va, uint64_t len, int is_write);

#endif
