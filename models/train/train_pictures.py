"""Trains models/tiny-vlm, a model of the SmolVLM kind (Idefics 3), and exports it as a Hugging Face folder. See README.md."""

import argparse
import json
import math
import pathlib
import random
import time

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from export import round_to_f16, write_safetensors
from model import CausalLM
from pictures import COLORS, IMAGE, ROWS, SHAPES, SIDE, TEMPLATE, TOKENIZER, Picture, Talk
from tokenizer import BEGIN, END, PAD

PATCH, MERGE = 8, 2
VISION = {'model_type': 'smolvlm_vision', 'hidden_size': 64, 'intermediate_size': 192, 'num_hidden_layers': 3, 'num_attention_heads': 4,
          'image_size': SIDE, 'patch_size': PATCH, 'layer_norm_eps': 1e-6, 'hidden_act': 'gelu_pytorch_tanh'}
TEXT = {'model_type': 'llama', 'architectures': ['LlamaForCausalLM'], 'vocab_size': len(TOKENIZER), 'hidden_size': 96,
        'intermediate_size': 256, 'num_hidden_layers': 3, 'num_attention_heads': 4, 'num_key_value_heads': 2, 'head_dim': 32,
        'hidden_act': 'silu', 'rms_norm_eps': 1e-6, 'rope_theta': 10000.0, 'rope_scaling': None, 'max_position_embeddings': 1024,
        'attention_bias': False, 'mlp_bias': False, 'tie_word_embeddings': False}
FINAL_SHARE, WARM_UP = 0.02, 50


class Attention(nn.Module):
    def __init__(self, hidden, heads):
        super().__init__()
        self.heads = heads
        self.q_proj, self.k_proj, self.v_proj, self.out_proj = (nn.Linear(hidden, hidden) for _ in range(4))

    def forward(self, x):
        rows, tokens, hidden = x.shape
        q, k, v = (p(x).view(rows, tokens, self.heads, -1).transpose(1, 2) for p in (self.q_proj, self.k_proj, self.v_proj))
        scores = q @ k.transpose(2, 3) / math.sqrt(q.shape[-1])
        return self.out_proj((scores.softmax(-1) @ v).transpose(1, 2).reshape(rows, tokens, hidden))


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden = config['hidden_size']
        self.layer_norm1, self.layer_norm2 = (nn.LayerNorm(hidden, config['layer_norm_eps']) for _ in range(2))
        self.self_attn = Attention(hidden, config['num_attention_heads'])
        self.mlp = nn.Module()
        self.mlp.fc1, self.mlp.fc2 = nn.Linear(hidden, config['intermediate_size']), nn.Linear(config['intermediate_size'], hidden)

    def forward(self, x):
        x = x + self.self_attn(self.layer_norm1(x))
        return x + self.mlp.fc2(F.gelu(self.mlp.fc1(self.layer_norm2(x)), approximate='tanh'))


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        hidden, patch = config['hidden_size'], config['patch_size']
        self.embeddings, self.encoder = nn.Module(), nn.Module()
        self.embeddings.patch_embedding = nn.Conv2d(3, hidden, patch, patch)
        self.embeddings.position_embedding = nn.Embedding((config['image_size'] // patch) ** 2, hidden)
        self.encoder.layers = nn.ModuleList(Block(config) for _ in range(config['num_hidden_layers']))
        self.post_layernorm = nn.LayerNorm(hidden, config['layer_norm_eps'])

    def forward(self, pixels):
        """(B, 3, side, side) -> (B, patches, hidden), row by row."""
        x = self.embeddings.patch_embedding(pixels).flatten(2).transpose(1, 2) + self.embeddings.position_embedding.weight
        for layer in self.encoder.layers:
            x = layer(x)
        return self.post_layernorm(x)


class SmolVLM(nn.Module):
    """modeling_smolvlm.py: patches joined two by two, projected, in the places of <image>."""

    def __init__(self):
        super().__init__()
        text = CausalLM(TEXT)
        self.model = nn.Module()
        self.model.text_model, self.lm_head = text.model, text.lm_head
        self.model.vision_model = Encoder(VISION)
        self.model.connector = nn.Module()
        self.model.connector.modality_projection = nn.Module()
        self.model.connector.modality_projection.proj = nn.Linear(VISION['hidden_size'] * MERGE**2, TEXT['hidden_size'], bias=False)

    def rows(self, patches):
        side, hidden = SIDE // PATCH, patches.shape[-1]
        grid = patches.view(-1, side // MERGE, MERGE, side // MERGE, MERGE, hidden).permute(0, 1, 3, 2, 4, 5)
        return self.model.connector.modality_projection.proj(grid.reshape(-1, ROWS, MERGE**2 * hidden))

    def forward(self, ids, positions, patches, wanted):
        """-> logits of the positions where the mask `wanted` is set."""
        text = self.model.text_model
        x = text.embed_tokens(ids)
        if patches is not None:
            x = x.masked_scatter((ids == TOKENIZER.ids[IMAGE])[..., None], self.rows(patches))
        for layer in text.layers:
            x = layer(x, positions)
        return self.lm_head(text.norm(x)[wanted])


def batch(talks):
    """-> ids, positions, flags of answers, pixels and what patches show."""
    length = max(len(talk.ids) for talk in talks)
    pad = TOKENIZER.ids[PAD]
    columns = [torch.tensor([values + [fill] * (length - len(values)) for values in column]) for column, fill in (
        ([talk.ids for talk in talks], pad), ([talk.positions for talk in talks], 0), ([talk.counts for talk in talks], 0))]
    pictures = [picture for talk in talks for picture in talk.pictures]
    return (*columns, torch.stack([p.pixels for p in pictures]) if pictures else None,
            torch.from_numpy(np.stack([p.classes for p in pictures])) if pictures else None)


def initialise(model):
    for name, value in model.named_parameters():
        if value.dim() < 2:
            continue
        if 'embed' in name:
            nn.init.normal_(value, std=0.5 if 'text_model' in name else 0.1)
        else:
            gain = 0.3 if name.endswith(('o_proj.weight', 'down_proj.weight', 'out_proj.weight', 'fc2.weight')) else 1
            nn.init.normal_(value, std=gain / math.sqrt(value[0].numel()))


def learning_rate(options, progress, step):
    return options.rate * min(1, (step + 1) / WARM_UP) * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress)))


