"""Trains an embedded model and exports it as a Hugging Face folder. See README.md."""

import argparse
import math
import pathlib
import time

import torch
from torch.nn import functional as F

from data import TOKENIZER, bootstrap_document, document, generator
from evaluate import CONTEXTS, card, measure, shared_set, table
from export import export
from model import CONFIGS, CausalLM
from start import initialise, structured_start
from tokenizer import PAD

# (row length, rows a step, documents); a stage ends when the running accuracy on answers passes PASS, or at its limit.
STAGES = [(64, 16, bootstrap_document), (64, 16, document), (128, 12, document), (256, 6, document), (512, 3, document),
          (1024, 2, document), (2048, 1, document)]
STAGE_LEAST, STAGE_MOST = 60, 500
PASS = 0.93
SPREAD = 4096  # position jumps spread a row over this many positions
EARLIER = 0.2  # share of later steps that go back to an earlier stage's row length
LEARNING_RATE, FINAL_SHARE, WARM_UP = 2e-3, 0.03, 100


def jumps(rng, ends, length):
    """Positions of a row with gaps at some sentence ends; ends: whether a sentence ends at each token."""
    places = [i + 1 for i, end in enumerate(ends[:length - 1]) if end]
    chosen = sorted(rng.sample(places, rng.randint(0, min(8, len(places)))))
    room = rng.randint(0, SPREAD - length)
    cuts = sorted(rng.randint(0, room) for _ in chosen)
    positions, gap = [], 0
    gaps = dict(zip(chosen, cuts))
    for i in range(length):
        gap = gaps.get(i, gap)
        positions.append(i + gap)
    return positions


def batch(stage, seed, step, scale=1):
    """-> ids, positions, loss weights and answer flags, each (rows, length); weights and flags are of the token itself."""
    length, rows, make = STAGES[stage]
    rng, pad = generator('train', seed, step), TOKENIZER.ids[PAD]
    jumping = length >= 128 and rng.random() < 0.5
    columns = [[], [], [], []]
    for _ in range(rows * scale):
        out = make(rng, length)
        ids, weights, answers = out.ids()[:length], out.weights[:length], out.answers[:length]
        missing = length - len(ids)
        positions = jumps(rng, out.sentence_ends, length) if jumping else list(range(length))
        for column, values, fill in zip(columns, (ids, positions, weights, answers), (pad, 0, 0.0, False)):
            column.append(values + [fill] * (missing if column is not columns[1] else 0))
    return [torch.tensor(column) for column in columns]


def learning_rate(step, steps):
    if step < WARM_UP:
        return LEARNING_RATE * (step + 1) / WARM_UP
    progress = min(1, (step - WARM_UP) / max(1, steps - WARM_UP))
    return LEARNING_RATE * (FINAL_SHARE + (1 - FINAL_SHARE) * 0.5 * (1 + math.cos(math.pi * progress)))


class Run:
    """Everything a checkpoint holds."""

    def __init__(self, options):
        torch.manual_seed(options.seed)
        self.model = CausalLM(CONFIGS[options.arch](len(TOKENIZER)))
        initialise(self.model)
        if options.start == 'structured':
            structured_start(self.model, batch(0, options.seed, 'start')[0])
        self.model.to(options.device)
        matrices = [p for n, p in self.model.named_parameters() if p.dim() > 1 and 'embed' not in n]
        others = [p for n, p in self.model.named_parameters() if p.dim() < 2 or 'embed' in n]
        self.optimizer = torch.optim.AdamW(
            [{'params': matrices, 'weight_decay': 0.1}, {'params': others, 'weight_decay': 0.0}],
            lr=LEARNING_RATE, betas=(0.9, 0.98))
        self.state = {'step': 0, 'stage': 0, 'stage_step': 0, 'accuracy': 0.0, 'tokens': 0, 'seconds': 0.0, 'longest': 0}

    def save(self, path):
        torch.save({'model': self.model.state_dict(), 'optimizer': self.optimizer.state_dict(), 'state': self.state},
                   path.with_suffix('.new'))
        path.with_suffix('.new').replace(path)

    def load(self, path, device):
        saved = torch.load(path, map_location=device)
        self.model.load_state_dict(saved['model'])
        self.optimizer.load_state_dict(saved['optimizer'])
        self.state = saved['state']

    def step(self, options):
        """One update -> loss, answer accuracy."""
        state = self.state
        started, step = time.time(), state['step']
        # Going back now and then keeps short documents answered while long ones are learned.
        rng, stage = generator('stage', options.seed, step), state['stage']
        if stage > 2 and rng.random() < EARLIER:
            stage = rng.randint(1, stage - 1)
        ids, positions, weights, answers = (x.to(options.device) for x in batch(stage, options.seed, step, options.scale))
        for group in self.optimizer.param_groups:
            group['lr'] = learning_rate(step, options.steps)
        self.model.train()
        wanted = torch.ones_like(ids, dtype=torch.bool)
        wanted[:, -1] = False
        logits, targets, weights = self.model(ids, positions, wanted), ids[:, 1:].flatten(), weights[:, 1:].flatten()
        loss = (F.cross_entropy(logits, targets, reduction='none') * weights).sum() / weights.sum()
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.model.balance()
        asked = answers[:, 1:].flatten()
        right = (logits.argmax(-1) == targets)[asked].float().mean().item() if asked.any() else 1.0
        if stage == state['stage']:
            keep = 0.95 if state['stage_step'] else 0.0
            state['accuracy'] = keep * state['accuracy'] + (1 - keep) * right
            state['stage_step'] += 1
        state['step'] += 1
        state['tokens'] += ids.numel()
        state['longest'] = max(state['longest'], ids.shape[1])
        state['seconds'] += time.time() - started
        return loss.item(), right

    def advance(self):
        """Moves to the next stage when this one is learned; says whether it did."""
        state = self.state
        learned = state['stage_step'] >= STAGE_LEAST and state['accuracy'] > PASS
        if state['stage'] < len(STAGES) - 1 and (learned or state['stage_step'] >= STAGE_MOST):
            state.update(stage=state['stage'] + 1, stage_step=0)
            return True
        return False


