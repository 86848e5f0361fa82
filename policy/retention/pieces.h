// Keys for nacl.h out of a context's pieces (policy/landmark): raw rows, or the row codecs where
// RAM holds no raw ones. Token t of the head is position t: pieces begin at 0 without gaps.
// Threads: any number, each with its own reader. May be used by: daemon, tests.
#ifndef CAIRN_RETENTION_PIECES_H
#define CAIRN_RETENTION_PIECES_H

#include "policy/landmark/landmark.h"
#include "policy/retention/nacl.h"

// All the caller's, kept while the keys are read.
struct cairn_retention_pieces {
        const struct cairn_landmark_layout *layout;
        const struct cairn_landmark_piece *pieces;
        uint32_t n_pieces;
};

// CAIRN_EINVAL: a gap, or no piece. ret_keys points to `pieces`.
int cairn_retention_pieces_keys(const struct cairn_retention_pieces *pieces,
                                struct cairn_nacl_keys *ret_keys);

#endif
