"""
A plugin of pytest, for the server tests of llama.cpp: their `ServerProcess` starts `splitkv serve` in place of llama-server.
run.mjs loads it, and tells it by variables of the environment what to serve and where results go.

What llama-server's command line says is told in our words: options of `serve`, a model folder with another template or context, and
for defaults of requests (--temp, --seed, --n-predict) fields of each request. What can't be told so is skipped, with its reason.
Words that llama.cpp's own draws give aren't judged: only those that a form (a schema, a grammar) holds are. In place of its BERT there is
one of random weights that knows the tests' words, and models/tiny-vlm with a picture of this repository in place of its Gemma 3.
"""
import json
import os
import pathlib
import random
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import types

import pytest
import requests

sys.modules.setdefault("wget", types.ModuleType("wget"))
sys.path.insert(0, os.getcwd())
import openai.resources as resources  # noqa: E402
import openai.resources.responses  # noqa: E402
import utils  # noqa: E402

ROOT = os.environ["SPLITKV_ROOT"]
MODEL = pathlib.Path(os.environ["SPLITKV_MODEL"])
RESULTS = os.environ["SPLITKV_RESULTS"]
MOST_SERVERS = 3
CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
# Templates that llama.cpp knows by name.
TEMPLATES = {
    "chatml": CHATML,
    "llama3": (
        "{% for message in messages %}{{ '<|start_header_id|>' + message.role + '<|end_header_id|>\n\n' + message.content + '<|eot_id|>' }}"
        "{% endfor %}{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %}"
    ),
    "command-r": (
        "{% for message in messages %}{{ '<|START_OF_TURN_TOKEN|><|' + {'assistant': 'CHATBOT'}.get(message.role, message.role | upper)"
        " + '_TOKEN|>' + message.content + '<|END_OF_TURN_TOKEN|>' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %}"
    ),
}
# Options of llama-server that have nothing like them here, by their names in `ServerProcess`.
ABSENT = {
    "models_dir": "a router of models",
    "models_preset": "a router of models",
    "media_path": "media files of the server's disk",
    "mmproj_url": "an image model of the Hub",
    "ui_mcp_proxy": "a proxy for its page",
    "server_tools": "tools of the server",
    "gcp_compat": "the API of Vertex AI",
    "enable_ctx_shift": "shifting the context",
    "lora_files": "another model's adapter",
    "slot_save_path": "slots in files",
    "sleep_idle_seconds": "sleeping",
}
REPOSITORIES = ("ggml-org/test-model-stories260K", "ggml-org/test-model-stories260K-infill")
FILES = ("tinyllamas/stories260K.gguf", "jina-reranker-v1-tiny-en/ggml-model-f16.gguf")
BERT = "bert-bge-small/ggml-model-f16.gguf"
VISION = "ggml-org/tinygemma3-GGUF:Q8_0"
# What asks for a text, with the field that says how long it may be.
GENERATING = {
    "/completion": "n_predict",
    "/infill": "n_predict",
    "/completions": "max_tokens",
    "/chat/completions": "max_tokens",
    "/responses": "max_output_tokens",
    "/messages": "max_tokens",
}
FORMS = ("grammar", "json_schema", "response_format")

folders = pathlib.Path(tempfile.mkdtemp(prefix="splitkv-suite-"))
running: dict[tuple, "Running"] = {}
now = types.SimpleNamespace(test="", server=None, has_form=False)


