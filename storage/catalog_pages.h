// Whether the pages of an LMDB file (format 1, 64-bit, little endian) fit together: LMDB trusts
// them, and writes beyond its buffers if a page's bounds lie, or over pages in use if the list of
// free ones does.
//
// May be used by: storage/catalog_check.c, tests. May use: proto. Any thread.
#ifndef CAIRN_CATALOG_PAGES_H
#define CAIRN_CATALOG_PAGES_H

#include <stdbool.h>
#include <stdint.h>

enum {
        CAIRN_CATALOG_PAGE_BYTES = 4096
};

// `bytes`: the whole file, 8-byte aligned; read alone. False: damaged, or out of memory.
bool cairn_catalog_pages_sound(const uint8_t *bytes, uint64_t size_bytes);

#endif