def train(run, options):
    state, saved = run.state, time.time()
    while state['step'] < options.steps and state['seconds'] < 60 * options.minutes:
        loss, right = run.step(options)
        if state['step'] % options.report == 0:
            print(f'step {state["step"]} stage {state["stage"]} ({STAGES[state["stage"]][0]}) loss {loss:.3f} answers {right:.3f} '
                  f'mean {state["accuracy"]:.3f} tokens {state["tokens"] / 1e6:.2f}M {state["seconds"] / 60:.1f} min', flush=True)
        if run.advance():
            print(f'step {state["step"]}: rows of {STAGES[state["stage"]][0]}', flush=True)
        if options.checkpoint and time.time() - saved > 60:
            run.save(options.checkpoint)
            saved = time.time()
    if options.checkpoint:
        run.save(options.checkpoint)


def parse():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument('--arch', choices=sorted(CONFIGS), required=True)
    parser.add_argument('--out', type=pathlib.Path, required=True, help='folder of the exported model')
    parser.add_argument('--steps', type=int, default=2600)
    parser.add_argument('--minutes', type=float, default=math.inf, help='stop training after this long')
    parser.add_argument('--seed', type=int, default=1)
    parser.add_argument('--device', default='cpu', help='cpu or cuda')
    parser.add_argument('--threads', type=int, default=1)
    parser.add_argument('--scale', type=int, default=1, help='times the rows of each step (for GPUs)')
    parser.add_argument('--start', choices=['structured', 'random'], default='structured')
    parser.add_argument('--checkpoint', type=pathlib.Path, help='file written every minute; training resumes from it')
    parser.add_argument('--report', type=int, default=20, help='print every so many steps')
    parser.add_argument('--eval-documents', type=int, default=100, help='documents of the model card at 256 and 512 tokens, fewer at longer ones')
    parser.add_argument('--export-only', action='store_true', help='export the checkpoint as it is')
    parser.add_argument('--smoke', action='store_true', help='a few steps, then a complete model folder: does it run?')
    options = parser.parse_args()
    if options.smoke:
        options.steps, options.eval_documents, options.report = 4, 1, 1
    return options


def main():
    options = parse()
    torch.set_num_threads(options.threads)
    run = Run(options)
    if options.checkpoint and options.checkpoint.exists():
        run.load(options.checkpoint, options.device)
    if not options.export_only:
        train(run, options)
    run.model.to('cpu').eval()
    name = options.out.resolve().name
    export(run.model, options.out, f'# {name}\n')  # the weights are safe before they are measured
    counts = {256: 1} if options.smoke else {c: max(1, options.eval_documents * 512 // max(c, 512)) for c in CONTEXTS}
    rows = measure(run.model, counts)
    facts = {**run.state, 'seed': options.seed, 'minutes': run.state['seconds'] / 60, 'structured': options.start == 'structured',
             'steps': run.state['step'], 'device': f'{options.threads} CPU core' if options.device == 'cpu' else options.device}
    shared = shared_set(run.model, 1 if options.smoke else None)
    export(run.model, options.out, card(name, run.model, facts, rows, shared, limit=5 if options.smoke else 80))
    print(table(rows))


if __name__ == '__main__':
    main()
