// Waiting for the daemon: by looking where answers of the kind were soon there, else asleep. To be
// put to sleep and woken takes both sides tens of microseconds, more than many an answer.
#include <poll.h>
#include <sched.h>

#include "client/src/client.h"

enum {
        SPIN_US_DEFAULT = 100,
        LATE_TRIES = 16, // waits until it looks again where answers came late
};

void cairn_client_spin_init(struct cairn_client *client, uint32_t spin_us)
{
        cpu_set_t allowed;

        client->spin_ns = spin_us == CAIRN_SPIN_NEVER ? 0 : 1000ull * spin_us;
        if (spin_us == 0)
                client->spin_ns = 1000ull * SPIN_US_DEFAULT;
        // On a single processor the daemon would wait for us as well.
        if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0 && CPU_COUNT(&allowed) < 2)
                client->spin_ns = 0;
}

// Looks for something to receive until `until_ns`. True: it was received, or the connection is
// gone.
static bool spin(struct cairn_client *client, uint64_t until_ns)
{
        do {
                if (cairn_client_receive(client))
                        return true;
                (void)sched_yield(); // always there; whoever needs this processor goes first
        } while (cairn_client_now_ns() < until_ns);
        return false;
}

static void sleep_on_socket(struct cairn_client *client, int64_t timeout_ms)
{
        struct pollfd poller = {.fd = client->socket_fd, .events = POLLIN};

        if (client->unsent_first)
                poller.events |= POLLOUT;
        if (timeout_ms > INT32_MAX)
                timeout_ms = INT32_MAX;
        (void)poll(&poller, 1, (int)timeout_ms); // interrupted or not: the turn goes on
}

bool cairn_client_wait(struct cairn_client *client, int64_t timeout_ms)
{
        uint8_t *late = &client->late[client->awaited];
        bool may_spin = client->spin_ns > 0 && !client->unsent_first;
        uint64_t begin_ns = may_spin ? cairn_client_now_ns() : 0;
        bool received = false;

        // Waits asleep are longer: now and then one finds out whether looking would do again.
        if (may_spin && *late <= 1)
                received = spin(client, begin_ns + client->spin_ns);
        if (!received)
                sleep_on_socket(client, timeout_ms);
        if (may_spin && cairn_client_now_ns() - begin_ns <= client->spin_ns)
                *late = 0;
        else if (may_spin)
                *late = *late > 1 ? *late - 1 : LATE_TRIES;
        return received;
}
