/// CAF 0.17 calls OpenSSL in a way that lets one connection break others, and neither it nor its
/// settings offer a place to mend that. A definition in a program comes before those of the shared
/// libraries, so the calls of libcaf_openssl arrive here, and go on to the functions they meant.
///
/// 1. OpenSSL wants a thread's queue of errors empty before it reads, writes or shakes hands:
///    SSL_get_error takes what it finds there for the outcome of the last call. CAF never empties
///    it, and one thread has all connections, so that whatever ended one of them, as a port scan,
///    ended all others too. For anybody else in the process an empty queue does no harm.
/// 2. CAF reads certificate and key for each connection and throws where it can't: files that were
///    replaced, or too many open ones, ended the process.
///
/// This can go when the oldest CAF that is supported calls ERR_clear_error() before these functions
/// and takes a context that is made once.
#include "actors/openssl_guard.hpp"

#include <dlfcn.h>

#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/openssl/session.hpp>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include "runtime/base/check.hpp"

namespace deepinfer {
namespace {

/// What would be called without this file.
template <class Function>
Function* meant(const char* name) {
  void* found = dlsym(RTLD_NEXT, name);
  DI_CHECK(found != nullptr, "{} is in no shared library", name);
  return reinterpret_cast<Function*>(found);
}

}  // namespace

tls_carrier::tls_carrier() = default;
tls_carrier::~tls_carrier() = default;

}  // namespace deepinfer

#define DI_EXPORTED __attribute__((visibility("default")))

extern "C" {

DI_EXPORTED int SSL_read(SSL* ssl, void* bytes, int count) {
  static auto* const next = deepinfer::meant<int(SSL*, void*, int)>("SSL_read");
  ERR_clear_error();
  return next(ssl, bytes, count);
}

DI_EXPORTED int SSL_write(SSL* ssl, const void* bytes, int count) {
  static auto* const next = deepinfer::meant<int(SSL*, const void*, int)>("SSL_write");
  ERR_clear_error();
  return next(ssl, bytes, count);
}

DI_EXPORTED int SSL_accept(SSL* ssl) {
  static auto* const next = deepinfer::meant<int(SSL*)>("SSL_accept");
  ERR_clear_error();
  return next(ssl);
}

DI_EXPORTED int SSL_connect(SSL* ssl) {
  static auto* const next = deepinfer::meant<int(SSL*)>("SSL_connect");
  ERR_clear_error();
  return next(ssl);
}

}  // extern "C"

/// The owner of each session frees what it was given, once.
DI_EXPORTED SSL_CTX* caf::openssl::session::create_ssl_context() {
  const auto* carrier = dynamic_cast<const deepinfer::tls_carrier*>(&sys_.config());
  if (carrier != nullptr && carrier->context) {
    SSL_CTX_up_ref(carrier->context.get());
    return carrier->context.get();
  }
  // An actor system of somebody else in this process.
  static auto* const next =
    deepinfer::meant<SSL_CTX*(session*)>("_ZN3caf7openssl7session18create_ssl_contextEv");
  return next(this);
}
