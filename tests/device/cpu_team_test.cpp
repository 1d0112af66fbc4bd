#include <doctest/doctest.h>

#if defined(__linux__)
#include <sched.h>
#endif

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/device/cpu_team.hpp"

using namespace deepinfer;

TEST_CASE("every part of a region runs exactly once, for any number of threads and parts") {
  for (const std::int32_t threads : {1, 2, 3, 5}) {
    cpu_team team(threads);
    CHECK(team.threads() == threads);
    for (std::int32_t round = 0; round < 300; ++round) {
      const std::int32_t parts = round % 17;
      std::vector<std::int32_t> counts(17, 0);  // a part writes its own entry: no atomics needed
      struct region {
        std::vector<std::int32_t>* counts;
        std::int32_t expected;
      } shared{&counts, parts};
      team.run(
        parts,
        [](void* context, std::int32_t part, std::int32_t part_count) {
          auto& it = *static_cast<region*>(context);
          (*it.counts)[static_cast<std::size_t>(part)] += part_count == it.expected ? 1 : 1000;
        },
        &shared);
      for (std::int32_t part = 0; part < 17; ++part)
        REQUIRE(counts[static_cast<std::size_t>(part)] == (part < parts ? 1 : 0));
    }
  }
}

TEST_CASE("what parts wrote is visible after run, and what the caller wrote before is in them") {
  cpu_team team(3);
  const stream_ref stream{&team, nullptr};
  std::vector<std::int64_t> values(1000, 0);
  for (std::int64_t round = 1; round <= 200; ++round) {
    stream.for_ranges(1000, [&](std::int64_t begin, std::int64_t end) {
      for (auto i = begin; i < end; ++i) {
        auto& value = values[static_cast<std::size_t>(i)];
        value += round;
      }
    });
    std::int64_t sum = 0;
    for (const auto value : values) sum += value;
    REQUIRE(sum == 1000 * round * (round + 1) / 2);
  }
}

TEST_CASE("sleeping threads are woken, and run returns only when the slowest part has ended") {
  struct region {
    std::thread::id caller = std::this_thread::get_id();
    std::atomic<int> begun{0};
    std::atomic<int> ended{0};
  };
  const auto busy_for = [](std::chrono::microseconds time) {
    const auto until = std::chrono::steady_clock::now() + time;
    while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
  };
  cpu_team team(4);
  for (int round = 0; round < 20; ++round) {
    busy_for(std::chrono::microseconds(200));  // every worker has given up spinning
    region shared;
    team.run(
      4,
      [](void* context, std::int32_t, std::int32_t) {
        auto& it = *static_cast<region*>(context);
        ++it.begun;
        while (it.begun < 4) std::this_thread::yield();  // ends only if four threads run
        if (std::this_thread::get_id() != it.caller) {
          const auto until = std::chrono::steady_clock::now() + std::chrono::microseconds(500);
          while (std::chrono::steady_clock::now() < until) std::this_thread::yield();
        }
        ++it.ended;
      },
      &shared);
    REQUIRE(shared.ended == 4);
  }
}

TEST_CASE("a region inside a part runs on that thread alone") {
  cpu_team team(3);
  struct nested {
    cpu_team* team;
    std::atomic<int> inner{0};
  } shared{&team};
  team.run(
    5,
    [](void* context, std::int32_t, std::int32_t) {
      auto& it = *static_cast<nested*>(context);
      it.team->run(
        4, [](void* inside, std::int32_t, std::int32_t) { ++static_cast<nested*>(inside)->inner; },
        &it);
    },
    &shared);
  CHECK(shared.inner == 20);
}

TEST_CASE("a team that has never run, or has just run, ends at once") {
  for (int round = 0; round < 50; ++round) {
    cpu_team team(3);
    std::atomic<int> ran{0};
    if (round % 2 == 1)
      team.run(
        7,
        [](void* context, std::int32_t, std::int32_t) {
          ++*static_cast<std::atomic<int>*>(context);
        },
        &ran);
    CHECK(ran == (round % 2 == 1 ? 7 : 0));
  }
}

TEST_CASE("threads spin only while there is a core for each") {
  CHECK(spin_ns_for(1) == 20'000);
  CHECK(spin_ns_for(100'000) == 0);
}

#if defined(__linux__)
TEST_CASE("a team as large as the machine keeps each thread on a core of its own, others roam") {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  REQUIRE(sched_getaffinity(0, sizeof(usable), &usable) == 0);
  const auto cores = static_cast<std::int32_t>(CPU_COUNT(&usable));
  const auto cores_of_threads = [](std::int32_t threads) {
    struct region {
      std::atomic<std::int32_t> begun{0};
      std::vector<std::int32_t> allowed;
    } shared;
    shared.allowed.resize(static_cast<std::size_t>(threads));
    // The caller is a thread of its own, so that its pinning ends with it.
    std::thread([&] {
      cpu_team team(threads, true);
      team.pin_caller();
      team.run(
        threads,
        [](void* context, std::int32_t part, std::int32_t parts) {
          auto& it = *static_cast<region*>(context);
          cpu_set_t mine;
          CPU_ZERO(&mine);
          sched_getaffinity(0, sizeof(mine), &mine);
          it.allowed[static_cast<std::size_t>(part)] = CPU_COUNT(&mine);
          // Nobody takes a second part before everybody has one.
          ++it.begun;
          while (it.begun < parts) std::this_thread::yield();
        },
        &shared);
    }).join();
    return shared.allowed;
  };
  for (const auto allowed : cores_of_threads(cores)) CHECK(allowed == 1);
  for (const auto allowed : cores_of_threads(cores + 1)) CHECK(allowed == cores);
}
#endif
