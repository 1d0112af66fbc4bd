/// A deleter for objects of a C library: `std::unique_ptr<X509, freed_by<X509_free>>`.
#pragma once

namespace deepinfer {

template <auto Free>
struct freed_by {
  template <class Object>
  void operator()(Object* it) const {
    Free(it);
  }
};

}  // namespace deepinfer
