# Real verbs in guests with software RDMA. Alone: a guest takes a processor, and its clock is this machine's.
add_executable(bytes rdma/bytes.c)
set_target_properties(bytes PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(bytes PRIVATE rampfs_flags)
# rdma_test(NAME WRAP FUNCTION...): of those functions of the libraries and of queue.c it has its own.
function(rdma_test name)
  cmake_parse_arguments(t "" "" "WRAP" ${ARGN})
  add_executable(${name} rdma/${name}.c rdma/rdma_world.c unit/transport_node.c)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
  target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_LIST_DIR}/.. ${CMAKE_CURRENT_LIST_DIR})
  target_link_libraries(${name} PRIVATE transport PkgConfig::CHECK rampfs_flags rampfs_sanitize)
  foreach(function ${t_WRAP})
    target_link_options(${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()
rdma_test(test_rdma_keys WRAP queue_post)
rdma_test(test_rdma_input WRAP rdma_create_qp rdma_connect ibv_create_cq)
# All that a guest runs.
add_custom_target(rdma_guest DEPENDS bytes pages hold oracle test_rdma_keys test_rdma_input rampfs mkfs.rampfs rampfs-run rampfs-migrate rampfs-status rampfs-node rampfs_preload)
add_test(NAME rdma COMMAND tests/rdma/run.sh WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(rdma PROPERTIES TIMEOUT 1800 RUN_SERIAL ON SKIP_RETURN_CODE 77
  ENVIRONMENT "RAMPFS_BUILD=${CMAKE_BINARY_DIR}")
