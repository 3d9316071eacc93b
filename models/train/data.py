"""Stories with facts and questions, made by rule so that every answer can be checked, and a little chat."""

import random

from tokenizer import ASSISTANT, BEGIN, END, USER, Tokenizer

NAMES = '''mia owen nora leo ivy max zoe sam eva ben lily tom ruby jack anna noah ella finn rosa hugo maya theo lena oscar
    clara felix june amos tara nick vera paul sara luke emma dan'''.split()
ADJECTIVES = '''red blue green yellow white black pink brown orange purple gray gold silver old new small big round shiny
    wooden'''.split()
OBJECTS = '''key cup ball book hat coat lamp ring coin drum bell kite boat doll map pen rope shoe spoon plate bottle clock
    flute candle scarf glove brush mirror blanket letter whistle needle'''.split()
ROOMS = '''kitchen garden attic cellar garage bedroom office library hallway tower barn cabin workshop bathroom closet
    porch'''.split()
CONTAINERS = 'box drawer basket shelf bag chest jar bucket cupboard cabinet crate trunk'.split()
MOODS = 'quiet lazy brave clever gentle happy tiny funny sleepy proud shy wild'.split()
ANIMALS = 'owl fox cat dog bear rabbit duck horse frog goat mouse turtle robin tiger wolf sheep'.split()
DIGITS = '0 1 2 3 4 5 6 7 8 9'.split()
VERBS = 'put left hid kept'.split()  # one form: they keep the distance from the thing to its place
PUNCTUATION = '. ? !'.split()

FILLERS = [
    'it was a sunny day .', 'it was a cold morning .', 'the rain came in the night .', 'the wind was warm .',
    '{name} walked to the {room} .', '{name} sat by the river .', '{name} sang a song .', '{name} and {friend} went home .',
    '{name} looked at the sky .', '{name} ate some bread .', '{name} said hello to {friend} .', '{name} was hungry .',
    '{name} was tired .', 'they all laughed .', 'the {animal} slept under the tree .', 'the stars were bright .',
    'then {name} found the {animal} .', '{name} played with {friend} .',
]
SMALL_TALK = [
    (['hello', 'hi', 'hello !', 'hi !', 'good morning', 'good morning !'], 'hello ! how are you ?'),
    (['how are you ?', 'how are you', 'hello ! how are you ?'], 'i am happy . thank you .'),
    (['who are you ?', 'what are you ?', 'who are you', 'what is this ?'],
     'i am a tiny model . i read stories and answer questions .'),
    (['what can you do ?', 'help', 'help me', 'what can you do'],
     'i can find things in a story . tell me a story and ask me where they are .'),
    (['thank you', 'thank you !', 'thank you .'], 'you are welcome .'),
    (['goodbye', 'bye', 'goodbye !', 'good night'], 'goodbye !'),
]
STORY = ('once there was a {mood} {animal} . it lived {home} . one day it met a {mood2} {animal2} . they {did} together . '
         'then the {animal2} found a {adjective} {object} . the {animal} was {end} . the end .')
HOMES = ['by the river', 'under the tree', 'in the barn', 'in the garden', 'in the tower']
DEEDS = ['played', 'walked', 'sang', 'laughed', 'went home']
ENDS = ['happy', 'proud', 'tired', 'sleepy']
STORY_REQUESTS = ['tell me a story', 'tell me a story .', 'tell me a story !']
CAPITALISED = 'where what who tell hello hi how good thank the it then they'.split()


def word_pieces():
    """Every string that must be one token: each word after a space, and the ones that may open a text without it."""
    sentences = [*FILLERS, STORY, *HOMES, *DEEDS, *ENDS, *STORY_REQUESTS, 'tell me a story about a',
                 'where is the', 'what is the code of', 'what does like', 'likes the in the']
    for asked, answer in SMALL_TALK:
        sentences += [*asked, answer]
    words = {word for sentence in sentences for word in sentence.split() if '{' not in word}
    for group in (NAMES, ADJECTIVES, OBJECTS, ROOMS, CONTAINERS, MOODS, ANIMALS, DIGITS, VERBS, PUNCTUATION):
        words.update(group)
    openers = {*NAMES, *ADJECTIVES, *(sentence.split()[0] for sentence in sentences if sentence[0] != '{')}
    capitals = {word.capitalize() for word in CAPITALISED}
    return sorted({' ' + word for word in words | capitals} | openers | capitals | set(PUNCTUATION))


