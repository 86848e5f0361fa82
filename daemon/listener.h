// The listening socket: making it, accepting from it, backing off at the descriptor limit, removing
// it. May be used by: daemon. May use: libuv. Threads: the loop's.
#ifndef CAIRN_LISTENER_H
#define CAIRN_LISTENER_H

#include <sys/stat.h>

struct cairn_server;

// Binds the configured path (mode 0660) and listens. A socket that nobody listens on is replaced.
// Or takes over the one that systemd passed, which is never removed. Logs what is wrong:
// CAIRN_EBUSY (another daemon listens), CAIRN_EINVAL, CAIRN_EIO.
int cairn_listener_open(struct cairn_server *server);
// A listening Unix socket at `path`, mode 0660. ret_info: of its file, for the unlink.
int cairn_listener_bind(const char *path, int *ret_fd, struct stat *ret_info);
// Removes the file, if it is still the one of `info`.
void cairn_listener_unlink(const char *path, const struct stat *info);
int cairn_listener_start(struct cairn_server *server);
// Stops accepting and removes the socket file, if it is still this daemon's.
void cairn_listener_close(struct cairn_server *server);

#endif
