# The shim: its ranges, programs that know nothing of rampfs, and its protocol against a fake daemon.
set(shim_tests ${CMAKE_CURRENT_LIST_DIR})
rampfs_test(NAME ranges SOURCES ${shim_tests}/test_ranges.c ${CMAKE_SOURCE_DIR}/libramp/core/ranges.c LABELS quick)
target_include_directories(test_ranges PRIVATE ${CMAKE_SOURCE_DIR}/libramp)
rampfs_script_test(NAME shim_compat NO_MOUNTS COMMAND ${shim_tests}/compat.sh LABELS quick)

add_executable(shim_prog ${shim_tests}/shim_prog.c ${shim_tests}/shim_prog_map.c ${shim_tests}/shim_prog_crew.c
  ${shim_tests}/shim_prog_move.c)
set_target_properties(shim_prog PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(shim_prog PRIVATE rampfs_flags Threads::Threads ${CMAKE_DL_LIBS})
add_library(shim_plugin MODULE ${shim_tests}/shim_plugin.c)
set_target_properties(shim_plugin PROPERTIES PREFIX "" LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(shim_plugin PRIVATE rampfs_flags)
add_dependencies(shim_prog shim_plugin)
add_executable(shim_alloc ${shim_tests}/shim_alloc.c)
set_target_properties(shim_alloc PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(shim_alloc PRIVATE rampfs_flags Threads::Threads)
add_library(shim_early_lib SHARED ${shim_tests}/shim_early_lib.c)
set_target_properties(shim_early_lib PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(shim_early_lib PRIVATE rampfs_flags)
add_executable(shim_early ${shim_tests}/shim_early.c)
set_target_properties(shim_early PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(shim_early PRIVATE rampfs_flags shim_early_lib)
add_executable(as_service ${shim_tests}/as_service.c)
set_target_properties(as_service PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(as_service PRIVATE rampfs_flags)
foreach(part shim shim_stderr)
  rampfs_test(NAME ${part} SOURCES ${shim_tests}/test_${part}.c ${shim_tests}/shim_driver.c ${shim_tests}/fake_daemon.c
    NEEDS base PkgConfig::FUSE3)
  target_compile_definitions(test_${part} PRIVATE RAMPFS_RUN="$<TARGET_FILE:rampfs-run>" SHIM_PROG="$<TARGET_FILE:shim_prog>"
    SHIM_ALLOC="$<TARGET_FILE:shim_alloc>" SHIM_EARLY="$<TARGET_FILE:shim_early>" AS_SERVICE="$<TARGET_FILE:as_service>"
    RAMPFS_MIGRATE="$<TARGET_FILE:rampfs-migrate>" RAMPFS_NODE="$<TARGET_FILE:rampfs-node>")
  add_dependencies(test_${part} rampfs-run rampfs-migrate rampfs-node shim_prog shim_alloc shim_early as_service)
  # The shim runs in other processes, uninstrumented; the fixture's threads meet only in descriptors.
  set_tests_properties(${part} PROPERTIES ENVIRONMENT "TSAN_OPTIONS=report_bugs=0")
endforeach()
rampfs_script_test(NAME shim_mount COMMAND ${shim_tests}/shim_mount.sh TIMEOUT 600)
