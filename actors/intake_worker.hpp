/// Intake worker: makes requests of long prompts, one after the other, in a thread of its own, so
/// that chunks of others do not wait for it. It leaves with the gateway that owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "actors/caf_compat.hpp"
#include "actors/request_intake.hpp"
#include "messages/client.hpp"

namespace deepinfer {

struct intake_job {
  generate_request asked;
  std::uint64_t drawn_seed = 0;
};

struct intake_outcome {
  result<accepted_request> accepted;
  std::int64_t took_us = 0;
};

using intake_job_ptr = std::shared_ptr<const intake_job>;
using intake_outcome_ptr = std::shared_ptr<intake_outcome>;

using intake_worker_actor = caf::typed_actor<rpc<intake_outcome_ptr, intake_job_ptr>>;

intake_worker_actor::behavior_type intake_worker(intake_worker_actor::pointer self,
                                                 std::shared_ptr<const request_intake> intake,
                                                 caf::actor_addr owner);

/// Reads the request and measures how long that takes.
intake_outcome take_in(const request_intake& intake, const generate_request& asked,
                       std::uint64_t drawn_seed);

}  // namespace deepinfer

CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::intake_job_ptr)
CAF_ALLOW_UNSAFE_MESSAGE_TYPE(deepinfer::intake_outcome_ptr)