class Running:
    def __init__(self, arguments):
        command = ["node", f"{ROOT}/bin/splitkv.js", "serve", "--json", *arguments]
        with open(folders / "log", "w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT)
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError((folders / "log").read_text())
        self.port = int(json.loads(line)["url"].rsplit(":", 1)[1])

    def stop(self):
        self.process.kill()
        self.process.wait()


def folder_of(template, context, fills):
    """The model with another template and context; one that fills gaps has tokens for it in place of its last bytes."""
    folder = folders / str(abs(hash((template, context, fills))))
    if folder.exists():
        return folder
    shutil.copytree(MODEL, folder, copy_function=os.symlink)

    def rewrite(name, change):
        said = json.loads((folder / name).read_text())
        change(said)
        (folder / name).unlink()
        (folder / name).write_text(json.dumps(said))

    rewrite("config.json", lambda config: config.update(max_position_embeddings=max(context, 512)))
    rewrite("tokenizer_config.json", lambda config: config.update(chat_template=template))
    if fills:

        def add(tokenizer):
            vocabulary = tokenizer["model"]["vocab"]
            for byte, token in zip(("<0xFD>", "<0xFE>", "<0xFF>"), ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")):
                flags = dict(single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
                vocabulary[token] = vocabulary.pop(byte)
                tokenizer["added_tokens"].append(dict(id=vocabulary[token], content=token, **flags))

        rewrite("tokenizer.json", add)
    return folder


def bert():
    """The folder of a BERT: each word of its tests is a token."""
    folder = folders / "bert"
    if folder.exists():
        return folder
    folder.mkdir()
    words = sorted(set(re.findall("[a-z0-9]+", pathlib.Path("unit/test_embedding.py").read_text().lower())))
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *words]
    width, inner, positions = 32, 64, 512
    config = dict(model_type="bert", vocab_size=len(tokens), hidden_size=width, num_hidden_layers=1, num_attention_heads=2)
    config.update(intermediate_size=inner, max_position_embeddings=positions, hidden_act="gelu")
    special = {token: dict(id=token, ids=[id], tokens=[token]) for id, token in enumerate(tokens[:4])}
    around = [{"SpecialToken": dict(id="[CLS]", type_id=0)}, {"Sequence": dict(id="A", type_id=0)}, {"SpecialToken": dict(id="[SEP]", type_id=0)}]
    tokenizer = dict(
        version="1.0",
        added_tokens=[
            dict(id=id, content=token, single_word=False, lstrip=False, rstrip=False, normalized=False, special=True)
            for id, token in enumerate(tokens[:4])
        ],
        normalizer=dict(type="BertNormalizer", clean_text=True, handle_chinese_chars=True, strip_accents=None, lowercase=True),
        pre_tokenizer=dict(type="BertPreTokenizer"),
        post_processor=dict(type="TemplateProcessing", single=around, pair=around, special_tokens=special),
        decoder=dict(type="WordPiece", prefix="##", cleanup=True),
        model=dict(
            type="WordPiece",
            unk_token="[UNK]",
            continuing_subword_prefix="##",
            max_input_chars_per_word=100,
            vocab={token: id for id, token in enumerate(tokens)},
        ),
    )
    words = dict(cls_token="[CLS]", sep_token="[SEP]", unk_token="[UNK]", pad_token="[PAD]")
    shapes = {f"embeddings.{name}_embeddings.weight": (rows, width) for name, rows in (("word", len(tokens)), ("position", positions), ("token_type", 2))}
    for name, rows, columns in (
        *((f"attention.{name}", width, width) for name in ("self.query", "self.key", "self.value", "output.dense")),
        ("intermediate.dense", inner, width),
        ("output.dense", width, inner),
    ):
        shapes[f"encoder.layer.0.{name}.weight"], shapes[f"encoder.layer.0.{name}.bias"] = (rows, columns), (rows,)
    for name in ("embeddings", "encoder.layer.0.attention.output", "encoder.layer.0.output"):
        shapes[f"{name}.LayerNorm.weight"] = shapes[f"{name}.LayerNorm.bias"] = (width,)
    drawn, header, data = random.Random(1), {}, b""
    for name, shape in shapes.items():
        count = shape[0] * (shape[1] if len(shape) > 1 else 1)
        centre = 1 if name.endswith("LayerNorm.weight") else 0
        header[name] = dict(dtype="F32", shape=shape, data_offsets=(len(data), len(data) + 4 * count))
        data += struct.pack(f"<{count}f", *(drawn.gauss(centre, 0.2) for _ in range(count)))
    for name, said in (("config", config), ("tokenizer", tokenizer), ("tokenizer_config", words)):
        (folder / f"{name}.json").write_text(json.dumps(said))
    head = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data)
    return folder


PICTURE = pathlib.Path(ROOT) / "docs" / "images" / "chat.png"
get = requests.get


def get_or_picture(url, **how):
    """Tests fetch pictures from the Hub."""
    if not url.endswith(".png"):
        return get(url, **how)
    return types.SimpleNamespace(content=PICTURE.read_bytes(), raise_for_status=lambda: None)


def template_of(server, begins=True):
    """As llama.cpp has it: a prompt begins with the model's first token, whatever its template says."""
    if server.chat_template_file:
        template = pathlib.Path(server.chat_template_file).read_text()
    else:
        template = TEMPLATES.get(server.chat_template or "chatml", server.chat_template)
    return template if "bos_token" in template or not begins else "{{ bos_token }}" + template


def start(server, timeout_seconds=0):
    for option, what in ABSENT.items():
        if getattr(server, option):
            pytest.skip(f"{option}: splitkv has no such thing as {what}")
    sees = server.model_hf_repo == VISION
    named = server.model_hf_repo in REPOSITORIES or server.model_hf_file in (*FILES, BERT)
    if not named and not sees:
        pytest.skip(f"the model {server.model_hf_repo} isn't here")
    slots = server.n_slots or 4
    # Slots of one cache may each have all of it; here each has its own.
    context = (server.n_ctx or 4096) // (1 if server.kv_unified else slots)
    alias = (server.model_alias or "model").split(",")[0]
    if sees:
        folder = pathlib.Path(ROOT) / "models" / "tiny-vlm"
    elif server.model_hf_file == BERT:
        folder = bert()
    else:
        folder = folder_of(template_of(server), context, "infill" in server.model_hf_repo)
    arguments = [folder, "--served-name", alias, "--port", 0, "--slots", slots, "--context", context, "--allow-origin", "*"]
    if sees:
        arguments += ["--images"]
    if server.pooling in ("mean", "last", "cls"):
        arguments += ["--pooling", server.pooling]
    if server.api_key:
        arguments += ["--api-key", server.api_key]
    counts = any(word in now.test for word in ("cache", "progress", "test_completion[", "completion_stream["))
    # Otherwise it changes nothing, and a server for each size would take its time.
    if server.n_batch and counts:
        arguments += ["--tokens-per-iteration", max(server.n_batch, slots)]
    key = tuple(map(str, arguments))
    # What counts cached tokens begins with none.
    if counts and key in running:
        running.pop(key).stop()
    if key not in running:
        while len(running) >= MOST_SERVERS:
            running.pop(next(iter(running))).stop()
        running[key] = Running(key)
    server.server_port = running[key].port
    now.server = server
    server.ready = True


def prepared(server, path, data):
    """The body with what llama-server's command line says where a request doesn't, and without a name of another model."""
    now.has_form = isinstance(data, dict) and any(data.get(name) for name in FORMS)
    length = GENERATING.get(path.removeprefix("/v1"))
    if not isinstance(data, dict):
        return data
    data = {name: value for name, value in data.items() if name != "model"}
    if server.reasoning in ("on", "off") and "messages" in data:
        data.setdefault("enable_thinking", server.reasoning == "on")
    # --prefill-assistant, which llama-server has on by default.
    last = data.get("messages")[-1:] if isinstance(data.get("messages"), list) else []
    if last and isinstance(last[0], dict) and last[0].get("role") == "assistant" and not last[0].get("tool_calls"):
        data = {"continue_final_message": True, "add_generation_prompt": False, **data} if "chat" in path else data
    if server.debug and path.endswith("/chat/completions"):
        data.setdefault("verbose", True)
    if server.pooling == "none" and "embeddings" in path:
        data["pooling"] = "none"
    if length is None:
        return data
    data = {"temperature": server.temperature, "seed": server.seed, **data}
    if server.n_predict and not any(name in data for name in ("n_predict", "max_tokens", "max_output_tokens", "max_completion_tokens")):
        data[length] = server.n_predict
    return data


def wrap_requests():
    ask, stream, match = utils.ServerProcess.make_request, utils.ServerProcess.make_stream_request, utils.match_regex

    def make_request(self, method, path, data=None, headers=None, timeout=None):
        response = ask(self, method, path, prepared(self, path, data), headers, 120)
        if path == "/apply-template" and "prompt" in response.body and "bos_token" not in template_of(self, begins=False):
            response.body["prompt"] = response.body["prompt"].removeprefix("<s>")
        return response

    def make_stream_request(self, method, path, data=None, headers=None):
        return stream(self, method, path, prepared(self, path, data), headers)

    def match_regex(regex, text):
        return match(regex, text) if now.has_form else isinstance(text, str) and text != ""

    utils.ServerProcess.start = start
    utils.ServerProcess.stop = lambda self: None
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    utils.ServerProcess.make_request = make_request
    utils.ServerProcess.make_stream_request = make_stream_request
    utils.match_regex = match_regex
    requests.get = get_or_picture
    for api in (resources.chat.Completions, resources.Completions, resources.Embeddings, resources.responses.Responses):
        create = api.create
        api.create = lambda self, create=create, **fields: create(self, **{**fields, "model": now.server.model_alias})


wrap_requests()


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    now.test, now.has_form = item.name, False
    if item.get_closest_marker("slow"):
        pytest.skip("needs a large model")


@pytest.hookimpl
def pytest_runtest_logreport(report):
    if report.when != "call" and report.passed or report.when == "teardown":
        return
    why = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr or "").strip().split("\n")[-1]
    with open(RESULTS, "a") as results:
        results.write(json.dumps(dict(name=report.nodeid, outcome=report.outcome, why=why, seconds=report.duration)) + "\n")


@pytest.hookimpl
def pytest_unconfigure():
    for server in running.values():
        server.stop()
    shutil.rmtree(folders, ignore_errors=True)
