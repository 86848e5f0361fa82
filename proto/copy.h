// Copies of bulk bytes that this processor will not read soon: blocks on their way between the RAM
// tier and an arena.
// May be used by: all folders. May use: nothing. Threads: any.
#ifndef CAIRN_COPY_H
#define CAIRN_COPY_H

#include <stddef.h>

// As memcpy, but the destination goes past the caches where the machine can do that: it is not read
// first, so a third of the memory traffic is saved. Whole before it returns, for all processors.
void cairn_copy_past_caches(void *restrict to, const void *restrict from, size_t size);

#endif
