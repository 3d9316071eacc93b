"""Exact match of whole answers on held-out documents, and the model card that reports it."""

import json
import pathlib

import torch

from data import TOKENIZER, generator, question_at_end
from tokenizer import ASSISTANT, BEGIN, END, USER

CONTEXTS = (256, 512, 1024, 2048)
KINDS = ('where', 'codes', 'likes')
STORY = 'mia put the red key in the kitchen box . leo hid the blue key in the attic chest . the code of owen is 4 0 7 .'
EXAMPLES = [f'{STORY} where is the blue key ?', f'{STORY} what is the code of owen ?',
            f'{USER}{STORY} where is the red key ?{ASSISTANT}', f'{USER}who are you ?{ASSISTANT}',
            f'{USER}tell me a story about a fox{ASSISTANT}']
SHARED_SET = pathlib.Path(__file__).parent.parent / 'eval.jsonl'


@torch.no_grad()
def exact(model, prompt, answer):
    """Whether greedy decoding gives the whole answer: every token of it is the argmax after the ones before it."""
    prompt, answer = TOKENIZER.encode(prompt), TOKENIZER.encode(answer)
    ids = torch.tensor([prompt + answer[:-1]], device=next(model.parameters()).device)
    wanted = torch.zeros_like(ids, dtype=torch.bool)
    wanted[:, len(prompt) - 1:] = True
    return model(ids, wanted=wanted).argmax(-1).tolist() == answer


def exact_match(model, kind, context, count, chat=False, seed=0):
    """-> right answers among `count` documents of about `context` tokens with one question at the end."""
    return sum(exact(model, *question_at_end(generator('eval', seed, kind, context, i), context, kind, chat))
               for i in range(count))


def shared_set(model, limit=None):
    """The prompts that the runtime is checked with, at most `limit` of each length -> {context: (right, asked)}"""
    results = {c: (0, 0) for c in CONTEXTS}
    for line in SHARED_SET.read_text().splitlines():
        item = json.loads(line)
        right, asked = results[item['context']]
        if limit is None or asked < limit:
            results[item['context']] = (right + exact(model, BEGIN + item['prompt'], item['answer']), asked + 1)
    return results


@torch.no_grad()
def greedy(model, prompt, limit):
    """-> the text generated after prompt, up to <|end|>, raw text's first ` .`, or `limit` tokens."""
    ids, device = TOKENIZER.encode(prompt), next(model.parameters()).device
    stop = TOKENIZER.ids[END] if ASSISTANT in prompt else TOKENIZER.encode(' .')[0]
    start = len(ids)
    while len(ids) < start + limit:
        ids.append(int(model(torch.tensor([ids], device=device))[0, -1].argmax()))
        if ids[-1] == stop:
            break
    return TOKENIZER.decode(ids[start:])


def measure(model, counts):
    """counts: {context: documents} -> rows of (label, {context: (right, asked)})"""
    rows = [(kind, False) for kind in KINDS] + [('where', True)]
    return [(f'{kind}, {"chat" if chat else "raw"}',
             {c: (exact_match(model, kind, c, n, chat), n) for c, n in counts.items()}) for kind, chat in rows]


def table(rows):
    contexts = list(rows[0][1])
    lines = ['| question | ' + ' | '.join(map(str, contexts)) + ' |', '|---' * (len(contexts) + 1) + '|']
    for label, results in rows:
        lines.append(f'| {label} | ' + ' | '.join('{}/{}'.format(*results[c]) for c in contexts) + ' |')
    return '\n'.join(lines)


def card(name, model, facts, rows, shared, limit=80):
    """README.md. facts: seed, steps, tokens, minutes, device, structured; rows: as from measure; shared: as from shared_set;
    limit: tokens of an example's answer."""
    config, size = model.config, sum(p.numel() for p in model.parameters())
    if config['model_type'] == 'llama':
        shape = (f'`LlamaForCausalLM`: {config["num_attention_heads"]} query heads, {config["num_key_value_heads"]} '
                 f'key-value heads, head dimension {config["head_dim"]}, SwiGLU of {config["intermediate_size"]}')
    else:
        shape = (f'`DeepseekV3ForCausalLM`: {config["num_attention_heads"]} heads, latent of {config["kv_lora_rank"]} + '
                 f'{config["qk_rope_head_dim"]} rotary, {config["qk_nope_head_dim"]} without position, values of '
                 f'{config["v_head_dim"]}; layer 0 dense ({config["intermediate_size"]}), then '
                 f'{config["n_routed_experts"]} experts of {config["moe_intermediate_size"]}, '
                 f'{config["num_experts_per_tok"]} a token, and a shared one')
    torch_row = ' | '.join('{}/{}'.format(*result) for result in shared.values())
    empty = ' | '.join('' for _ in shared)
    runtime = '\n'.join(f'| this runtime, {w} | {empty} |' for w in ('f32', 'f16', 'q8', 'q4'))
    examples = '\n'.join(f'    {prompt}\n    ->{greedy(model, BEGIN + prompt, limit)}\n' for prompt in EXAMPLES)
    heading = '| weights | ' + ' | '.join(map(str, shared)) + ' |\n' + '|---' * (len(shared) + 1) + '|'
    start = 'structured (`start.py`)' if facts['structured'] else 'random'
    return f'''# {name}

A story reader of {size / 1e6:.2f} M parameters, small enough to live in this repository, made by `models/train`. It answers
questions about facts in a text, chats a little and tells a short story on request. It knows about 270 words; anything
else falls back to bytes, which it was not trained on.

## Architecture

{shape}.
Hidden {config["hidden_size"]}, {config["num_hidden_layers"]} layers, RoPE theta {config["rope_theta"]:.0f}, vocabulary {config["vocab_size"]}, embeddings untied, no biases. Weights are
stored in F16.

## Training

| | |
|---|---|
| data | stories and questions made by rule (`models/train/data.py`), no other text |
| start | {start} |
| steps | {facts['steps']} |
| tokens | {facts['tokens'] / 1e6:.2f} M |
| longest row | {facts['longest']} tokens; positions up to 4096 |
| seed | {facts['seed']} |
| time | {facts['minutes']:.0f} minutes on {facts['device']} |

## Exact match

Whole answers, greedy, on held-out documents with one question at the end; columns: tokens of context. Stored (F16)
weights computed in f32 by torch.

{table(rows)}

### f32, f16, q8, q4 weights in this runtime

Right answers to the `where` questions of `models/eval.jsonl`; columns: tokens of context.

{heading}
| torch, f32 | {torch_row} |
{runtime}

## Prompts

Raw text starts with `<|begin|>` (tokenizer.json adds it) and ends with the question, lower case, punctuation after a space;
stop at ` .`. Chat is `<|begin|><|user|>story and question<|assistant|>`, as the chat template writes it; the answer ends with
`<|end|>`. Questions: `where is the red key ?`, `what is the code of owen ?`, `what does nora like ?`. One whose answer comes
before its key (`who put the red key ... ?`) is not in the data. What greedy decoding gives:

{examples}'''
