// A pool of threads, a queue to them and a queue back.
#include "daemon/scorer.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>

#include "daemon/secret.h"
#include "proto/status.h"

enum {
        SCRATCH_KEEP_BYTES_MAX = 64 * 1024 * 1024
};

struct queue {
        struct cairn_work *head;
        struct cairn_work *tail;
};

struct cairn_scorer {
        struct cairn_executor executor; // first: the two are one pointer
        pthread_mutex_t mutex;          // guards todo, done and stopping
        pthread_cond_t wake;
        struct queue todo;
        struct queue done;
        bool stopping;
        uint64_t pending; // loop thread
        uv_async_t async;
        uint64_t scratch_bytes;
        uint32_t threads_count;
        void (*on_closed)(void *arg);
        void *on_closed_arg;
        pthread_t threads[];
};

// What a scorer thread owns: its scratch. Thread-local, since work does not know who runs it.
static _Thread_local struct {
        void *bytes;
        size_t size;
        size_t size_max;
} scratch;

static void push(struct queue *queue, struct cairn_work *work)
{
        work->next = NULL;
        if (queue->tail)
                queue->tail->next = work;
        else
                queue->head = work;
        queue->tail = work;
}

static struct cairn_work *pop(struct queue *queue)
{
        struct cairn_work *work = queue->head;

        if (!work)
                return NULL;
        queue->head = work->next;
        if (!queue->head)
                queue->tail = NULL;
        work->next = NULL;
        return work;
}

static void release_scratch(void)
{
        free(scratch.bytes);
        scratch.bytes = NULL;
        scratch.size = 0;
}

void *cairn_scorer_scratch(size_t bytes)
{
        size_t rounded;

        if (bytes <= scratch.size)
                return scratch.bytes;
        if (bytes > scratch.size_max)
                return NULL;
        rounded = (bytes + 4095) & ~(size_t)4095;
        release_scratch();
        scratch.bytes = cairn_secret_alloc(rounded);
        scratch.size = scratch.bytes ? rounded : 0;
        return scratch.bytes;
}

static void *scorer_main(void *arg)
{
        struct cairn_scorer *scorer = arg;

        scratch.size_max = scorer->scratch_bytes;
        (void)pthread_setname_np(pthread_self(), "scorer"); // for people; else it is cairnd
        (void)pthread_mutex_lock(&scorer->mutex);           // fails only when misused
        for (;;) {
                struct cairn_work *work;

                while (!scorer->todo.head && !scorer->stopping)
                        (void)pthread_cond_wait(&scorer->wake, &scorer->mutex); // as above
                work = pop(&scorer->todo);
                if (!work)
                        break;
                (void)pthread_mutex_unlock(&scorer->mutex);
                work->run(work);
                if (scratch.size > SCRATCH_KEEP_BYTES_MAX)
                        release_scratch();
                (void)pthread_mutex_lock(&scorer->mutex);
                push(&scorer->done, work);
                (void)uv_async_send(&scorer->async); // fails only when misused
        }
        (void)pthread_mutex_unlock(&scorer->mutex);
        release_scratch();
        return NULL;
}

static void on_async(uv_async_t *async)
{
        struct cairn_scorer *scorer = async->data;
        struct queue done;
        struct cairn_work *work;

        (void)pthread_mutex_lock(&scorer->mutex);
        done = scorer->done;
        scorer->done = (struct queue){0};
        (void)pthread_mutex_unlock(&scorer->mutex);
        while ((work = pop(&done))) {
                assert(scorer->pending > 0);
                scorer->pending--;
                work->on_done(work);
        }
}

void cairn_scorer_submit(struct cairn_scorer *scorer, struct cairn_work *work)
{
        assert(work->run && work->on_done);
        (void)pthread_mutex_lock(&scorer->mutex);
        assert(!scorer->stopping);
        push(&scorer->todo, work);
        (void)pthread_cond_signal(&scorer->wake);
        (void)pthread_mutex_unlock(&scorer->mutex);
        scorer->pending++;
}

static void executor_submit(struct cairn_executor *executor, struct cairn_work *work)
{
        cairn_scorer_submit((struct cairn_scorer *)executor, work);
}

