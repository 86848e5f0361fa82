// Where storage sends work on bulk bytes (checksums, copies): the daemon's scorers, or a test's
// inline loop. May be used by: storage, daemon, tests. May use: nothing.
#ifndef CAIRN_EXECUTOR_H
#define CAIRN_EXECUTOR_H

// A request, embedded in what it works for and pinned until `on_done` has run. `run` is called once
// on any thread; then `on_done` once on the loop thread, never inside submit.
struct cairn_work {
        void (*run)(struct cairn_work *work);
        void (*on_done)(struct cairn_work *work);
        struct cairn_work *next; // the executor's
};

// Loop thread only. Submit may not fail: work is bounded by what storage and the daemon admit.
struct cairn_executor {
        void (*submit)(struct cairn_executor *executor, struct cairn_work *work);
};

#endif
