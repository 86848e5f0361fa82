// A guard is a jump's target, the thread's own. The handler is set once, and hands what is not the
// guard's to the default: another fault ends the process as before.
#include "storage/catalog_guard.h"

#include <assert.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stddef.h>

#include "proto/status.h"

static _Thread_local sigjmp_buf *volatile target;

void cairn_catalog_guard_end(void)
{
        if (target)
                siglongjmp(*target, 1);
}

static void on_fault(int number)
{
        cairn_catalog_guard_end();
        (void)signal(number, SIG_DFL); // and the same instruction faults again
}

static void set_handler(void)
{
        struct sigaction action = {.sa_handler = on_fault};

        (void)sigemptyset(&action.sa_mask);
        (void)sigaction(SIGBUS, &action, NULL); // cannot fail: the number is one
}

int cairn_catalog_guard(int (*run)(void *arg), void *arg)
{
        static pthread_once_t once = PTHREAD_ONCE_INIT;
        sigjmp_buf here;
        int status;

        assert(!target);
        (void)pthread_once(&once, set_handler);
        if (sigsetjmp(here, 1) != 0) {
                target = NULL;
                return CAIRN_EIO;
        }
        target = &here;
        status = run(arg);
        target = NULL;
        return status;
}
