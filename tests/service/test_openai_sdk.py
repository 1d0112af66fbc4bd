"""The openai package as it comes, pointed at the server."""

import asyncio
import json

import openai
import pytest

from checks import bytes_of
from script import FOX, TOOLS
from service import wait_for

OFF = {"extra_body": {"thinking": {"type": "disabled"}}}
ON = {"extra_body": {"thinking": {"type": "enabled"}}}


def user(text):
    return [{"role": "user", "content": text}]


@pytest.fixture
def sdk(server):
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0, timeout=30) as it:
        yield it


@pytest.fixture
def name(server):
    return server.model()


def test_models(sdk, name):
    listed = sdk.models.list().data
    assert [it.id for it in listed] == [name] and listed[0].object == "model"
    assert sdk.models.retrieve(name).id == name
    with pytest.raises(openai.NotFoundError):
        sdk.models.retrieve("nope")


def test_chat(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#fox"), max_tokens=100, **OFF)
    assert answer.choices[0].message.content == FOX
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.object == "chat.completion" and answer.id.startswith("chatcmpl-")
    assert answer.system_fingerprint
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens
    assert answer.usage.prompt_tokens_details.cached_tokens >= 0


def test_chat_stream(sdk, name):
    chunks = list(sdk.chat.completions.create(model=name, messages=user("#fox"), max_tokens=100,
                                              stream=True, stream_options={"include_usage": True}, **OFF))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert "".join(it.choices[0].delta.content or "" for it in chunks if it.choices) == FOX
    assert chunks[-1].choices == [] and chunks[-1].usage.completion_tokens > 5
    assert all(it.usage is None for it in chunks[:-1])
    assert [it.choices[0].finish_reason for it in chunks if it.choices][-1] == "stop"
    assert all(it.object == "chat.completion.chunk" for it in chunks)


def test_completions(sdk, name):
    answer = sdk.completions.create(model=name, prompt="#fox", max_tokens=100)
    assert answer.choices[0].text == FOX and answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    pieces = [it.choices[0].text for it in
              sdk.completions.create(model=name, prompt="#fox", max_tokens=100, stream=True) if it.choices]
    assert "".join(pieces) == FOX and len(pieces) > 3


def test_parameters_of_both_generations(sdk, name):
    for limit in ({"max_tokens": 3}, {"max_completion_tokens": 3}, {"max_tokens": 9, "max_completion_tokens": 3}):
        answer = sdk.chat.completions.create(model=name, messages=user("#long"), **limit, **OFF)
        assert answer.usage.completion_tokens == 3 and answer.choices[0].finish_reason == "length"


def test_n_answers(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#long"), n=4, max_tokens=12, seed=5,
                                         temperature=1, **OFF)
    assert [it.index for it in answer.choices] == [0, 1, 2, 3]
    assert len({it.message.content for it in answer.choices}) == 4
    again = sdk.chat.completions.create(model=name, messages=user("#long"), n=4, max_tokens=12, seed=5,
                                        temperature=1, **OFF)
    assert [it.message.content for it in again.choices] == [it.message.content for it in answer.choices]
    assert answer.usage.completion_tokens == 48


def test_logprobs(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#fox"), max_tokens=100, logprobs=True,
                                         top_logprobs=0, **OFF)
    content = answer.choices[0].logprobs.content
    assert bytes_of([it.model_dump() for it in content]).decode() == FOX
    assert all(it.logprob <= 0 for it in content)


def test_logprobs_of_the_best(tiny):
    with openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as sdk:
        answer = sdk.chat.completions.create(model=tiny.model(), messages=user("What is 7 + 5?"), max_tokens=16,
                                             temperature=0, logprobs=True, top_logprobs=5, **OFF)
        for it in answer.choices[0].logprobs.content:
            values = [one.logprob for one in it.top_logprobs]
            assert len(values) == 5 and values == sorted(values, reverse=True)
            assert abs(values[0] - it.logprob) < 1e-4  # greedy takes the best
        plain = sdk.completions.create(model=tiny.model(), prompt="Once there was", max_tokens=8, logprobs=3,
                                       temperature=0)
        one = plain.choices[0].logprobs
        assert len(one.tokens) == len(one.token_logprobs) == len(one.top_logprobs) == len(one.text_offset)
        assert all(len(it) >= 3 for it in one.top_logprobs)


def test_reasoning(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#think"), max_tokens=100, **ON)
    message = answer.choices[0].message
    assert (message.reasoning_content, message.content) == ("First I think.", "Then I answer.")
    assert answer.usage.completion_tokens_details.reasoning_tokens > 0
    chunks = [it.choices[0].delta for it in sdk.chat.completions.create(
        model=name, messages=user("#think"), max_tokens=100, stream=True, **ON) if it.choices]
    assert chunks[0].content is None and chunks[0].reasoning_content == ""
    assert "".join(getattr(it, "reasoning_content", None) or "" for it in chunks) == "First I think."
    assert "".join(it.content or "" for it in chunks) == "Then I answer."
    for effort in ("low", "high", "max"):
        answer = sdk.chat.completions.create(model=name, messages=user("#think"), max_tokens=100,
                                             reasoning_effort=effort, **ON)
        assert answer.choices[0].message.content == "Then I answer."


def test_one_tool_call(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#one"), tools=TOOLS, max_tokens=300, **OFF)
    choice = answer.choices[0]
    assert choice.finish_reason == "tool_calls" and choice.message.content == "One moment."
    call = choice.message.tool_calls[0]
    assert call.id.startswith("call_") and call.type == "function"
    assert (call.function.name, json.loads(call.function.arguments)) == \
        ("weather", {"city": "Berlin", "days": 3})
    messages = [*user("#one"), choice.message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "sun"}]
    # "#one" comes first in the prompt, so the model calls again: what counts is that it is taken.
    again = sdk.chat.completions.create(model=name, messages=messages, tools=TOOLS, max_tokens=300, **OFF)
    assert again.choices[0].finish_reason in ("tool_calls", "stop")


def test_parallel_calls_streamed(sdk, name):
    calls = {}
    finish = None
    for chunk in sdk.chat.completions.create(model=name, messages=user("#two"), tools=TOOLS, max_tokens=400,
                                             stream=True, **OFF):
        for choice in chunk.choices:
            finish = choice.finish_reason or finish
            for it in choice.delta.tool_calls or []:
                call = calls.setdefault(it.index, {"id": it.id, "name": it.function.name, "arguments": ""})
                call["arguments"] += it.function.arguments or ""
    assert finish == "tool_calls"
    assert [calls[i]["name"] for i in sorted(calls)] == ["weather", "time"]
    assert [json.loads(calls[i]["arguments"]) for i in sorted(calls)] == \
        [{"city": 'Köln "am Rhein"\n'}, {"city": "東京"}]


def test_sdk_accumulates_a_stream_with_calls(sdk, name):
    with sdk.chat.completions.stream(model=name, messages=user("#two"), tools=TOOLS, max_tokens=400,
                                     **OFF) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert "chunk" in kinds and len(final.choices[0].message.tool_calls) == 2


def test_calls_behind_thoughts(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#thoughtful"), tools=TOOLS, max_tokens=300, **ON)
    message = answer.choices[0].message
    assert message.reasoning_content == "Which city?" and not message.content
    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Rome"}


def test_json_object(sdk, name):
    answer = sdk.chat.completions.create(model=name, messages=user("#json, as JSON"), max_tokens=100,
                                         response_format={"type": "json_object"}, **OFF)
    assert json.loads(answer.choices[0].message.content) == {"city": "Berlin", "days": 3}


def test_errors_become_the_right_exceptions(sdk, name):
    def ask(**fields):
        return sdk.chat.completions.create(**{"model": name, "messages": user("#fox"), **fields}, **OFF)

    with pytest.raises(openai.BadRequestError) as found:
        ask(temperature=-1)
    assert found.value.param == "temperature" and found.value.code == "invalid_argument"
    assert found.value.type == "invalid_request_error"
    with pytest.raises(openai.NotFoundError) as found:
        ask(model="nope")
    assert found.value.code == "model_not_found"
    with pytest.raises(openai.BadRequestError) as found:
        ask(messages=user("word " * 20000))
    assert found.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError):
        list(ask(stream=True, n=0))
    with pytest.raises(openai.NotFoundError):
        sdk.embeddings.create(model=name, input="a")


def test_a_wrong_key(serve):
    it = serve("--api-key", "right", key="right")
    with openai.OpenAI(base_url=f"{it.url}/v1", api_key="wrong", max_retries=0) as sdk:
        with pytest.raises(openai.AuthenticationError):
            sdk.models.list()
    with openai.OpenAI(base_url=f"{it.url}/v1", api_key="right", max_retries=0) as sdk:
        assert sdk.models.list().data


def test_an_overloaded_server_is_tried_again(serve):
    """The SDK honours Retry-After of a 429: with retries every request succeeds in the end."""
    it = serve("--max-num-seqs", "1", "--max-queued-requests", "1",
               script={"step_ms": 1, "otherwise": {"say": "OK.", "first_ms": 30}})

    async def main():
        async with openai.AsyncOpenAI(base_url=f"{it.url}/v1", api_key="none", max_retries=8) as sdk:
            answers = await asyncio.gather(*[sdk.chat.completions.create(
                model=it.model(), messages=user("a"), max_tokens=3, **OFF) for _ in range(6)])
        assert all(one.choices[0].message.content == "OK." for one in answers)

    asyncio.run(main())


def test_leaving_a_stream_ends_the_request(server, sdk, name):
    stream = sdk.chat.completions.create(model=name, messages=user("#long"), max_tokens=7000, stream=True, **OFF)
    for _, chunk in zip(range(5), stream):
        assert chunk.choices
    stream.close()
    wait_for(lambda: server.metrics()["num_requests_running"] == 0, "nobody runs")


def test_async_clients_side_by_side(server, name):
    async def main():
        async with openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as sdk:
            async def one(i):
                text = ""
                stream = await sdk.chat.completions.create(model=name, messages=user(f"#fox {i}"), max_tokens=100,
                                                           stream=True, **OFF)
                async for chunk in stream:
                    text += (chunk.choices[0].delta.content or "") if chunk.choices else ""
                return text

            return await asyncio.gather(*[one(i) for i in range(40)])

    assert asyncio.run(main()) == [FOX] * 40


def test_raw_response_headers(sdk, name):
    raw = sdk.chat.completions.with_raw_response.create(model=name, messages=user("#fox"), max_tokens=5, **OFF)
    assert raw.headers["x-request-id"] and raw.request_id == raw.headers["x-request-id"]
    assert int(raw.headers["openai-processing-ms"]) >= 0
    assert raw.headers["server"].startswith("deepinfer")
