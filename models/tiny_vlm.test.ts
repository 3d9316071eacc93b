import sharp from 'sharp';
import { afterAll, expect, test } from 'vitest';
import { Random } from '../src/base/random.js';
import { range } from '../src/base/lists.js';
import { load } from '../src/engine/faces/load.js';
import type { LoadOptions, Model } from '../src/engine/contracts/api.js';
import { testAdapters } from '../src/gpu/testing/adapters.js';
import { drawn } from '../src/gpu/testing/draw.js';
import { COLOR_NAMES, described, draw, isHeldOut, questions, SHAPES, type Thing } from './drawing.js';

const adapter = (await testAdapters()).at(-1)!.name;
const models: Model[] = [];
const open = async (more: LoadOptions = {}): Promise<Model> => {
  const model = await load('models/tiny-vlm', { images: true, adapter, contextLength: 512, ...more });
  models.push(model);
  return model;
};
afterAll(() => Promise.all(models.map((model) => model.dispose())));

const png = async (things: readonly Thing[], width: number, height: number, ground: number): Promise<Uint8Array> => {
  const data = draw(things, { width, height, ground });
  const picture = sharp(data, { raw: { width, height, channels: 3 } });
  return new Uint8Array(await picture.png().toBuffer());
};

/** Things in other cells and colors, in order, the one of which training had none among them. */
function pictureOf(random: Random, count: number): readonly [things: readonly Thing[], heldOut: Thing] {
  for (;;) {
    const pick = (from: number): number[] => {
      const left = range(0, from);
      return range(0, count).map(() => left.splice(random.integer(left.length), 1)[0]!);
    };
    const colors = pick(COLOR_NAMES.length);
    const places = pick(9).toSorted((a, b) => a - b);
    const things = places.map((place, at): Thing => [random.integer(SHAPES.length), colors[at]!, place]);
    const heldOut = things.find(isHeldOut);
    if (heldOut) return [things, heldOut];
  }
}

const answer = { temperature: 0, maxTokens: 40 };

async function answered(model: Model, image: Uint8Array, question: string): Promise<string> {
  const content = [{ type: 'image', image } as const, { type: 'text', text: question } as const];
  const { text } = await model.generate({ messages: [{ role: 'user', content }] }, answer).result;
  return text.trim();
}

const kinds = [
  { weights: 'f16' },
  { weights: 'q8' },
  { ranks: 2, plan: 'tp', virtualRanks: true },
] as const satisfies LoadOptions[];
test.each(drawn(kinds, 1, 'tiny-vlm'))('says what is in pictures of things that it never saw, with %j', async (how) => {
  const model = await open(how);
  const random = new Random(1);
  const wrong: string[] = [];
  let asked = 0;
  for (const count of [1, 2, 1, 2, 3, 1, 2, 3]) {
    const [things, heldOut] = pictureOf(random, count);
    const [width, height] = [90 + random.integer(80), 90 + random.integer(80)];
    const image = await png(things, width, height, random.integer(2) === 0 ? 20 : 235);
    for (const [at, [question, expected]] of questions(things, heldOut).entries()) {
      const got = await answered(model, image, question);
      if (at === 0) expect(got).toBe(expected);
      asked++;
      if (got !== expected) wrong.push(`${described(things)} ${question} ${got}`);
    }
  }
  // The card says how often it is right of one thing among them.
  expect(wrong.length / asked, wrong.join('\n')).toBeLessThan(0.15);
});

test('every place: a wrong order of patches would show', async () => {
  const model = await open();
  for (const place of range(0, 9)) {
    const things: Thing[] = [[place % 4, (place * 2) % 5, place]];
    const image = await png(things, 128, 128, 230);
    expect(await answered(model, image, 'what do you see?')).toBe(described(things));
  }
});

test('a conversation about a picture', async () => {
  const model = await open();
  const things: Thing[] = [
    [0, 0, 0],
    [1, 2, 4],
  ];
  const talk = model.conversation();
  const image = await png(things, 200, 150, 240);
  const say = async (...asked: Parameters<typeof talk.send>): Promise<string> =>
    (await talk.send(...asked).result).text.trim();
  expect(
    await say(
      [
        { type: 'image', image },
        { type: 'text', text: 'what is in the picture?' },
      ],
      answer,
    ),
  ).toBe('a red circle at the top left and a blue square in the middle.');
  expect(await say('how many shapes are there?', answer)).toBe('two.');
  expect(await say('Describe the picture.', answer)).toBe(
    'a red circle at the top left and a blue square in the middle.',
  );
});
