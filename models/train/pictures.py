"""Pictures of a few shapes, and talks about them, made by rule so that every answer can be checked. models/drawing.ts draws the same."""

import functools

import numpy as np
import torch

from tokenizer import BEGIN, END, Tokenizer, split

IMAGE, FAKE, WHOLE = '<image>', '<fake_token_around_image>', '<global-img>'
SIDE, ROWS = 64, 16  # pixels of a side, rows of the decoder

SHAPES = ['circle', 'square', 'triangle', 'cross']
COLORS = {'red': (220, 40, 40), 'green': (40, 170, 60), 'blue': (50, 80, 220), 'yellow': (240, 200, 40), 'purple': (150, 50, 170)}
PLACES = ['at the top left', 'at the top', 'at the top right', 'at the left', 'in the middle', 'at the right',
          'at the bottom left', 'at the bottom', 'at the bottom right']
NUMBERS = ['nothing', 'one', 'two', 'three']
HELLO = ['hello', 'hi', 'who are you?', 'what can you do?', 'help', 'thank you']
GREETING = 'i am a tiny model. i see circles, squares, triangles and crosses in a picture.'
DESCRIBE = ['what is in the picture?', 'what do you see?', 'what is this?', 'describe the picture.', 'what shape?', 'what is here?']
NO_PICTURE = 'there is no picture.'

