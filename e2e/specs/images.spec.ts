import { expect, test } from '@playwright/test';
import sharp from 'sharp';
import { build } from 'vite';
import { Random } from '../../src/base/random.js';
import { described, draw, type Thing } from '../../models/drawing.js';
import type * as Harness from '../support/image_harness.js';
import { mmprojOf, textGgufOf } from '../../src/model/testing/gguf/mmproj.js';
import { makeRandomVision } from '../../src/model/testing/random_vision.js';
import { openLibraryPage } from '../support/library_page.js';

// How a page decodes pictures of prompts: the same pixels as Node.

let script: string;
test.beforeAll(async () => {
  const built = await build({
    configFile: false,
    logLevel: 'silent',
    build: {
      write: false,
      minify: false,
      lib: { entry: 'e2e/support/image_harness.ts', formats: ['es'] },
      rolldownOptions: { output: { codeSplitting: false }, external: ['sharp'] },
    },
  });
  script = (built as { output: { code: string }[] }[])[0]!.output[0]!.code;
});

const random = new Random(5);
/** Of few colours, as a GIF has. */
const few = Uint8Array.from({ length: 20 * 12 * 3 }, () => 255 * random.integer(2));
const picture = () => sharp(few, { raw: { width: 20, height: 12, channels: 3 } });

test('pictures in every form that a page has', async ({ page }) => {
  const files = Object.fromEntries(
    await Promise.all(
      (['png', 'webp', 'gif'] as const).map(async (format) => {
        const bytes = await picture().toFormat(format, { lossless: true, dither: 0 }).toBuffer();
        return [format, bytes.toString('base64')] as const;
      }),
    ),
  );
  // The left half is white; turned by a quarter.
  const half = Uint8Array.from({ length: 32 * 16 * 3 }, (_, at) => (Math.floor(at / 3) % 32 < 16 ? 255 : 0));
  const jpeg = await sharp(half, { raw: { width: 32, height: 16, channels: 3 } })
    .jpeg({ quality: 100 })
    .withMetadata({ orientation: 6 })
    .toBuffer();
  await page.route('**/plain.html', (route) => route.fulfill({ contentType: 'text/html', body: '<!doctype html>' }));
  await page.route('**/harness.js', (route) => route.fulfill({ contentType: 'text/javascript', body: script }));
  await page.route('**/own.png', (route) =>
    route.fulfill({ contentType: 'image/png', body: Buffer.from(files['png']!, 'base64') }),
  );
  await page.goto('/plain.html');
  const found = await page.evaluate(
    async ([given, turned, address]) => {
      const { decodeImage } = (await import(address)) as typeof Harness;
      const bytesOf = (base64: string): Uint8Array<ArrayBuffer> =>
        Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0));
      const told = async (source: Parameters<typeof decodeImage>[0]): Promise<[number, number, number[]]> => {
        const { width, height, data } = await decodeImage(source);
        return [width, height, [...data]];
      };
      const png = bytesOf(given['png']!);
      const bitmap = await createImageBitmap(new Blob([png]));
      const canvas = new OffscreenCanvas(20, 12);
      const context = canvas.getContext('2d')!;
      context.drawImage(bitmap, 0, 0);
      const element = document.createElement('canvas');
      [element.width, element.height] = [20, 12];
      element.getContext('2d')!.drawImage(bitmap, 0, 0);
      const image = new Image();
      image.src = '/own.png';
      await image.decode();
      const same: Record<string, Awaited<ReturnType<typeof told>>> = {};
      for (const [name, source] of Object.entries({
        png,
        webp: bytesOf(given['webp']!),
        gif: bytesOf(given['gif']!),
        blob: new Blob([png]),
        data: `data:image/png;base64,${given['png']!}`,
        'own address': '/own.png',
        'own url': new URL('/own.png', location.href),
        bitmap,
        canvas,
        element,
        image,
        pixels: context.getImageData(0, 0, 20, 12),
      }))
        same[name] = await told(source);
      const [width, height, pixels] = await told(bytesOf(turned));
      const errors: string[] = [];
      for (const source of ['https://elsewhere.test/a.png', new TextEncoder().encode('<svg/>'), png.subarray(0, 60)])
        errors.push(await decodeImage(source as string).then(String, (error: { code: string }) => error.code));
      return { same, turned: [width, height, pixels[0]!, pixels.at(-1)!], errors };
    },
    [files, jpeg.toString('base64'), '/harness.js'] as const,
  );
  for (const [name, got] of Object.entries(found.same)) expect(got, name).toEqual([20, 12, [...few]]);
  const [width, height, upper, lower] = found.turned;
  expect([width, height]).toEqual([16, 32]);
  expect(upper).toBeGreaterThan(250);
  expect(lower).toBeLessThan(5);
  expect(found.errors).toEqual(['usage', 'unsupported', 'format']);
});

