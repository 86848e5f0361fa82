// Who may connect, and who may ask what only operators may: by the peer's credentials as the kernel
// tells them (SO_PEERCRED, SO_PEERGROUPS), never by what it claims.
// May be used by: daemon, tests. May use: proto. Threads: any.
#ifndef CAIRN_ACCESS_H
#define CAIRN_ACCESS_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

enum {
        CAIRN_IDS_MAX = 64,
        CAIRN_PEER_GROUPS_MAX = 128
};

struct cairn_ids {
        uint32_t ids[CAIRN_IDS_MAX];
        uint32_t count;
};

struct cairn_access {
        struct cairn_ids uids;      // may connect; with gids empty too: whoever the socket lets in
        struct cairn_ids gids;      // or a member of one of these
        struct cairn_ids operators; // groups whose members are operators
};

struct cairn_peer {
        uid_t uid;
        gid_t groups[CAIRN_PEER_GROUPS_MAX];
        uint32_t groups_count;
};

// "0, 1000, worker": numbers, or names of users (or of groups) of this machine. CAIRN_EINVAL with
// the word to blame in ret_word[64].
int cairn_ids_parse(const char *text, bool groups, struct cairn_ids *ret_ids, char *ret_word);

// Of a connected Unix socket. CAIRN_EPERM: the kernel does not tell.
int cairn_peer_of(int fd, struct cairn_peer *ret_peer);

// Root and the daemon's own user always may both.
bool cairn_access_may_connect(const struct cairn_access *access, const struct cairn_peer *peer);
bool cairn_access_is_operator(const struct cairn_access *access, const struct cairn_peer *peer);

#endif