TOKENIZER = Tokenizer(word_pieces())


class Writer:
    """Collects a document as pieces of text, one token each."""

    def __init__(self, natural=False):
        """natural: `Where is the key?` instead of `where is the key ?` in everything but answers."""
        self.natural = natural
        self.pieces, self.weights, self.answers, self.sentence_ends = [], [], [], []
        self.special(BEGIN)

    def __len__(self):
        return len(self.pieces)

    def add(self, piece, weight, answer=False):
        self.pieces.append(piece)
        self.weights.append(weight)
        self.answers.append(answer)
        self.sentence_ends.append(piece[-1] in '.!')

    def special(self, token, weight=0.2):
        self.add(token, weight)
        self.glue = token != ASSISTANT  # answers keep the leading space, so that they are the same with and without chat

    def say(self, sentence, weight=0.2, answer=False, own=False):
        """answer: a looked-up answer, which accuracy counts; own: the model's words, never in natural style."""
        start = True
        for word in sentence.split():
            natural = self.natural and not own
            glued = self.glue or (natural and word in PUNCTUATION)
            if natural and start and word in CAPITALISED:
                word = word.capitalize()
            self.add(word if glued else ' ' + word, weight, answer)
            self.glue, start = False, word in PUNCTUATION

    def text(self):
        return ''.join(self.pieces)

    def ids(self):
        return [PIECE_IDS[piece] for piece in self.pieces]


class PieceIds(dict):
    def __missing__(self, piece):
        ids = TOKENIZER.encode(piece)
        assert len(ids) == 1, f'{piece!r} is {len(ids)} tokens'
        self[piece] = ids[0]
        return ids[0]


PIECE_IDS = PieceIds()


class Facts:
    """Facts of one document; a key never comes twice. fact = (kind, sentence, question, answer)."""

    def __init__(self, rng, length):
        self.rng = rng
        # Narrow pools make keys that differ in one word only, so that both words must be matched.
        wanted = 8 + length // 8
        while True:
            adjectives = rng.sample(ADJECTIVES, rng.randint(3, len(ADJECTIVES)))
            objects = rng.sample(OBJECTS, rng.randint(3, len(OBJECTS)))
            if len(adjectives) * len(objects) >= wanted:
                break
        self.keys = [(a, o) for a in adjectives for o in objects]
        rng.shuffle(self.keys)
        self.coded, self.liking = rng.sample(NAMES, len(NAMES)), rng.sample(NAMES, len(NAMES))

    def draw(self, kind=None):
        rng = self.rng
        kind = kind or rng.choices(['where', 'codes', 'likes'], [0.6, 0.2, 0.2])[0]
        if kind == 'codes' and self.coded:
            name, code = self.coded.pop(), ' '.join(rng.choices(DIGITS, k=3))
            return kind, f'the code of {name} is {code} .', f'what is the code of {name} ?', f'{code} .'
        if kind == 'likes' and self.liking:
            name, liked = self.liking.pop(), f'the {rng.choice(MOODS)} {rng.choice(ANIMALS)}'
            return kind, f'{name} likes {liked} .', f'what does {name} like ?', f'{liked} .'
        adjective, thing = self.keys.pop()
        place = f'in the {rng.choice(ROOMS)} {rng.choice(CONTAINERS)}'
        sentence = f'{rng.choice(NAMES)} {rng.choice(VERBS)} the {adjective} {thing} {place} .'
        return 'where', sentence, f'where is the {adjective} {thing} ?', f'{place} .'


def filler(rng):
    name, friend = rng.sample(NAMES, 2)
    return rng.choice(FILLERS).format(name=name, friend=friend, room=rng.choice(ROOMS), animal=rng.choice(ANIMALS))


def story(rng, mood=None, animal=None):
    moods, animals = rng.sample(MOODS, 2), rng.sample(ANIMALS, 2)
    animal = animal or animals[0]
    other = animals[1] if animals[1] != animal else animals[0]
    return STORY.format(mood=mood or moods[0], animal=animal, mood2=moods[1], animal2=other, home=rng.choice(HOMES),
                        did=rng.choice(DEEDS), adjective=rng.choice(ADJECTIVES), object=rng.choice(OBJECTS),
                        end=rng.choice(ENDS))


