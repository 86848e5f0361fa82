// Who may do what.
#include "daemon/access.h"

#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "proto/status.h"

enum {
        WORD_BYTES = 64,
        ID_DIGITS_MAX = 10
};

static int parse_id(const char *word, bool group, uint32_t *ret_id)
{
        size_t digits = strspn(word, "0123456789");

        if (word[digits] == '\0') {
                unsigned long long id = strtoull(word, NULL, 10);

                if (digits > ID_DIGITS_MAX || id >= UINT32_MAX)
                        return CAIRN_EINVAL;
                *ret_id = (uint32_t)id;
                return CAIRN_OK;
        }
        if (group) {
                const struct group *entry = getgrnam(word);

                if (!entry)
                        return CAIRN_EINVAL;
                *ret_id = entry->gr_gid;
        } else {
                const struct passwd *entry = getpwnam(word);

                if (!entry)
                        return CAIRN_EINVAL;
                *ret_id = entry->pw_uid;
        }
        return CAIRN_OK;
}

int cairn_ids_parse(const char *text, bool groups, struct cairn_ids *ret_ids, char *ret_word)
{
        struct cairn_ids ids = {.count = 0};

        while (*(text += strspn(text, ", \t")) != '\0') {
                size_t size = strcspn(text, ", \t");

                (void)snprintf(ret_word, WORD_BYTES, "%.*s", (int)size, text); // cut is no name
                if (size >= WORD_BYTES || ids.count == CAIRN_IDS_MAX ||
                    parse_id(ret_word, groups, &ids.ids[ids.count]) != CAIRN_OK)
                        return CAIRN_EINVAL;
                ids.count++;
                text += size;
        }
        *ret_ids = ids;
        return CAIRN_OK;
}

int cairn_peer_of(int fd, struct cairn_peer *ret_peer)
{
        struct cairn_peer peer = {.groups_count = 1};
        struct ucred credentials;
        socklen_t size = sizeof(credentials);
        socklen_t groups_size = sizeof(peer.groups) - sizeof(peer.groups[0]);

        if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
                return CAIRN_EPERM;
        peer.uid = credentials.uid;
        peer.groups[0] = credentials.gid;
        // More groups than fit, or an old kernel: its first group alone counts.
        if (getsockopt(fd, SOL_SOCKET, SO_PEERGROUPS, peer.groups + 1, &groups_size) == 0)
                peer.groups_count += (uint32_t)(groups_size / sizeof(peer.groups[0]));
        *ret_peer = peer;
        return CAIRN_OK;
}

static bool holds(const struct cairn_ids *ids, uint32_t id)
{
        for (uint32_t i = 0; i < ids->count; i++)
                if (ids->ids[i] == id)
                        return true;
        return false;
}

static bool in_group(const struct cairn_ids *ids, const struct cairn_peer *peer)
{
        for (uint32_t i = 0; i < peer->groups_count; i++)
                if (holds(ids, peer->groups[i]))
                        return true;
        return false;
}

static bool is_own(const struct cairn_peer *peer)
{
        return peer->uid == 0 || peer->uid == geteuid();
}

bool cairn_access_may_connect(const struct cairn_access *access, const struct cairn_peer *peer)
{
        if (access->uids.count == 0 && access->gids.count == 0)
                return true;
        return is_own(peer) || holds(&access->uids, peer->uid) || in_group(&access->gids, peer);
}

bool cairn_access_is_operator(const struct cairn_access *access, const struct cairn_peer *peer)
{
        return is_own(peer) || in_group(&access->operators, peer);
}