def look_alone(model, look, optimizer, rng, options, step):
    """A step of the encoder alone, which is quick: what do patches show?"""
    pictures = [Picture(rng) for _ in range(3 * options.rows)]
    for group in optimizer.param_groups:
        group['lr'] = learning_rate(options, 0, step)
    patches = model.model.vision_model(torch.stack([p.pixels for p in pictures]))
    loss = F.cross_entropy(look(patches).flatten(0, 1), torch.from_numpy(np.stack([p.classes for p in pictures])).flatten())
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    return loss.item()


def train(model, options):
    """-> steps. The clock is the plan: the rate falls as the minutes do."""
    look = nn.Linear(VISION['hidden_size'], 1 + len(SHAPES) * len(COLORS))
    parameters = [*model.parameters(), *look.parameters()]
    optimizer = torch.optim.AdamW([{'params': [p for p in parameters if p.dim() > 1], 'weight_decay': 0.05},
                                   {'params': [p for p in parameters if p.dim() < 2], 'weight_decay': 0.0}], lr=options.rate, betas=(0.9, 0.98))
    start, step = time.time(), 0
    saved, mean = start, 0.0
    while (progress := (time.time() - start) / 60 / options.minutes) < 1 and step < options.steps:
        rng = random.Random(f'{options.seed} {step}')
        if (time.time() - start) / 60 < options.look:
            seen = look_alone(model, look, optimizer, rng, options, step)
            step += 1
            if step % options.report == 0:
                print(f'step {step} patches {seen:.3f} {(time.time() - start) / 60:.1f} min', flush=True)
            continue
        talks = [Talk(rng, turns=5 if progress > 0.05 else 3) for _ in range(options.rows)]
        ids, positions, counts, pixels, classes = batch(talks)
        for group in optimizer.param_groups:
            group['lr'] = learning_rate(options, progress, step)
        asked = counts[:, 1:].bool()
        wanted = F.pad(asked, (0, 1))
        patches = None if pixels is None else model.model.vision_model(pixels)
        logits, targets = model(ids, positions, patches, wanted), ids[:, 1:][asked]
        loss = F.cross_entropy(logits, targets)
        # What each patch shows: so the encoder learns before the decoder knows what to ask of it.
        seen = torch.zeros(()) if patches is None else F.cross_entropy(look(patches).flatten(0, 1), classes.flatten())
        total = loss + 0.5 * seen
        optimizer.zero_grad(set_to_none=True)
        total.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        right = (logits.argmax(-1) == targets).float().mean().item()
        mean, step = 0.95 * mean + 0.05 * right, step + 1
        if step % options.report == 0:
            print(f'step {step} loss {loss.item():.3f} patches {seen.item():.3f} answers {mean:.4f} '
                  f'{(time.time() - start) / 60:.1f} min', flush=True)
        if options.checkpoint and time.time() - saved > 60:
            torch.save(model.state_dict(), options.checkpoint)
            saved = time.time()
    return step


@torch.no_grad()
def measure(model, count, unseen):
    """-> (right, asked): whole answers, of talks of one question."""
    right = 0
    for n in range(count):
        talk = Talk(random.Random(f'eval {unseen} {n}'), turns=1, unseen=unseen)
        ids, positions, counts, pixels, _ = batch([talk])
        asked = counts[:, 1:].bool()
        patches = None if pixels is None else model.model.vision_model(pixels)
        right += bool((model(ids, positions, patches, F.pad(asked, (0, 1))).argmax(-1) == ids[:, 1:][asked]).all())
    return right, count


