// A thread that waits for the end of a step, and exits if that does not come.
#include "daemon/stop_guard.h"

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "daemon/log.h"

struct cairn_stop_guard {
        pthread_t thread;
        pthread_mutex_t lock;
        pthread_cond_t wake;
        struct timespec deadline; // of the monotonic clock
        bool ended;               // under the lock
};

static void *watch(void *arg)
{
        struct cairn_stop_guard *guard = arg;
        int error = 0;

        (void)pthread_mutex_lock(&guard->lock);
        while (!guard->ended && error == 0)
                error = pthread_cond_timedwait(&guard->wake, &guard->lock, &guard->deadline);
        if (!guard->ended) {
                cairn_log(CAIRN_LOG_ERROR, "look at the disk; what was only in RAM is lost",
                          "gave up waiting for reads and writes under way");
                _exit(1);
        }
        (void)pthread_mutex_unlock(&guard->lock);
        return NULL;
}

struct cairn_stop_guard *cairn_stop_guard_create(uint64_t limit_ms)
{
        struct cairn_stop_guard *guard = calloc(1, sizeof(*guard));
        pthread_condattr_t attributes;

        if (!guard)
                return NULL;
        (void)clock_gettime(CLOCK_MONOTONIC, &guard->deadline); // cannot fail for this clock
        guard->deadline.tv_sec += (time_t)(limit_ms / 1000);
        guard->deadline.tv_nsec += (long)(limit_ms % 1000) * 1000000;
        if (guard->deadline.tv_nsec >= 1000000000) {
                guard->deadline.tv_nsec -= 1000000000;
                guard->deadline.tv_sec++;
        }
        (void)pthread_condattr_init(&attributes); // with glibc these cannot fail
        (void)pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
        (void)pthread_cond_init(&guard->wake, &attributes);
        (void)pthread_condattr_destroy(&attributes);
        (void)pthread_mutex_init(&guard->lock, NULL);
        if (pthread_create(&guard->thread, NULL, watch, guard) == 0)
                return guard;
        (void)pthread_cond_destroy(&guard->wake);
        (void)pthread_mutex_destroy(&guard->lock);
        free(guard);
        return NULL;
}

void cairn_stop_guard_destroy(struct cairn_stop_guard *guard)
{
        if (!guard)
                return;
        (void)pthread_mutex_lock(&guard->lock);
        assert(!guard->ended);
        guard->ended = true;
        (void)pthread_cond_signal(&guard->wake);
        (void)pthread_mutex_unlock(&guard->lock);
        (void)pthread_join(guard->thread, NULL);
        (void)pthread_cond_destroy(&guard->wake);
        (void)pthread_mutex_destroy(&guard->lock);
        free(guard);
}