// An errno. The thread runs on cpus[index], if there are any.
static int start_thread(struct cairn_scorer *scorer, uint32_t index,
                        const struct cairn_cpu_list *cpus)
{
        pthread_attr_t attributes;
        cpu_set_t set;
        int error = pthread_attr_init(&attributes);

        if (error != 0)
                return error;
        if (cpus && cpus->count > 0) {
                CPU_ZERO(&set);
                CPU_SET(cpus->cpus[index % cpus->count], &set);
                error = pthread_attr_setaffinity_np(&attributes, sizeof(set), &set);
        }
        if (error == 0)
                error = pthread_create(&scorer->threads[index], &attributes, scorer_main, scorer);
        (void)pthread_attr_destroy(&attributes); // fails only when misused
        return error;
}

// Signals are the loop thread's. Fewer threads than asked for will do; other processors will not.
static int start_threads(struct cairn_scorer *scorer, uint32_t threads,
                         const struct cairn_cpu_list *cpus)
{
        sigset_t all;
        sigset_t before;
        int error = 0;

        (void)sigfillset(&all);
        (void)pthread_sigmask(SIG_SETMASK, &all, &before);
        while (scorer->threads_count < threads && error == 0) {
                error = start_thread(scorer, scorer->threads_count, cpus);
                if (error == 0)
                        scorer->threads_count++;
        }
        (void)pthread_sigmask(SIG_SETMASK, &before, NULL);
        if (error == EINVAL)
                return CAIRN_EINVAL;
        return scorer->threads_count > 0 ? CAIRN_OK : cairn_status_from_errno(error);
}

int cairn_scorer_create(uv_loop_t *loop, uint32_t threads, uint64_t scratch_bytes,
                        const struct cairn_cpu_list *cpus, struct cairn_scorer **ret_scorer)
{
        struct cairn_scorer *scorer =
            calloc(1, sizeof(*scorer) + threads * sizeof(scorer->threads[0]));
        int status;

        assert(threads > 0);
        if (!scorer)
                return CAIRN_ENOMEM;
        if (uv_async_init(loop, &scorer->async, on_async) != 0) {
                free(scorer);
                return CAIRN_ENOMEM;
        }
        scorer->async.data = scorer;
        scorer->scratch_bytes = scratch_bytes;
        scorer->executor.submit = executor_submit;
        (void)pthread_mutex_init(&scorer->mutex, NULL); // default attributes: cannot fail
        (void)pthread_cond_init(&scorer->wake, NULL);   // as above
        status = start_threads(scorer, threads, cpus);
        if (status != CAIRN_OK) {
                cairn_scorer_destroy(scorer, NULL, NULL);
                return status;
        }
        *ret_scorer = scorer;
        return CAIRN_OK;
}

static void on_async_closed(uv_handle_t *handle)
{
        struct cairn_scorer *scorer = handle->data;

        if (scorer->on_closed)
                scorer->on_closed(scorer->on_closed_arg);
        (void)pthread_cond_destroy(&scorer->wake);
        (void)pthread_mutex_destroy(&scorer->mutex);
        free(scorer);
}

void cairn_scorer_destroy(struct cairn_scorer *scorer, void (*on_closed)(void *arg), void *arg)
{
        if (!scorer)
                return;
        assert(scorer->pending == 0);
        (void)pthread_mutex_lock(&scorer->mutex);
        scorer->stopping = true;
        (void)pthread_cond_broadcast(&scorer->wake);
        (void)pthread_mutex_unlock(&scorer->mutex);
        for (uint32_t i = 0; i < scorer->threads_count; i++)
                (void)pthread_join(scorer->threads[i], NULL); // fails only when misused
        scorer->on_closed = on_closed;
        scorer->on_closed_arg = arg;
        uv_close((uv_handle_t *)&scorer->async, on_async_closed);
}

struct cairn_executor *cairn_scorer_executor(struct cairn_scorer *scorer)
{
        return &scorer->executor;
}

uint32_t cairn_scorer_threads(const struct cairn_scorer *scorer)
{
        return scorer->threads_count;
}

uint64_t cairn_scorer_pending(const struct cairn_scorer *scorer)
{
        return scorer->pending;
}
