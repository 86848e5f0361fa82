// The listening socket.
#include "daemon/listener.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <systemd/sd-daemon.h>
#include <unistd.h>

#include "daemon/connection.h"
#include "daemon/log.h"
#include "daemon/server.h"
#include "proto/codec.h"
#include "proto/status.h"

enum {
        BACKLOG = 512,
        ACCEPTS_A_TURN_MAX = 4,
        BACKOFF_MS = 100,
        SOCKET_MODE_MASK = 0117, // 0660
        FILE_MODE_MASK = 0077,
};

// Whether somebody listens on the address: CAIRN_EBUSY; CAIRN_OK: the path is free or a stale
// socket, now removed.
static int clear_path(const struct sockaddr_un *address)
{
        struct stat info;
        int fd;
        int error;

        if (lstat(address->sun_path, &info) != 0)
                return CAIRN_OK;
        if (!S_ISSOCK(info.st_mode)) {
                cairn_log(CAIRN_LOG_ERROR, "remove it, or choose another socket",
                          "%s is there and no socket", address->sun_path);
                return CAIRN_EINVAL;
        }
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return CAIRN_EIO;
        error = connect(fd, (const struct sockaddr *)address, sizeof(*address)) == 0 ? 0 : errno;
        (void)close(fd); // nothing was written
        if (error == 0 || error == EAGAIN) {
                cairn_log(CAIRN_LOG_ERROR, "stop it first, or choose another socket",
                          "another daemon listens on %s", address->sun_path);
                return CAIRN_EBUSY;
        }
        if (error == ECONNREFUSED && unlink(address->sun_path) == 0) {
                cairn_log(CAIRN_LOG_INFO, NULL, "replaced the stale socket %s", address->sun_path);
                return CAIRN_OK;
        }
        cairn_log(CAIRN_LOG_ERROR, "check its owner and mode", "cannot replace %s: %s",
                  address->sun_path, strerror(errno));
        return CAIRN_EPERM;
}

// The socket's own directory is made if it is not there; nothing above it.
static void make_directory(const char *path)
{
        char directory[CAIRN_SOCKET_PATH_BYTES_MAX + 1];
        char *slash;

        memcpy(directory, path, strlen(path) + 1); // its length was checked with the configuration
        slash = strrchr(directory, '/');
        if (!slash || slash == directory)
                return;
        *slash = '\0';
        if (mkdir(directory, 0755) != 0 && errno != EEXIST)
                cairn_log(CAIRN_LOG_WARNING, "make it by hand", "cannot make %s: %s", directory,
                          strerror(errno));
}

int cairn_listener_bind(const char *path, int *ret_fd, struct stat *ret_info)
{
        struct sockaddr_un address = {.sun_family = AF_UNIX};
        mode_t mask;
        int status;
        int fd;

        assert(strlen(path) <= CAIRN_SOCKET_PATH_BYTES_MAX);
        memcpy(address.sun_path, path, strlen(path) + 1);
        mask = umask(0022);
        make_directory(path);
        (void)umask(mask);
        status = clear_path(&address);
        if (status != CAIRN_OK)
                return status;
        fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        if (fd < 0)
                return CAIRN_EIO;
        mask = umask(SOCKET_MODE_MASK);
        status = bind(fd, (const struct sockaddr *)&address, sizeof(address));
        (void)umask(mask);
        if (status != 0 || lstat(path, ret_info) != 0 || listen(fd, BACKLOG) != 0) {
                cairn_log(CAIRN_LOG_ERROR, "check that its directory is there and writable",
                          "cannot listen on %s: %s", path, strerror(errno));
                (void)close(fd); // nothing was written
                return CAIRN_EIO;
        }
        *ret_fd = fd;
        return CAIRN_OK;
}

void cairn_listener_unlink(const char *path, const struct stat *info)
{
        struct stat now;

        if (lstat(path, &now) == 0 && now.st_dev == info->st_dev && now.st_ino == info->st_ino)
                (void)unlink(path); // a stale one is replaced at the next start
}

// The socket that systemd made and holds, if it did: it stays when the daemon goes.
static int take_activated(struct cairn_server *server, bool *ret_taken)
{
        int count = sd_listen_fds(1);
        int fd = SD_LISTEN_FDS_START;

        *ret_taken = count > 0;
        if (count <= 0)
                return CAIRN_OK;
        if (count > 1 || sd_is_socket_unix(fd, SOCK_STREAM, 1, NULL, 0) <= 0) {
                cairn_log(CAIRN_LOG_ERROR, "name one ListenStream= with a path in cairnd.socket",
                          "socket activation passed %d descriptors, or one that is no listening "
                          "Unix socket",
                          count);
                return CAIRN_EINVAL;
        }
        if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0)
                return CAIRN_EIO;
        cairn_log(CAIRN_LOG_INFO, NULL, "the socket comes from systemd");
        if (sd_is_socket_unix(fd, SOCK_STREAM, 1, server->config->socket, 0) == 0)
                cairn_log(CAIRN_LOG_WARNING, "set the same path in both, or mask cairnd.socket",
                          "systemd listens on another path than the configured %s",
                          server->config->socket);
        server->listen_fd = fd;
        return CAIRN_OK;
}

