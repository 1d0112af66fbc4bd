/// A drafter that knows what its sequences will say, and is right as often as it is told to be.
#pragma once

#include "runner_fixture.hpp"
#include "runtime/model/drafter.hpp"

namespace deepinfer::test {

class forced_drafter final : public drafter {
public:
  forced_drafter(const forced_drafts& given, std::int32_t vocab) : given_(given), vocab_(vocab) {}

  bool has_confidences() const override { return true; }
  void draft(const stream_ref& stream, const draft_rows& rows) override;

private:
  std::int32_t true_id(std::uint64_t seed, std::int32_t position) const;

  const forced_drafts& given_;
  std::int32_t vocab_;
};

}  // namespace deepinfer::test
