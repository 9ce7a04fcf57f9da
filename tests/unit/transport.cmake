rampfs_test(NAME hmac SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hmac.c NEEDS base_crypto LABELS quick)
rampfs_test(NAME hello SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hello.c NEEDS transport LABELS quick)
rampfs_test(NAME transport
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_transport.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
target_link_options(test_transport PRIVATE -Wl,--wrap=sendmsg)
rampfs_test(NAME tcp
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tcp.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
rampfs_test(NAME tcp_addresses
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tcp_addresses.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
# Names that have two addresses.
target_link_options(test_tcp_addresses PRIVATE -Wl,--wrap=getaddrinfo)
rampfs_test(NAME verbs_parts SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_verbs_parts.c NEEDS transport LABELS quick)
# fake_rdma.c defines the libraries' calls, the device's file, and the time of threads that connect.
# verbs_test(NAME WRAP FUNCTION...)
function(verbs_test name)
  cmake_parse_arguments(t "" "" "WRAP" ${ARGN})
  set(unit ${CMAKE_SOURCE_DIR}/tests/unit)
  rampfs_test(NAME ${name}
    SOURCES ${unit}/test_${name}.c ${unit}/verbs_world.c ${unit}/fake_rdma.c ${unit}/transport_node.c
    NEEDS transport LABELS quick threads)
  foreach(function access clock_gettime log_line ${t_WRAP})
    target_link_options(test_${name} PRIVATE -Wl,--wrap=${function})
  endforeach()
endfunction()
verbs_test(verbs)
verbs_test(verbs_dial WRAP peer_send)
