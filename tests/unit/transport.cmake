rampfs_test(NAME hmac SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hmac.c NEEDS base_crypto LABELS quick)
rampfs_test(NAME hello SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hello.c NEEDS transport LABELS quick)
rampfs_test(NAME transport
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_transport.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
rampfs_test(NAME tcp
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tcp.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
rampfs_test(NAME tcp_addresses
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tcp_addresses.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
# Names that have two addresses.
target_link_options(test_tcp_addresses PRIVATE -Wl,--wrap=getaddrinfo)
rampfs_test(NAME verbs_parts SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_verbs_parts.c NEEDS transport LABELS quick)
rampfs_test(NAME verbs
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_verbs.c ${CMAKE_CURRENT_LIST_DIR}/fake_rdma.c
          ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
# fake_rdma.c defines the libraries' calls, and the device's file.
target_link_options(test_verbs PRIVATE -Wl,--wrap=access)
