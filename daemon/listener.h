// The listening socket: making it, accepting from it, backing off at the descriptor limit, removing
// it. May be used by: daemon. May use: libuv. Threads: the loop's.
#ifndef CAIRN_LISTENER_H
#define CAIRN_LISTENER_H

struct cairn_server;

// Binds the configured path (mode 0660) and listens. A socket that nobody listens on is replaced.
// Logs what is wrong: CAIRN_EBUSY (another daemon listens), CAIRN_EINVAL, CAIRN_EIO.
int cairn_listener_open(struct cairn_server *server);
int cairn_listener_start(struct cairn_server *server);
// Stops accepting and removes the socket file, if it is still this daemon's.
void cairn_listener_close(struct cairn_server *server);

#endif