test('in a page: what is in a picture', async ({ page }) => {
  const things: Thing[] = [
    [0, 0, 0],
    [3, 2, 4],
    [2, 1, 8],
  ];
  const [width, height] = [150, 120];
  const drawn = draw(things, { width, height, ground: 238 });
  const bytes = await sharp(drawn, { raw: { width, height, channels: 3 } })
    .png()
    .toBuffer();
  await openLibraryPage(page);
  const texts = await page.evaluate(
    async ([base64, asked]) => {
      const address = '/lib/splitkv.js';
      const { load } = (await import(address)) as typeof import('../../src/index.js');
      const model = await load('/models/tiny-vlm/', { images: true, cache: false, contextLength: 512 });
      const image = new Blob([Uint8Array.from(atob(base64), (letter) => letter.charCodeAt(0))]);
      const said: string[] = [];
      for (const text of asked) {
        const content = [{ type: 'image', image } as const, { type: 'text', text } as const];
        const prompt = { messages: [{ role: 'user', content } as const] };
        said.push((await model.generate(prompt, { temperature: 0, maxTokens: 40 }).result).text.trim());
      }
      // And by the Prompt API, as pages have pictures.
      const face = '/lib/splitkv-prompt_api.js';
      const { promptApi } = (await import(face)) as typeof import('../../src/app/prompt_api/index.js');
      const bitmap = await createImageBitmap(image);
      const canvas = document.createElement('canvas');
      [canvas.width, canvas.height] = [bitmap.width, bitmap.height];
      canvas.getContext('2d')!.drawImage(bitmap, 0, 0);
      for (const value of [bitmap, canvas, image]) {
        const expectedInputs = [{ type: 'image' }];
        const session = await promptApi(model).create({ expectedInputs, samplingMode: 'most-predictable' });
        const content = [{ type: 'image', value } as const, { type: 'text', value: asked[0] } as const];
        said.push((await session.prompt([{ role: 'user', content }])).trim());
      }
      await model.dispose();
      return said;
    },
    [bytes.toString('base64'), ['what is in the picture?', 'how many shapes are there?']] as const,
  );
  const seen = described(things);
  expect(texts).toEqual([seen, 'three.', seen, seen, seen]);
});

test('in a page: a .gguf file and its encoder, which are opened from the disk', async ({ page }) => {
  const made = makeRandomVision({ seed: 4 });
  const base64 = (bytes: Uint8Array | string): string => Buffer.from(bytes).toString('base64');
  const given = {
    folder: [...made.files].map(([name, bytes]) => [name, base64(bytes)] as const),
    gguf: [
      ['tiny-F32.gguf', base64(textGgufOf(made))],
      ['mmproj-tiny-F32.gguf', base64(mmprojOf(made))],
    ] as const,
    image: base64(await picture().png().toBuffer()),
  };
  await openLibraryPage(page);
  const { tokens, refused } = await page.evaluate(async ({ folder, gguf, image }) => {
    const address = '/lib/splitkv.js';
    const { load } = (await import(address)) as typeof import('../../src/index.js');
    const bytesOf = (text: string) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    const filesOf = (list: readonly (readonly [name: string, bytes: string])[]): File[] =>
      list.map(([name, bytes]) => new File([bytesOf(bytes)], name));
    const tokensOf = async (files: File[]): Promise<readonly number[]> => {
      const model = await load(files, { images: true, cache: false, contextLength: 256, weights: 'f32' });
      const prompt = { prompt: 'so <image>', images: [new Blob([bytesOf(image)])] };
      const { tokens } = await model.generate(prompt, { temperature: 0, maxTokens: 6, ignoreEos: true }).result;
      await model.dispose();
      return tokens;
    };
    const tokens = [await tokensOf(filesOf(folder)), await tokensOf(filesOf(gguf))];
    const refused = await tokensOf(filesOf(gguf).slice(0, 1)).catch((error: unknown) => String(error));
    return { tokens, refused };
  }, given);
  expect(tokens[0]).toHaveLength(6);
  expect(tokens[1]).toEqual(tokens[0]);
  expect(refused).toMatch(/no mmproj file lies beside tiny-F32\.gguf/);
});
