rampfs_script_test(NAME model_transfer COMMAND ${CMAKE_SOURCE_DIR}/tests/model/transfer.sh TIMEOUT 600)
