// What service managers and operators ask of the daemon: the watchdog, SIGHUP, Reload.
// May be used by: daemon. May use: libuv, libsystemd. Threads: the loop's.
#ifndef CAIRN_OPERATE_H
#define CAIRN_OPERATE_H

#include <stdbool.h>
#include <stdint.h>

struct cairn_server;
struct cairn_peer;

// Starts feeding systemd's watchdog, if it watches, and listening for SIGHUP. CAIRN_EIO.
int cairn_operate_start(struct cairn_server *server);

// Reads the configuration again and applies what may change. ret_text[CAIRN_TEXT_BYTES_MAX] says
// what happened; CAIRN_EINVAL: what is wrong with it, and nothing changed.
int cairn_operate_reload(struct cairn_server *server, char *ret_text);

// Kinds of requests that only operators may send.
bool cairn_operator_only(uint32_t kind);

#endif
