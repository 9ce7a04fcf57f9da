rampfs_test(NAME park SOURCES mount/test_park.c NEEDS mount LABELS quick TIMEOUT 120)
rampfs_test(NAME handover SOURCES mount/test_handover.c NEEDS mount LABELS quick TIMEOUT 120)

# Programs for real mounts, run by the scripts beside them.
foreach(name test_ops kill_load)
  add_executable(${name} mount/${name}.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE base PkgConfig::CHECK Threads::Threads rampfs_flags)
endforeach()
rampfs_script_test(NAME ops COMMAND tests/mount/ops.sh TIMEOUT 300)
rampfs_script_test(NAME kill_load COMMAND tests/mount/kill_load.sh TIMEOUT 600)
rampfs_script_test(NAME passthrough COMMAND tests/mount/passthrough.sh TIMEOUT 300)
rampfs_script_test(NAME small_pages COMMAND tests/mount/small_pages.sh TIMEOUT 300)
rampfs_script_test(NAME faults COMMAND tests/mount/faults.sh TIMEOUT 300)
