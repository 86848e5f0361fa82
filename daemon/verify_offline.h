// `cairnd --verify-offline DIR[:DIR...] [--json]`: checks data directories without serving them.
// What `cairnctl verify --offline` runs. May be used by: daemon. May use: storage.
#ifndef CAIRN_VERIFY_OFFLINE_H
#define CAIRN_VERIFY_OFFLINE_H

#include <stdbool.h>

// True if the arguments ask for it; *ret_code is then the exit code: 0 all is sound, 1 something is
// not or could not be read, 2 wrong usage. Prints to standard output.
bool cairn_verify_offline_main(int argc, char *const *argv, int *ret_code);

#endif
