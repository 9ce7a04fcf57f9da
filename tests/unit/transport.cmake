rampfs_test(NAME hmac SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hmac.c NEEDS base_crypto LABELS quick)
rampfs_test(NAME hello SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_hello.c NEEDS transport LABELS quick)
rampfs_test(NAME transport
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_transport.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
rampfs_test(NAME tcp
  SOURCES ${CMAKE_CURRENT_LIST_DIR}/test_tcp.c ${CMAKE_CURRENT_LIST_DIR}/transport_node.c
  NEEDS transport LABELS quick threads)
