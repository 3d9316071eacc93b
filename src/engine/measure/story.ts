import { nth } from '../../base/lists.js';
import { Random } from '../../base/random.js';

/**
 * Stories with facts and a question at the end, by the rules that made the embedded models' training data (`models/train/data.py`),
 * with draws of their own. For other models they are plain English.
 */
const words = (text: string): readonly string[] => text.trim().split(/\s+/);

const NAMES =
  words(`mia owen nora leo ivy max zoe sam eva ben lily tom ruby jack anna noah ella finn rosa hugo maya theo lena oscar
  clara felix june amos tara nick vera paul sara luke emma dan`);
const ADJECTIVES =
  words(`red blue green yellow white black pink brown orange purple gray gold silver old new small big round shiny
  wooden`);
const OBJECTS =
  words(`key cup ball book hat coat lamp ring coin drum bell kite boat doll map pen rope shoe spoon plate bottle clock
  flute candle scarf glove brush mirror blanket letter whistle needle`);
const ROOMS =
  words(`kitchen garden attic cellar garage bedroom office library hallway tower barn cabin workshop bathroom closet
  porch`);
const CONTAINERS = words('box drawer basket shelf bag chest jar bucket cupboard cabinet crate trunk');
const MOODS = words('quiet lazy brave clever gentle happy tiny funny sleepy proud shy wild');
const ANIMALS = words('owl fox cat dog bear rabbit duck horse frog goat mouse turtle robin tiger wolf sheep');
const VERBS = words('put left hid kept');
const FILLERS = [
  'it was a sunny day .',
  'it was a cold morning .',
  'the rain came in the night .',
  'the wind was warm .',
  'NAME walked to the ROOM .',
  'NAME sat by the river .',
  'NAME sang a song .',
  'NAME and FRIEND went home .',
  'NAME looked at the sky .',
  'NAME ate some bread .',
  'NAME said hello to FRIEND .',
  'NAME was hungry .',
  'NAME was tired .',
  'they all laughed .',
  'the ANIMAL slept under the tree .',
  'the stars were bright .',
  'then NAME found the ANIMAL .',
  'NAME played with FRIEND .',
];

interface Fact {
  readonly sentence: string;
  readonly question: string;
}

/** A story of about `length` words (tokens of the embedded models) that ends with a question about it. The same for the same seed. */
export function storyQuestion(length: number, seed: number): string {
  const random = new Random(seed);
  const facts = new Facts(random, length);
  const told: Fact[] = [];
  const sentences: string[] = [];
  const plain = random.next() < 0.5;
  let count = 0;
  while (count < length - 10 || told.length === 0) {
    const fact = plain || random.next() < 0.5 ? facts.draw() : undefined;
    if (fact) told.push(fact);
    const sentence = fact?.sentence ?? filler(random);
    sentences.push(sentence);
    count += words(sentence).length;
  }
  return [...sentences, pick(random, told).question].join(' ');
}

const pick = <T>(random: Random, list: readonly T[]): T => nth(list, random.integer(list.length));

function shuffled<T>(random: Random, list: readonly T[]): T[] {
  const out = [...list];
  for (let i = out.length - 1; i > 0; i--) {
    const j = random.integer(i + 1);
    [out[i], out[j]] = [nth(out, j), nth(out, i)];
  }
  return out;
}

function filler(random: Random): string {
  const [name = '', friend = ''] = shuffled(random, NAMES);
  return pick(random, FILLERS)
    .replace('NAME', name)
    .replace('FRIEND', friend)
    .replace('ROOM', pick(random, ROOMS))
    .replace('ANIMAL', pick(random, ANIMALS));
}

/** Facts of one story: no key comes twice. */
class Facts {
  readonly #keys: string[];
  readonly #coded: string[];
  readonly #liking: string[];

  constructor(
    readonly random: Random,
    length: number,
  ) {
    // Narrow pools make keys that differ in one word only, so that both words must be matched.
    const wanted = 8 + Math.ceil(length / 8);
    let adjectives: readonly string[] = ADJECTIVES;
    let objects: readonly string[] = OBJECTS;
    do {
      adjectives = shuffled(random, ADJECTIVES).slice(0, 3 + random.integer(ADJECTIVES.length - 2));
      objects = shuffled(random, OBJECTS).slice(0, 3 + random.integer(OBJECTS.length - 2));
    } while (adjectives.length * objects.length < Math.min(wanted, ADJECTIVES.length * OBJECTS.length));
    this.#keys = shuffled(
      random,
      adjectives.flatMap((adjective) => objects.map((object) => `${adjective} ${object}`)),
    );
    this.#coded = shuffled(random, NAMES);
    this.#liking = shuffled(random, NAMES);
  }

  draw(): Fact {
    const { random } = this;
    const kind = random.next();
    const name = kind < 0.2 ? this.#coded.pop() : kind < 0.4 ? this.#liking.pop() : undefined;
    if (name !== undefined && kind < 0.2) {
      const code = [0, 1, 2].map(() => random.integer(10)).join(' ');
      return { sentence: `the code of ${name} is ${code} .`, question: `what is the code of ${name} ?` };
    }
    if (name !== undefined) {
      const liked = `the ${pick(random, MOODS)} ${pick(random, ANIMALS)}`;
      return { sentence: `${name} likes ${liked} .`, question: `what does ${name} like ?` };
    }
    // A story longer than all keys tells of the first again.
    const key = (this.#keys.length > 1 && this.#keys.pop()) || nth(this.#keys, 0);
    const place = `in the ${pick(random, ROOMS)} ${pick(random, CONTAINERS)}`;
    const sentence = `${pick(random, NAMES)} ${pick(random, VERBS)} the ${key} ${place} .`;
    return { sentence, question: `where is the ${key} ?` };
  }
}
