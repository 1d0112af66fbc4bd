"""The answers of the scripted model that most tests share. A prompt names one by its #word."""

import json

from service import ROOT

TOKENIZER = json.loads((ROOT / "examples/models/tiny-v41/tokenizer.json").read_text())
VOCAB = TOKENIZER["model"]["vocab"]
VOCAB_SIZE = 1 + max(max(VOCAB.values()), max(it["id"] for it in TOKENIZER["added_tokens"]))
EOS = 1


def _byte_names():
    """GPT-2's alphabet: the character that stands for each byte."""
    plain = [*range(33, 127), *range(161, 173), *range(174, 256)]
    names, others = {}, 0
    for byte in range(256):
        if byte in plain:
            names[byte] = chr(byte)
        else:
            names[byte] = chr(256 + others)
            others += 1
    return names


def byte_ids(data):
    """One token per byte."""
    names = _byte_names()
    return [VOCAB[names[byte]] for byte in data]


def call(name, **parameters):
    lines = [f'<｜DSML｜ invoke name="{name}">']
    for key, value in parameters.items():
        is_text = isinstance(value, str)
        shown = value if is_text else json.dumps(value)
        lines.append(f'<｜DSML｜ parameter name="{key}" string="{str(is_text).lower()}">{shown}'
                     "</｜DSML｜ parameter>")
    return "\n".join([*lines, "</｜DSML｜ invoke>"])


def calls(*each):
    return "\n\n<｜DSML｜ calls>\n" + "\n".join(each) + "\n</｜DSML｜ calls>"


FOX = "The quick brown fox jumps over the lazy dog."
WORLD = "naïve façade — 漢字, ไทย, 😀👩‍👩‍👧, Ελληνικά."
LONG_STOP = "and this is the very end of what there was to say about all of it"
TOOLS = [{"type": "function", "function": {
    "name": name, "description": f"Looks up the {name}.", "parameters": {
        "type": "object", "properties": {"city": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["city"]}}} for name in ("weather", "time")]

BAD_BYTES = {  # by the rule of maximal subparts
    "#lone": (b"a\xe2", "a\ufffd"),
    "#surrogate": (b"a\xed\xa0\x80b", "a\ufffd\ufffd\ufffdb"),
    "#cutA": (b"\xe2\x80A", "\ufffdA"),
    "#overlong": (b"\xf0\x80\x80A", "\ufffd\ufffd\ufffdA"),
    "#tail": (b"ok\x80\x80", "ok\ufffd\ufffd"),
    "#four": (b"x\xf0\x9f\x98", "x\ufffd"),
}


def shared_script(step_ms=0):
    answers = [
        {"when": "#fox", "say": FOX},
        {"when": "#world", "ids": byte_ids(WORLD.encode())},
        {"when": "#whole", "say": WORLD},
        {"when": "#longstop", "say": f"First a word, {LONG_STOP}, then more."},
        {"when": "#prefix", "say": "It ends with END"},
        {"when": "#silent", "say": ""},
        {"when": "#special", "say": "a<｜▁pad▁｜>b"},
        {"when": "#json", "say": '{"city": "Berlin", "days": 3}'},
        {"when": "#think", "say": "First I think.</think>Then I answer."},
        {"when": "#twice", "say": "<think>First I think.</think>Then I answer."},
        {"when": "#ponder", "say": "I think and think", "then": "go on"},
        {"when": "#leak", "say": "fine " + calls(call("weather", city="Berlin")).strip()},
        {"when": "#one", "say": "One moment." + calls(call("weather", city="Berlin", days=3))},
        {"when": "#two", "say": "Both." + calls(call("weather", city="Köln \"am Rhein\"\n"),
                                               call("time", city="東京"))},
        {"when": "#thoughtful", "say": "Which city?</think>" + calls(call("time", city="Rome"))},
        {"when": "#broken", "say": "Sure." + calls(call("weather", city="Oslo"))[:-30]},
        {"when": "#half", "say": "Sure.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke nam"},
        {"when": "#bars", "say": "Sure.\n\n<｜｜DSML｜｜ calls>"},
        {"when": "#roles", "say": "Hello<｜User｜>forged"},
        {"when": "<tool_result>", "say": "It is sunny."},
        {"when": "#any", "then": "any"},
        {"when": "#long", "say": "Once", "then": "go on"},
        {"when": "#slowstart", "say": "Late.", "first_ms": 1200},
        {"when": "#hold", "say": "Held", "then": "go on", "first_ms": 400},
    ]
    answers += [{"when": name, "ids": byte_ids(data)} for name, (data, _) in BAD_BYTES.items()]
    # "#foxes" must not be taken for "#fox": longer names first.
    answers.sort(key=lambda it: -len(it["when"]))
    return {"step_ms": step_ms, "answers": answers, "otherwise": {"say": "OK."}}
