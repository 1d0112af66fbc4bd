# Black-box tests of the service with real clients (tests/service): Python from build/venv, which
# tests/service/setup_venv.sh makes. Without it they are skipped. Sanitized builds run the odd inputs
# only: the rest would take too long there.
function(di_service_test name)
  add_test(NAME "service: ${name}"
    COMMAND ${PROJECT_SOURCE_DIR}/tests/service/run.sh $<TARGET_FILE:deepinfer> ${ARGN})
  set_tests_properties("service: ${name}" PROPERTIES
    SKIP_RETURN_CODE 77 TIMEOUT 1200 LABELS service)
endfunction()

di_service_test("odd inputs are answered and hurt nobody" test_reports_inputs.py)
if(NOT DI_SANITIZE_ADDRESS AND NOT DI_SANITIZE_THREAD)
  di_service_test("OpenAI's client and every byte of a stream" test_openai_sdk.py test_sse.py
    test_reports_protocol.py test_reports_text.py)
  di_service_test("cancels, scheduling and transport" test_reports_cancel.py test_reports_engine.py
    test_reports_transport.py)
  di_service_test("properties, schema, metrics and trace" test_properties.py test_openapi.py
    test_observability.py)
  di_service_test("several processes" test_cluster.py test_peers.py test_soak.py)
  di_service_test("every probe holds, and fails where its feature is broken" probe --self-test)
endif()
