/// Reads server-sent events from bytes as they come: the `data` of each event; comments and other
/// fields are skipped. Source: the HTML standard, "server-sent events".
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace deepinfer {

class event_reader {
public:
  explicit event_reader(std::function<void(std::string_view data)> on_data)
    : on_data_(std::move(on_data)) {}

  void feed(std::string_view bytes);

private:
  void take_line(std::string_view line);

  std::function<void(std::string_view)> on_data_;
  std::string line_;
  std::string data_;
  bool has_data_ = false;
};

}  // namespace deepinfer
