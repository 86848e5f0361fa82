# proto/: messages by protoc-c (only codec.c sees them), frames, keys, checksums.
find_program(PROTOC_C NAMES protoc-c REQUIRED)
set(PROTO_OUT ${CMAKE_BINARY_DIR}/generated)
file(MAKE_DIRECTORY ${PROTO_OUT})
add_custom_command(
  OUTPUT ${PROTO_OUT}/cairn.pb-c.c ${PROTO_OUT}/cairn.pb-c.h
  COMMAND ${PROTOC_C} --proto_path=${CMAKE_SOURCE_DIR}/proto --c_out=${PROTO_OUT}
    ${CMAKE_SOURCE_DIR}/proto/cairn.proto
  DEPENDS ${CMAKE_SOURCE_DIR}/proto/cairn.proto)
set_source_files_properties(${PROTO_OUT}/cairn.pb-c.c PROPERTIES COMPILE_OPTIONS "-w")
file(GLOB PROTO_SOURCES CONFIGURE_DEPENDS proto/*.c)
add_library(cairn_proto STATIC ${PROTO_SOURCES} ${PROTO_OUT}/cairn.pb-c.c)
cairn_target(cairn_proto)
target_include_directories(cairn_proto PUBLIC ${PROTO_OUT})
target_link_libraries(cairn_proto PUBLIC PkgConfig::PROTOBUFC PkgConfig::XXHASH PkgConfig::SODIUM)