int cairn_listener_open(struct cairn_server *server)
{
        bool taken;
        int status = take_activated(server, &taken);

        if (taken || status != CAIRN_OK)
                return status;
        return cairn_listener_bind(server->config->socket, &server->listen_fd,
                                   &server->socket_info);
}

static void on_backoff(uv_timer_t *timer)
{
        (void)cairn_listener_start(timer->data); // cannot fail for an open handle
}

// Out of descriptors or memory: connections wait in the backlog; no spinning on a readable
// listener.
static void back_off(struct cairn_server *server, int error)
{
        cairn_log(CAIRN_LOG_WARNING, "raise LimitNOFILE, or close connections", "cannot accept: %s",
                  strerror(error));
        (void)uv_poll_stop(&server->listener);
        (void)uv_timer_start(&server->backoff, on_backoff, BACKOFF_MS, 0);
}

// Told why, in a frame, and closed.
static void turn_away(struct cairn_server *server, int fd, int status, const char *text)
{
        Cairn__ErrorReply reply = CAIRN__ERROR_REPLY__INIT;
        struct cairn_frame_header header = {
            .kind = CAIRN_KIND_HELLO, .reply = true, .status = status};
        uint8_t *bytes;
        size_t size;

        reply.text = (char *)text;
        if (cairn_codec_frame(&header, &reply, 0, &bytes, &size, NULL) == CAIRN_OK) {
                (void)send(fd, bytes, size, MSG_NOSIGNAL | MSG_DONTWAIT); // a courtesy
                free(bytes);
        }
        (void)close(fd); // as above
        server->counters.connections_refused++;
}

static void refuse_excess(struct cairn_server *server, int fd)
{
        turn_away(server, fd, CAIRN_EBUSY,
                  "too many connections; retry later, or raise connections_max");
        cairn_log(CAIRN_LOG_WARNING, "raise connections_max, or look who connects",
                  "turned a connection away: %llu are open",
                  (unsigned long long)server->counters.connections);
}

static void refuse_peer(struct cairn_server *server, int fd, const struct cairn_peer *peer)
{
        turn_away(server, fd, CAIRN_EPERM,
                  "this user may not connect; add it to allowed_uids or its group to allowed_gids");
        cairn_log(CAIRN_LOG_WARNING, "add it to allowed_uids or allowed_gids if it should",
                  "turned a connection of uid %u away", (unsigned)peer->uid);
}

static void on_listener(uv_poll_t *poll, int status, int events)
{
        struct cairn_server *server = poll->data;

        (void)events; // readable is all that was asked for
        if (status < 0)
                return;
        for (int i = 0; i < ACCEPTS_A_TURN_MAX; i++) {
                struct cairn_peer peer;
                uint8_t first;
                int fd = accept4(server->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

                if (fd < 0) {
                        if (errno == EMFILE || errno == ENFILE || errno == ENOMEM ||
                            errno == ENOBUFS)
                                back_off(server, errno);
                        return; // EAGAIN, or a peer that went again
                }
                // A peer that has gone again costs no more than this.
                if (recv(fd, &first, 1, MSG_PEEK | MSG_DONTWAIT) == 0 ||
                    cairn_peer_of(fd, &peer) != CAIRN_OK) {
                        (void)close(fd); // nothing was written
                        continue;
                }
                if (!cairn_access_may_connect(&server->config->access, &peer))
                        refuse_peer(server, fd, &peer);
                else if (server->counters.connections >= server->config->connections_max)
                        refuse_excess(server, fd);
                else
                        (void)cairn_connection_create(server, fd, peer.uid); // no memory: closed
        }
}

int cairn_listener_start(struct cairn_server *server)
{
        return uv_poll_start(&server->listener, UV_READABLE, on_listener) == 0 ? CAIRN_OK
                                                                               : CAIRN_EIO;
}

void cairn_listener_close(struct cairn_server *server)
{
        if (server->listen_fd < 0)
                return;
        cairn_listener_unlink(server->config->socket, &server->socket_info);
        (void)close(server->listen_fd); // nothing was written
        server->listen_fd = -1;
}
