"""Held-out prompts with one question at the end, as JSON lines on standard output. Needs no torch.

`tokens` begin with <|begin|>, which the tokenizer adds to a raw `prompt`; chat prompts spell it, as the template does.

    python3 models/train/make_eval.py --kind where --context 512 --n 60 --seed 0
"""

import argparse
import json

from data import TOKENIZER, generator, question_at_end
from tokenizer import BEGIN


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument('--kind', choices=['where', 'codes', 'likes'], default='where')
    parser.add_argument('--context', type=int, default=512, help='tokens of the prompt, about')
    parser.add_argument('--n', type=int, default=60)
    parser.add_argument('--seed', type=int, default=0)
    parser.add_argument('--chat', action='store_true', help="in the chat template's form")
    parser.add_argument('--text-only', action='store_true', help='context, kind, prompt and answer, without token ids')
    options = parser.parse_args()
    for i in range(options.n):
        rng = generator('eval', options.seed, options.kind, options.context, i)
        prompt, answer = question_at_end(rng, options.context, options.kind, options.chat)
        line = {'context': options.context, 'kind': options.kind, 'prompt': prompt, 'answer': answer}
        if not options.chat:
            line['prompt'] = prompt[len(BEGIN):]  # the tokenizer adds it to raw text
        if not options.text_only:
            line |= {'tokens': TOKENIZER.encode(prompt), 'answer_tokens': TOKENIZER.encode(answer)}
        print(json.dumps(line))


if __name__ == '__main__':
    main()
