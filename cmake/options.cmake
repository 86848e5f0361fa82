# Compiler flags shared by all targets, and the third-party libraries.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
include(CheckPIESupported)
check_pie_supported(LANGUAGES C)
pkg_check_modules(PROTOBUFC REQUIRED IMPORTED_TARGET libprotobuf-c)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
pkg_check_modules(SODIUM REQUIRED IMPORTED_TARGET libsodium)
pkg_check_modules(UV REQUIRED IMPORTED_TARGET libuv)
pkg_check_modules(LMDB REQUIRED IMPORTED_TARGET lmdb)
pkg_check_modules(URING REQUIRED IMPORTED_TARGET liburing)
pkg_check_modules(INIH REQUIRED IMPORTED_TARGET inih)
pkg_check_modules(SYSTEMD REQUIRED IMPORTED_TARGET libsystemd)
pkg_check_modules(MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(CURSES IMPORTED_TARGET ncursesw)
pkg_check_modules(SECCOMP IMPORTED_TARGET libseccomp)

include(CheckIncludeFile)
check_include_file(sys/sdt.h CAIRN_SDT_FOUND)

add_library(cairn_flags INTERFACE)
if(CAIRN_SDT_FOUND) # else there are no static probes
  target_compile_definitions(cairn_flags INTERFACE CAIRN_HAVE_SDT)
endif()
target_compile_definitions(cairn_flags INTERFACE _GNU_SOURCE CAIRN_VERSION="${PROJECT_VERSION}")
target_compile_options(cairn_flags INTERFACE -Wall -Wextra -Werror -Wshadow -Wstrict-prototypes
  -Wmissing-prototypes -Wpointer-arith -Wvla -fno-strict-aliasing -ffp-contract=off
  -fno-omit-frame-pointer -fstack-protector-strong
  # The same bytes wherever the source and the build folder lie (deploy/reproducible).
  -ffile-prefix-map=${CMAKE_SOURCE_DIR}=. -ffile-prefix-map=${CMAKE_BINARY_DIR}=build)
# Asserts stay in production: NDEBUG is never defined.
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELEASE "${CMAKE_C_FLAGS_RELEASE}")
string(REPLACE "-DNDEBUG" "" CMAKE_C_FLAGS_RELWITHDEBINFO "${CMAKE_C_FLAGS_RELWITHDEBINFO}")
if(CAIRN_SANITIZE STREQUAL "address")
  target_compile_options(cairn_flags INTERFACE -fsanitize=address,undefined -fno-sanitize-recover=all)
  target_link_options(cairn_flags INTERFACE -fsanitize=address,undefined)
elseif(CAIRN_SANITIZE STREQUAL "thread")
  target_compile_options(cairn_flags INTERFACE -fsanitize=thread)
  target_link_options(cairn_flags INTERFACE -fsanitize=thread)
elseif(CMAKE_BUILD_TYPE MATCHES "Rel")
  # Checked on the built files by tests/integration/test_hardening.py.
  target_compile_options(cairn_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=3
    -fstack-clash-protection)
  target_link_options(cairn_flags INTERFACE -Wl,-z,relro,-z,now,-z,noexecstack,--as-needed)
endif()

function(cairn_target name)
  target_include_directories(${name} PRIVATE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/client/include)
  target_link_libraries(${name} PRIVATE cairn_flags)
endfunction()

# Kernels alone get the flags of their instruction set; what probes the CPU is built with the baseline.
function(cairn_isa_flags sources)
  if(NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|amd64|AMD64")
    return()
  endif()
  foreach(file IN LISTS sources)
    if(file MATCHES "_avx2\\.c$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS "-O3;-mavx2;-mfma;-mf16c;-mbmi2")
    elseif(file MATCHES "_avx512\\.c$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "-O3;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vnni;-mavx512vbmi;-mavx512vbmi2;-mf16c;-mfma;-mbmi2")
    elseif(file MATCHES "_amx\\.c$")
      set_source_files_properties(${file} PROPERTIES COMPILE_OPTIONS
        "-mamx-tile;-mamx-int8;-mavx512f;-mavx512bw;-mavx512vl;-mavx512dq;-mavx512vbmi")
    endif()
  endforeach()
endfunction()
