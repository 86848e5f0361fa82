// Checks while it compiles that the numbers of the public header are those of the wire.
#include "cairn/cairn.h"

// It would indent these lines anew each time.
// clang-format off
#define NUMBERS(X)                                                                               \
        X(OK) X(EINVAL) X(EPROTO) X(EVERSION) X(EUNSUPPORTED) X(ENOENT) X(EEXIST) X(ECORRUPT)    \
        X(ENOSPC) X(ENOMEM) X(EBUSY) X(EAGAIN) X(EDEADLINE) X(ECANCELLED) X(EIO) X(EPERM)        \
        X(EMISMATCH) X(ERANGE) X(ESTALE) X(EHELD) X(EDISCONNECTED) X(EINTERNAL) X(STATUS_COUNT)  \
        X(SPACE_ATTENTION) X(SPACE_OPAQUE) X(DTYPE_NONE) X(DTYPE_F32) X(DTYPE_F16) X(DTYPE_BF16) \
        X(DTYPE_F8E4M3) X(DTYPE_F8E5M2) X(ROW_RAW) X(ROW_Q8) X(ROW_Q4) X(ROW_NONE)               \
        X(ROPE_APPLIED) X(ROPE_NOT_APPLIED) X(ROPE_NONE)
// clang-format on

// The public numbers are kept under other names; then the wire's headers take the names.
#define KEEP(name) PUBLIC_##name = CAIRN_##name,
enum public_number {
        NUMBERS(KEEP) PUBLIC_KEY_BYTES = sizeof(struct cairn_key)
};

#define cairn_status           wire_status
#define cairn_key              wire_key
#define cairn_space_kind       wire_space_kind
#define cairn_dtype            wire_dtype
#define cairn_row_codec        wire_row_codec
#define cairn_rope             wire_rope
#define CAIRN_OK               WIRE_OK
#define CAIRN_EINVAL           WIRE_EINVAL
#define CAIRN_EPROTO           WIRE_EPROTO
#define CAIRN_EVERSION         WIRE_EVERSION
#define CAIRN_EUNSUPPORTED     WIRE_EUNSUPPORTED
#define CAIRN_ENOENT           WIRE_ENOENT
#define CAIRN_EEXIST           WIRE_EEXIST
#define CAIRN_ECORRUPT         WIRE_ECORRUPT
#define CAIRN_ENOSPC           WIRE_ENOSPC
#define CAIRN_ENOMEM           WIRE_ENOMEM
#define CAIRN_EBUSY            WIRE_EBUSY
#define CAIRN_EAGAIN           WIRE_EAGAIN
#define CAIRN_EDEADLINE        WIRE_EDEADLINE
#define CAIRN_ECANCELLED       WIRE_ECANCELLED
#define CAIRN_EIO              WIRE_EIO
#define CAIRN_EPERM            WIRE_EPERM
#define CAIRN_EMISMATCH        WIRE_EMISMATCH
#define CAIRN_ERANGE           WIRE_ERANGE
#define CAIRN_ESTALE           WIRE_ESTALE
#define CAIRN_EHELD            WIRE_EHELD
#define CAIRN_EDISCONNECTED    WIRE_EDISCONNECTED
#define CAIRN_EINTERNAL        WIRE_EINTERNAL
#define CAIRN_STATUS_COUNT     WIRE_STATUS_COUNT
#define CAIRN_SPACE_ATTENTION  WIRE_SPACE_ATTENTION
#define CAIRN_SPACE_OPAQUE     WIRE_SPACE_OPAQUE
#define CAIRN_DTYPE_NONE       WIRE_DTYPE_NONE
#define CAIRN_DTYPE_F32        WIRE_DTYPE_F32
#define CAIRN_DTYPE_F16        WIRE_DTYPE_F16
#define CAIRN_DTYPE_BF16       WIRE_DTYPE_BF16
#define CAIRN_DTYPE_F8E4M3     WIRE_DTYPE_F8E4M3
#define CAIRN_DTYPE_F8E5M2     WIRE_DTYPE_F8E5M2
#define CAIRN_ROW_RAW          WIRE_ROW_RAW
#define CAIRN_ROW_Q8           WIRE_ROW_Q8
#define CAIRN_ROW_Q4           WIRE_ROW_Q4
#define CAIRN_ROW_NONE         WIRE_ROW_NONE
#define CAIRN_ROPE_APPLIED     WIRE_ROPE_APPLIED
#define CAIRN_ROPE_NOT_APPLIED WIRE_ROPE_NOT_APPLIED
#define CAIRN_ROPE_NONE        WIRE_ROPE_NONE

#include "proto/key.h"
#include "proto/limits.h"
#include "proto/space.h"
#include "proto/status.h"

#define EQUAL(name) \
        _Static_assert((int)PUBLIC_##name == (int)WIRE_##name, "CAIRN_" #name " of the wire");
NUMBERS(EQUAL)
_Static_assert((int)PUBLIC_KEY_BYTES == (int)CAIRN_KEY_BYTES, "size of a key");
_Static_assert((int)CAIRN_CONFIG_NAME_BYTES == (int)CAIRN_NAME_BYTES_MAX + 1, "size of a name");
_Static_assert((int)CAIRN_KEYS_A_CALL_MAX == (int)CAIRN_KEYS_MAX, "keys a request");
