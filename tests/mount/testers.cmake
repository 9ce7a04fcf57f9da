# Random testers on real mounts: strangers' programs, not sanitized; the shim is loaded into fsx.
add_executable(fsx mount/fsx.c mount/fsx_worker.c mount/fsx_driver.c)
foreach(name fsx)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_link_libraries(${name} PRIVATE rampfs_flags)
endforeach()
rampfs_script_test(NAME fsx COMMAND tests/mount/fsx.sh TIMEOUT 600)
