#include <doctest/doctest.h>

#include "runtime/core/answer_deadline.hpp"

using namespace deepinfer;

TEST_CASE("one look at a time is asked for, however many answers are due") {
  answer_deadline it(100);
  CHECK(it.expect(0));
  CHECK_FALSE(it.expect(10));
  it.note_answer(20);
  CHECK_FALSE(it.expect(30));
  CHECK(it.look(100) == 20);  // the second question is the oldest since the answer of 20
  CHECK_FALSE(it.expect(110));
}

TEST_CASE("an answer that does not come in time is late, to the nanosecond") {
  answer_deadline it(100);
  it.expect(5);
  CHECK(it.look(104) == 1);
  CHECK(it.look(105) == 0);
  CHECK(it.look(400) == 0);
}

TEST_CASE("each answer starts the deadline anew while others are due") {
  answer_deadline it(100);
  for (int i = 0; i < 3; ++i) it.expect(0);
  it.note_answer(90);
  CHECK(it.look(100) == 90);
  it.note_answer(180);
  CHECK(it.look(190) == 90);
  CHECK(it.look(279) == 1);
  CHECK(it.look(280) == 0);
}

TEST_CASE("who has no answer due is never late, and asks for a look with the next question") {
  answer_deadline it(100);
  it.expect(0);
  it.note_answer(50);
  CHECK(!it.look(1000));
  CHECK(it.expect(5000));
  CHECK(it.look(5060) == 40);
  it.note_answer(5070);
  it.note_answer(5080);  // nobody asked for this one
  CHECK(!it.look(5200));
  CHECK(it.expect(5300));
  CHECK(it.look(5399) == 1);
}
