# libcairn: shared with a soname, and static; with a pkg-config file and a CMake package.
add_library(cairn_client_objects OBJECT ${CLIENT_SOURCES})
cairn_target(cairn_client_objects)
target_link_libraries(cairn_client_objects PUBLIC cairn_proto)

add_library(cairn_static STATIC $<TARGET_OBJECTS:cairn_client_objects>)
set_target_properties(cairn_static PROPERTIES OUTPUT_NAME cairn_client)
target_include_directories(cairn_static PUBLIC
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/client/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(cairn_static PUBLIC cairn_proto Threads::Threads)

# The installed archive stands alone: client and proto in one (`pkg-config --static --libs cairn`).
add_library(cairn_archive STATIC $<TARGET_OBJECTS:cairn_client_objects> $<TARGET_OBJECTS:cairn_proto>)
set_target_properties(cairn_archive PROPERTIES OUTPUT_NAME cairn)

add_library(cairn SHARED $<TARGET_OBJECTS:cairn_client_objects>)
set_target_properties(cairn PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0)
target_include_directories(cairn PUBLIC
  $<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/client/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(cairn PRIVATE cairn_proto Threads::Threads)
target_link_options(cairn PRIVATE -Wl,--exclude-libs,ALL)

install(TARGETS cairn EXPORT cairn-targets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS cairn_archive ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY client/include/cairn DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT cairn-targets NAMESPACE cairn:: FILE cairn-config.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
# Relative to the file, so that an installation under another prefix, or moved, still works.
file(RELATIVE_PATH CAIRN_PC_PREFIX "/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/")
string(REGEX REPLACE "/$" "" CAIRN_PC_PREFIX "${CAIRN_PC_PREFIX}")
configure_file(cmake/cairn.pc.in ${CMAKE_BINARY_DIR}/cairn.pc @ONLY)
install(FILES ${CMAKE_BINARY_DIR}/cairn.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
include(CMakePackageConfigHelpers)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/cairn-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_BINARY_DIR}/cairn-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/cairn)
