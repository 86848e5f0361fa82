// LMDB reads its file through a map and trusts it: if the file is cut or the device fails under it,
// the kernel raises SIGBUS, and pages that changed end in an assertion. Within a guard both end the
// transaction instead of the process.
//
// May be used by: storage/catalog.c, tests. May use: proto. Threads: a guard is its thread's own.
#ifndef CAIRN_CATALOG_GUARD_H
#define CAIRN_CATALOG_GUARD_H

// Runs `run`, which must not hold what only it can give back: it may end anywhere where it reads
// the map. Its value, or CAIRN_EIO: it ended so, and nothing that it used of LMDB may be used
// again.
int cairn_catalog_guard(int (*run)(void *arg), void *arg);

// Ends the guard of this thread with CAIRN_EIO; without one it does nothing.
void cairn_catalog_guard_end(void);

#endif