def export(model, folder, card):
    folder.mkdir(parents=True, exist_ok=True)
    write_safetensors(folder / 'model.safetensors', round_to_f16(model))
    special = {f'{name}_token_id': TOKENIZER.ids[token] for name, token in (('bos', BEGIN), ('eos', END), ('pad', PAD))}
    config = {'architectures': ['SmolVLMForConditionalGeneration'], 'model_type': 'smolvlm', 'image_token_id': TOKENIZER.ids[IMAGE],
              'scale_factor': MERGE, 'tie_word_embeddings': False, 'text_config': {**TEXT, **special}, 'vision_config': VISION,
              **special, 'torch_dtype': 'float16'}
    processor = {'image_processor_type': 'SmolVLMImageProcessor', 'do_image_splitting': False, 'do_convert_rgb': True,
                 'size': {'longest_edge': SIDE}, 'max_image_size': {'longest_edge': SIDE}, 'resample': 1,
                 'image_mean': [0.5] * 3, 'image_std': [0.5] * 3}
    for name, value in (('config.json', config), ('generation_config.json', {**special, 'do_sample': False}),
                        ('preprocessor_config.json', processor)):
        (folder / name).write_text(json.dumps(value, indent=2) + '\n')
    TOKENIZER.write(folder, TEMPLATE)
    (folder / 'README.md').write_text(card)


def card(name, model, facts, results):
    size = sum(p.numel() for p in model.parameters())
    rows = '\n'.join(f'| {what} | {right}/{asked} |' for what, (right, asked) in results.items())
    return f'''# {name}

A reader of pictures of {size / 1e6:.2f} M parameters, small enough to live in this repository, made by `models/train`. It knows
circles, squares, triangles and crosses in five colors on a plain ground, at most three in a picture, each in a cell of three by
three, and says what and where they are.

## Architecture

`SmolVLMForConditionalGeneration`. Encoder: SigLIP of {VISION['num_hidden_layers']} layers, hidden {VISION['hidden_size']}, patches of {PATCH} x {PATCH} in {SIDE} x {SIDE} pixels; two by two become
a row of the decoder, {ROWS} in all. Pictures of any size are resized, never cut. Decoder: Llama of {TEXT['num_hidden_layers']} layers, hidden {TEXT['hidden_size']},
vocabulary {TEXT['vocab_size']}. Weights are stored in F16.

## Training

Pictures and talks by rule (`pictures.py`), {facts['steps']} steps of {facts['rows']} talks in {facts['minutes']:.0f} minutes on one CPU core which other work shared, seed {facts['seed']}.
Some of the things (a shape, its color and its place: one of eleven) were never drawn.

## Exact match

Whole answers, greedy, on new pictures. Stored weights computed in f32 by torch.

| pictures | right |
|---|---|
{rows}

## Prompts

`User:<image>what is in the picture?<|end|>\\nAssistant:`, as the chat template writes it: ` a red circle at the top left and a blue
cross in the middle.<|end|>`. Also: `where is the red circle?`, `what is at the top?`, `what color is the square?`,
`how many shapes are there?`, `is there a green cross?`, `what shape is blue?`.
'''


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--out', type=pathlib.Path, required=True, help='folder of the exported model')
    parser.add_argument('--minutes', type=float, default=20)
    parser.add_argument('--look', type=float, default=4, help='of those, minutes of the encoder alone')
    parser.add_argument('--rate', type=float, default=2e-3, help='the highest of AdamW')
    parser.add_argument('--steps', type=int, default=10**9)
    parser.add_argument('--rows', type=int, default=16, help='talks of a step')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--report', type=int, default=50)
    parser.add_argument('--checkpoint', type=pathlib.Path, help='weights, written every minute')
    parser.add_argument('--from', dest='start', type=pathlib.Path, help='weights to begin with')
    parser.add_argument('--eval', type=int, default=500, help='pictures of each row of the card')
    parser.add_argument('--smoke', action='store_true', help='a few steps, then a complete folder: does it run?')
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.eval, options.report, options.look = 3, 2, 1, 0
    torch.set_num_threads(options.threads)
    torch.manual_seed(options.seed)
    model = SmolVLM()
    initialise(model)
    if options.start:
        model.load_state_dict(torch.load(options.start))
    steps = train(model, options)
    name = options.out.resolve().name
    export(model, options.out, f'# {name}\n')
    results = {'of things that were drawn in training': measure(model, options.eval, False),
               'with things that never were': measure(model, options.eval, True)}
    facts = {'steps': steps, 'rows': options.rows, 'minutes': options.minutes, 'seed': options.seed}
    export(model, options.out, card(name, model, facts, results))
    print(results)


if __name__ == '__main__':
    main()