def chatter(rng, out):
    """One turn of small talk, or a story on request."""
    out.special(USER)
    if rng.random() < 0.3:
        mood, animal = rng.choice([None, rng.choice(MOODS)]), rng.choice(ANIMALS)
        if rng.random() < 0.5:
            out.say(rng.choice(STORY_REQUESTS))
            reply = story(rng)
        else:
            out.say(f'tell me a story about a {mood + " " if mood else ""}{animal}' + rng.choice(['', ' .']))
            reply = story(rng, mood, animal)
    else:
        asked, reply = rng.choice(SMALL_TALK)
        out.say(rng.choice(asked))
    out.special(ASSISTANT)
    out.say(reply, weight=0.5, own=True)
    out.special(END, weight=0.5)


def ask(rng, out, fact, chat, in_turn=False):
    """in_turn: the user's turn, in which the story was told, is still open."""
    if chat and not in_turn:
        out.special(USER)
    bare = chat and rng.random() < 0.08  # people forget question marks
    out.say(fact[2][:-2] if bare else fact[2])
    if chat:
        out.special(ASSISTANT)
    out.say(fact[3], weight=1.0, answer=True, own=True)
    if chat:
        out.special(END, weight=0.5)


def tell(rng, out, facts, told, plain):
    """One sentence: plain documents are lists of facts, the others have as many sentences that say nothing."""
    if plain or rng.random() < 0.5:
        told.append(facts.draw())
        out.say(told[-1][1])
    else:
        out.say(filler(rng))


def document(rng, length):
    """A document of at least `length` tokens: raw text or chat; questions between the facts or all at the end."""
    out, told = Writer(natural=rng.random() < 0.12), []
    facts, plain, chat = Facts(rng, length), rng.random() < 0.5, rng.random() < 0.4
    chatting = chat and rng.random() < 0.6
    if chatting:
        for _ in range(rng.randint(1, 2)):
            chatter(rng, out)
    if rng.random() < 0.4:
        # A system message holds the story in some chats: the user's turn then opens at the question.
        in_turn = chat and (chatting or rng.random() < 0.6)
        if in_turn:
            out.special(USER)
        end = length * rng.uniform(0.4, 0.95) - 15
        while not told or len(out) < end:
            tell(rng, out, facts, told, plain)
        while len(out) < length:
            for fact in rng.sample(told, len(told)):
                ask(rng, out, fact, chat, in_turn)
                in_turn = False
                if len(out) >= length:
                    break
        return out
    unasked = []
    while len(out) < length:
        if chat:
            out.special(USER)
        for _ in range(rng.randint(1, 6)):
            before = len(told)
            tell(rng, out, facts, told, plain)
            unasked += told[before:]
        if not told:
            told.append(facts.draw())
            out.say(told[-1][1])
        first = True
        for _ in range(rng.randint(1, 4)):
            if unasked and rng.random() < 0.8:
                fact = unasked.pop(rng.randrange(len(unasked)))
            else:
                fact = rng.choice(told)
            ask(rng, out, fact, chat, in_turn=first)
            first = False
        if chatting and rng.random() < 0.15:
            chatter(rng, out)
    return out


def bootstrap_document(rng, length):
    """Two to four facts of one kind, asked again and again: the shortest road to looking up."""
    out, facts = Writer(), Facts(rng, 64)
    kind, chat = rng.choices(['where', 'codes', 'likes'], [0.6, 0.2, 0.2])[0], rng.random() < 0.3
    told = [facts.draw(kind) for _ in range(rng.randint(2, 4))]
    for fact in told:
        out.say(fact[1])
    while len(out) < length:
        for fact in rng.sample(told, len(told)):
            ask(rng, out, fact, chat)
    return out


def question_at_end(rng, length, kind, chat=False):
    """A prompt of about `length` tokens, the facts and then one question, and its answer: two texts."""
    out, told, facts, plain = Writer(), [], Facts(rng, length), rng.random() < 0.5
    if chat:
        out.special(USER)
    while len(out) < length - 10:
        tell(rng, out, facts, told, plain)
    matching = [fact for fact in told if fact[0] == kind]
    if not matching:
        return question_at_end(rng, length, kind, chat)
    fact = rng.choice(matching)
    out.say(fact[2])
    if chat:
        out.special(ASSISTANT)
    return out.text(), ' ' + fact[3]


def generator(purpose, *numbers):
    """A random generator of its own for each purpose ('train', 'eval'): the two never share a document's seed."""
    return random.Random(':'.join([purpose, *map(str, numbers)]))
