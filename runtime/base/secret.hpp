/// Keys of clients: compared so that the time it takes says nothing about how much was right.
///
/// A key is listed as `KEY`, or as `NAME=KEY` where its holder has a name: that of a tenant, whose
/// requests they are then, whatever they say.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace deepinfer {

/// Takes time by the length of what was `offered` alone.
bool same_secret(std::string_view kept, std::string_view offered);

/// The holder's name ("" where the key has none); nothing where no listed key is the one offered.
/// Every key of the list is compared.
std::optional<std::string> holder_of(std::span<const std::string> keys, std::string_view offered);

}  // namespace deepinfer
