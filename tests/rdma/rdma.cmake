# Real verbs in guests with software RDMA. Alone: a guest takes a processor, and its clock is this machine's.
add_executable(bytes rdma/bytes.c)
set_target_properties(bytes PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_link_libraries(bytes PRIVATE rampfs_flags)
add_executable(test_rdma_keys rdma/test_rdma_keys.c unit/transport_node.c)
set_target_properties(test_rdma_keys PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/tests)
target_include_directories(test_rdma_keys PRIVATE ${CMAKE_CURRENT_LIST_DIR}/..)
target_link_libraries(test_rdma_keys PRIVATE transport PkgConfig::CHECK rampfs_flags rampfs_sanitize)
target_link_options(test_rdma_keys PRIVATE -Wl,--wrap=queue_post)
# All that a guest runs.
add_custom_target(rdma_guest DEPENDS bytes test_rdma_keys rampfs mkfs.rampfs rampfs-run rampfs-migrate rampfs-status rampfs-node rampfs_preload)
add_test(NAME rdma COMMAND tests/rdma/run.sh WORKING_DIRECTORY ${CMAKE_SOURCE_DIR})
set_tests_properties(rdma PROPERTIES TIMEOUT 1800 RUN_SERIAL ON SKIP_RETURN_CODE 77
  ENVIRONMENT "RAMPFS_BUILD=${CMAKE_BINARY_DIR}")
