// `cairnd --audit-offline DIR [--json] [--noted COUNT:DIGEST]`: is the audit of a data directory
// that nobody serves whole? Reads alone.
// May be used by: daemon/main.c. May use: proto, storage.
#ifndef CAIRN_AUDIT_OFFLINE_H
#define CAIRN_AUDIT_OFFLINE_H

#include <stdbool.h>

// True if that was asked for: *ret_code is the exit code, 0: whole, 1: not, or it could not be
// read, 2: wrong usage.
bool cairn_audit_offline_main(int argc, char *const *argv, int *ret_code);

#endif
