/// Corrects two habits of the actor library's TLS. Both corrections are definitions of functions
/// that the library would find elsewhere; to name `tls_carrier` links them into a program.
#pragma once

#include <memory>

struct ssl_ctx_st;

namespace deepinfer {

/// A base of the settings of an actor system, whose TLS connections then all begin from `context`.
/// Without one the library reads the files of its settings again for each connection.
class tls_carrier {
public:
  tls_carrier();
  virtual ~tls_carrier();
  tls_carrier(const tls_carrier&) = delete;
  tls_carrier& operator=(const tls_carrier&) = delete;

  std::shared_ptr<ssl_ctx_st> context;
};

}  // namespace deepinfer
