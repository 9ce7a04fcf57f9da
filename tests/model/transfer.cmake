rampfs_computing_test(NAME model_transfer CHAIN model COMMAND ${CMAKE_SOURCE_DIR}/tests/model/transfer.sh
  TIMEOUT 3600)