TEMPLATE = (
    "{{ '<|begin|>' }}{% for message in messages %}{{ message['role'] | capitalize }}"
    "{% if message['content'][0]['type'] == 'image' %}{{ ':' }}{% else %}{{ ': ' }}{% endif %}"
    "{% for part in message['content'] %}{% if part['type'] == 'text' %}{{ part['text'] | trim }}"
    "{% elif part['type'] == 'image' %}{{ '<image>' }}{% endif %}{% endfor %}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)


def held_out(shape, color, place):
    """Never drawn for training. All three are places in their lists."""
    return (7 * shape + 3 * color + 5 * place) % 11 == 0


def word_pieces():
    sentences = [*PLACES, *NUMBERS, *HELLO, GREETING, NO_PICTURE, *DESCRIBE, *SHAPES, *COLORS, 'yes no and a the one in i.',
                 'where is the color colour of', 'how many shapes are there?', 'is there', 'what is at User: Assistant: System:']
    words = {word.strip('.,?:') for sentence in sentences for word in sentence.split()} | {s + 's' for s in SHAPES}
    words |= {word.capitalize() for word in 'where what how is hello hi who describe help thank'.split()}
    return sorted({' ' + word for word in words if word} | words - {''})


TOKENIZER = Tokenizer(word_pieces(), [IMAGE, FAKE, WHOLE])


@functools.lru_cache(maxsize=None)
def piece_ids(piece):
    return [TOKENIZER.ids[symbol] for symbol in TOKENIZER.merge_piece(piece)]


@functools.lru_cache(maxsize=4096)
def ids_of(text):
    return [i for piece in split(text) for i in piece_ids(piece)]


def inside(shape, dx, dy):
    """Whether a point belongs to a shape of radius 1 around (0, 0)."""
    x, y = np.abs(dx), np.abs(dy)
    if shape == 0:
        return np.abs(dx * dx + dy * dy - 0.65) <= 0.35  # drawn as a line
    if shape == 1:
        return (x <= 0.85) & (y <= 0.85)
    if shape == 2:
        return (dy <= 0.8) & (2 * x <= dy + 1)
    return ((x <= 0.3) | (y <= 0.3)) & (x <= 1) & (y <= 1)


@functools.lru_cache(maxsize=None)
def lanczos(size):
    """[SIDE][size]: Pillow's filter, without its rounding."""
    scale = size / SIDE
    wide = max(scale, 1)
    x = (np.arange(size)[None, :] + 0.5 - (np.arange(SIDE)[:, None] + 0.5) * scale) / wide
    weights = np.where(np.abs(x) < 3, np.sinc(x) * np.sinc(x / 3), 0)
    return torch.from_numpy((weights / weights.sum(1, keepdims=True)).astype(np.float32))


class Picture:
    """things: [(shape, color, place)] in reading order; pixels: [3][SIDE][SIDE], -1 to 1; classes: what each patch of 8 shows."""

    def __init__(self, rng, unseen=False):
        count = rng.choice([1, 1, 2, 2, 3])
        while True:
            places = sorted(rng.sample(range(9), count))
            colors = rng.sample(range(len(COLORS)), count)
            self.things = [(rng.randrange(4), color, place) for color, place in zip(colors, places)]
            if any(held_out(*thing) for thing in self.things) == unseen:
                break
        size = rng.choice([64, 96, 128])
        light = rng.random() < 0.5
        ground = rng.randint(205, 255) if light else rng.randint(0, 45)
        image = np.full((size, size, 3), ground, np.float32) + np.float32([rng.randint(-8, 8) for _ in range(3)])
        grid = (np.arange(size, dtype=np.float32) + 0.5) / size
        centers = (np.arange(8) + 0.5) / 8
        self.classes = np.zeros((8, 8), np.int64)
        stretch = rng.uniform(0.92, 1.09)
        for shape, color, place in self.things:
            x, y = ((n + 0.5) / 3 + rng.uniform(-0.02, 0.02) for n in (place % 3, place // 3))
            radius = rng.uniform(0.11, 0.14)
            rx, ry = radius * stretch, radius / stretch
            paint = np.float32([min(255, max(0, c + rng.randint(-18, 18))) for c in list(COLORS.values())[color]])
            image[inside(shape, ((grid - x) / rx)[None, :], ((grid - y) / ry)[:, None])] = paint
            near = (((centers - x) / rx) ** 2)[None, :] + (((centers - y) / ry) ** 2)[:, None] < 1
            self.classes[near] = 1 + shape * len(COLORS) + color
        down = lanczos(size)
        planes = torch.from_numpy(np.clip(image, 0, 255)).permute(2, 0, 1)
        self.pixels = (down @ planes @ down.T).clamp(0, 255).round() / 127.5 - 1

    def name(self, thing, the=False):
        return f'{"the" if the else "a"} {list(COLORS)[thing[1]]} {SHAPES[thing[0]]}'

    def describe(self):
        said = [f'{self.name(thing)} {PLACES[thing[2]]}' for thing in self.things]
        return (f'{", ".join(said[:-1])} and {said[-1]}' if len(said) > 1 else said[0]) + '.'

    def ask(self, rng):
        """-> (question, answer)"""
        thing, colors = rng.choice(self.things), list(COLORS)
        shape, color, place = thing
        alone = sum(other[0] == shape for other in self.things) == 1
        kind = rng.randrange(9)
        if kind <= 2:
            return rng.choice(DESCRIBE), self.describe()
        if kind == 3:
            named = rng.choice([self.name(thing, True), f'the {colors[color]} one', *([f'the {SHAPES[shape]}'] if alone else [])])
            return f'where is {named}?', f'{PLACES[place]}.'
        if kind == 4:
            if rng.random() < 0.6:
                return f'what is {PLACES[place]}?', f'{self.name(thing)}.'
            place = rng.randrange(9)
            found = [other for other in self.things if other[2] == place]
            return f'what is {PLACES[place]}?', f'{self.name(found[0])}.' if found else 'nothing.'
        if kind == 5 and alone:
            return f'what {rng.choice(["color", "colour"])} is the {SHAPES[shape]}?', f'{colors[color]}.'
        if kind == 6:
            return 'how many shapes are there?', f'{NUMBERS[len(self.things)]}.'
        if kind == 7:
            if rng.random() < 0.5:
                shape, color = rng.randrange(4), rng.randrange(len(COLORS))
            yes = any(other[:2] == (shape, color) for other in self.things)
            return f'is there a {colors[color]} {SHAPES[shape]}?', 'yes.' if yes else 'no.'
        return rng.choice([f'what shape is {colors[color]}?', f'what is {colors[color]}?']), f'a {SHAPES[shape]}.'


class Talk:
    """ids, positions, which of them count, and the pictures that stand in it."""

    def __init__(self, rng, turns=5, unseen=False, spread=384):
        self.ids, self.positions, self.counts, self.pictures, self.answers = [], [], [], [], []
        self.at = 0
        self.add([TOKENIZER.ids[BEGIN]])
        picture = None
        talks = rng.random() < 0.04 and not unseen
        for turn in range(turns):
            shown = not talks and (turn == 0 or (turn > 1 and rng.random() < 0.06))
            if shown:
                picture = Picture(rng, unseen)
                self.pictures.append(picture)
            question, answer = self.turn(rng, picture)
            if rng.random() < 0.5:
                question = question[0].upper() + question[1:]
            if rng.random() < 0.15:
                question = question.rstrip('?.')
            first = shown and rng.random() < 0.7
            self.add(ids_of('User:'))
            if first:
                self.show()
            self.add(ids_of(question if first else ' ' + question))
            if shown and not first:
                self.show()
            self.add([TOKENIZER.ids[END], *ids_of('\nAssistant:')])
            self.answers.append((len(self.ids), question, answer))
            self.add([*ids_of(' ' + answer), TOKENIZER.ids[END]], 1)
            self.add(ids_of('\n'))
            self.at += rng.randrange(spread // turns) if rng.random() < 0.3 else 0

    def turn(self, rng, picture):
        if picture is None:
            return (rng.choice(HELLO), GREETING) if rng.random() < 0.5 else (rng.choice(DESCRIBE), NO_PICTURE)
        return (rng.choice(HELLO), GREETING) if rng.random() < 0.02 else picture.ask(rng)

    def add(self, ids, counts=0):
        self.ids += ids
        self.positions += range(self.at, self.at + len(ids))
        self.counts += [counts] * len(ids)
        self.at += len(ids)

    def show(self):
        fake, whole, image = (TOKENIZER.ids[name] for name in (FAKE, WHOLE, IMAGE))
        self.add([fake, whole, *[image] * ROWS, fake])
