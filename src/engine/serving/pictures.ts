import { ROPE_SPANS } from '../../../shaders/rope/rope_append/index.js';
import { contextFullError, limitError, unsupportedError, usageError } from '../../base/errors.js';
import { GIVEN_ID } from '../../base/kv_units.js';
import { count as counted, range, sum } from '../../base/lists.js';
import { joinFloats, sha256 } from '../../base/math.js';
import { decodeImage } from '../../images/decode.js';
import { IMAGE_LIMITS } from '../../images/header.js';
import { cutPicture, type CutSettings, cutSettings } from '../../images/cuts.js';
import type { Picture } from '../../images/picture.js';
import { type Grid, patchGrid, patchOrder, rowWidth, type VisionConfig } from '../../model/config/vision_config.js';
import type { PictureSpan } from '../../model/layers/attention/rope_table.js';
import { patchRows } from '../../model/vision/patch_rows.js';
import type { ImagePrompt, ImageSource, Prompt, TokenizeOptions } from '../contracts/api.js';
import type { Runner } from '../ranks/runner.js';
import { chatText, imagesOf, needTokenizer, type PromptReader, promptTokens, withoutImages } from './prompt_tokens.js';

/** Bytes of rows that are kept for pictures that come again, beside those of running requests. */
const KEPT_BYTES = 256 * 2 ** 20;
/** Pictures that are kept whatever they take: a request's, between being read and being run. */
const KEPT_LEAST = 2 * IMAGE_LIMITS.images;

/** Rows of a picture. */
interface Entry {
  /** What was made of which pixels. */
  readonly key: string;
  /** The id of its first row; those of the others follow. */
  readonly first: number;
  readonly count: number;
  /** Of its rows, where they have positions of their own. */
  readonly grid: Grid | undefined;
  /** f32 [count][`rowWidth`]. */
  readonly made: Promise<Float32Array>;
  rows: Float32Array | undefined;
  /** Running requests that have it. */
  held: number;
}

/** A picture as the model wants it. */
interface Ready extends Omit<ReturnType<typeof cutPicture>, 'tiles'> {
  readonly key: string;
  tiles(): Promise<readonly Picture[]>;
}

/**
 * The pictures of a model's prompts. In a prompt's ids each row of a picture has an id of its own, from GIVEN_ID on, equal for equal
 * pictures: so all that tells prompts apart by their ids (the prefix cache above all) tells pictures apart, too. The rows themselves are
 * here, and go to the ranks with the steps that need them.
 */
export class Pictures {
  /** The one that was used last is the last. */
  readonly #entries = new Map<string, Entry>();
  #next = GIVEN_ID;
  /** What was given before. */
  readonly #seen = new WeakMap<object, Ready>();
  readonly #seenUrls = new Map<string, Ready>();

  readonly settings: CutSettings;

  /** @param file how pictures are cut, as the model's files say @throws SplitkvError `unsupported` for what they say */
  constructor(
    readonly vision: VisionConfig,
    file: Readonly<Record<string, unknown>>,
    readonly runner: () => Runner,
  ) {
    this.settings = cutSettings(file, vision, vision.file);
  }

  /**
   * The ids that a prompt with images feeds: their rows are computed, where they aren't known.
   * @throws as `promptTokens`; SplitkvError `usage` where images and placeholders aren't as many, and as `decodeImage`
   */
  async ids(prompt: Prompt, reader: PromptReader, options: TokenizeOptions = {}): Promise<readonly number[]> {
    const { plain, images } = apart(prompt);
    if (images.length > IMAGE_LIMITS.images)
      throw usageError(`${images.length} images in a prompt; at most ${IMAGE_LIMITS.images} are taken`);
    const { imageToken, runs = 0 } = this.vision;
    const { promptRows } = this.runner();
    if (promptRows < Math.min(runs, reader.contextLength))
      throw limitError(`images take steps of ${runs} rows; there is room for ${promptRows}: use a larger prefillChunk`);
    const ready: Ready[] = [];
    let needed = 0;
    for (const image of images) {
      ready.push(await this.#ready(image));
      needed += ready.at(-1)!.count;
      // Before more is decoded.
      if (needed > reader.contextLength) throw contextFullError(needed, reader.contextLength, undefined, true);
    }
    let ids =
      typeof plain === 'object' && !('messages' in plain) && !('prefix' in plain)
        ? ([...plain] as number[])
        : undefined;
    if (!ids) {
      const tokenizer = needTokenizer(reader, 'a prompt with images');
      const isChat = typeof plain !== 'string';
      const text = isChat ? chatText(plain, tokenizer, options) : plain;
      const mark = this.placeholder(reader);
      const [start = '', ...rest] = text.split(mark);
      if (rest.length !== images.length) {
        throw usageError(
          `the prompt has ${counted(images.length, 'image')} and ${counted(rest.length, `placeholder ${mark}`)}: give one for each`,
        );
      }
      const whole = start + rest.map((piece, at) => ready[at]!.text + piece).join('');
      ids = [...promptTokens(whole, reader, { ...options, addSpecial: !isChat && (options.addSpecial ?? true) })];
    }
    const found = ids.filter((id) => id === imageToken).length;
    if (found !== needed)
      throw usageError(
        `the prompt has ${found} placeholders (${imageToken}); its images have ${needed} rows: one for each`,
      );
    if (ids.length > reader.contextLength) throw contextFullError(ids.length, reader.contextLength);
    const given: number[] = [];
    for (const picture of ready) {
      const { first, count, made } = this.#entry(picture);
      await made;
      given.push(...range(first, first + count));
    }
    let at = 0;
    return ids.map((id) => (id === imageToken ? given[at++]! : id));
  }

  /** What stands for a picture in a text. */
  placeholder(reader: PromptReader): string {
    return needTokenizer(reader, 'a prompt with images').decode([this.vision.mark], { skipSpecial: false });
  }

  /** Of a picture whose rows are there, nothing is decoded again: where it can't have changed since. */
  async #ready(image: ImageSource): Promise<Ready> {
    const seen = typeof image === 'string' ? this.#seenUrls : image instanceof Blob ? this.#seen : undefined;
    const before = seen?.get(image as never);
    if (before && this.#entries.has(before.key)) return before;
    const picture = await decodeImage(image);
    const { tiles, ...cut } = cutPicture(picture, this.vision, this.settings);
    const key = `${picture.width} x ${picture.height} ${await sha256(picture.data)}`;
    const ready = { key, ...cut };
    const again = async (): Promise<readonly Picture[]> =>
      cutPicture(await decodeImage(image), this.vision, this.settings).tiles;
    seen?.set(image as never, { ...ready, tiles: again });
    const [oldest] = this.#seenUrls.keys();
    if (this.#seenUrls.size > KEPT_LEAST) this.#seenUrls.delete(oldest!);
    return { ...ready, tiles: () => Promise.resolve(tiles) };
  }

  #entry({ key, count, grid, tiles }: Ready): Entry {
    let entry = this.#entries.get(key);
    if (!entry) {
      if (this.#next + count > 2 ** 32)
        throw unsupportedError('this model has seen 2^31 rows of images: load it again');
      const made = tiles().then((each) => this.#compute(each));
      const fresh: Entry = { key, first: this.#next, count, grid, made, rows: undefined, held: 0 };
      made.then(
        (rows) => (fresh.rows = rows),
        () => this.#entries.delete(key),
      );
      this.#next += count;
      entry = fresh;
    }
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#forget();
    return entry;
  }

  /** Those that weren't used for longest, where there are many. */
  #forget(): void {
    const all = [...this.#entries.values()];
    let bytes = sum(all.map(({ rows }) => rows?.byteLength ?? 0));
    for (const { key, rows, held } of all.slice(0, -KEPT_LEAST)) {
      if (bytes <= KEPT_BYTES) return;
      if (!rows || held > 0) continue;
      bytes -= rows.byteLength;
      this.#entries.delete(key);
    }
  }

  /** On one rank, tile by tile: what else it has to do comes between. */
  async #compute(tiles: readonly Picture[]): Promise<Float32Array> {
    const { mean, deviation } = this.settings;
    const { vision } = this;
    const made: Float32Array[] = [];
    for (const { data, width, height } of tiles) {
      const pixels = Float32Array.from(data, (value, at) => (value / 255 - mean[at % 3]!) / deviation[at % 3]!);
      const grid: Grid = vision.places ? [height / vision.patch, width / vision.patch] : patchGrid(vision);
      const patches = patchRows(pixels, vision, width, grid, patchOrder(vision, grid));
      made.push(await this.runner().ranks[0]!.encode(patches, grid));
    }
    return joinFloats(made);
  }

  /** @param last where an id was found before: mostly this one is there, too */
  #find(id: number, last?: Entry): Entry | undefined {
    const has = ({ first, count }: Entry): boolean => id >= first && id < first + count;
    return last && has(last) ? last : [...this.#entries.values()].find(has);
  }

  /**
   * @throws SplitkvError `usage` for rows of a picture that isn't known, or, where they see each other or have positions of their own, isn't
   * whole; `limit` for more pictures than may have those
   */
  #ofIds(ids: readonly number[]): Set<Entry> {
    const found = new Set<Entry>();
    let last: Entry | undefined;
    const { runs } = this.vision;
    for (const [at, id] of ids.entries()) {
      if (id < GIVEN_ID) continue;
      last = this.#find(id, last);
      if (!last?.rows)
        throw usageError(`token ${id} is a row of an image that isn't kept any more: give the prompt again`);
      const row = id - last.first;
      const isWhole = (row === 0 || ids[at - 1] === id - 1) && (row === last.count - 1 || ids[at + 1] === id + 1);
      if ((runs || last.grid) && !isWhole)
        throw usageError(`token ${id} is a row of an image that isn't whole here: give the prompt again`);
      found.add(last);
    }
    const { length } = this.spans(ids);
    if (length > ROPE_SPANS)
      throw limitError(`${length} images in a sequence; at most ${ROPE_SPANS} are taken: begin anew`);
    return found;
  }

  /** A request begins: its pictures stay until `release`. @throws SplitkvError `usage` for one that isn't known */
  hold(ids: readonly number[]): void {
    for (const entry of this.#ofIds(ids)) entry.held++;
  }

  release(ids: readonly number[]): void {
    for (const entry of this.#ofIds(ids)) entry.held--;
  }

  /** Where pictures lie whose rows have positions of their own, of which all are kept. */
  spans(ids: ArrayLike<number>): PictureSpan[] {
    const spans: PictureSpan[] = [];
    for (let at = 0; at < ids.length; at++) {
      if (ids[at]! < GIVEN_ID) continue;
      const found = this.#find(ids[at]!);
      if (!found?.grid) return spans;
      spans.push([at, ...found.grid]);
      at += found.count - 1;
    }
    return spans;
  }

  /** f32 [rows][`rowWidth`] of those of the ids that are pictures'; undefined where none is. */
  rows(ids: Uint32Array): Float32Array | undefined {
    const given = ids.filter((id) => id >= GIVEN_ID);
    if (given.length === 0) return undefined;
    const width = rowWidth(this.vision, this.runner().config.hiddenSize);
    const out = new Float32Array(given.length * width);
    let entry: Entry | undefined;
    for (const [at, id] of given.entries()) {
      entry = this.#find(id, entry)!;
      const from = (id - entry.first) * width;
      out.set(entry.rows!.subarray(from, from + width), at * width);
    }
    return out;
  }

  /** Where rows of a picture see each other: the end of the picture that these tokens have; 0 where they have none. */
  runEnd(ids: Uint32Array, start: number): number | undefined {
    if (!this.vision.runs) return undefined;
    const at = ids.findIndex((id) => id >= GIVEN_ID);
    return at < 0 ? 0 : this.#behind(ids[at]!, start + at);
  }

  /** Of such pictures: behind the one that a row at `position` is of. */
  #behind(id: number, position: number): number {
    const { first, count } = this.#find(id)!;
    return position + count - (id - first);
  }

  /**
   * Of those, too: the end of a step that begins at `start`. It cuts none, and has one at most; where it begins with one it has all of it,
   * also behind `end`. One of fewer rows than most begins a step: what is up to so many rows before an end counts as of the picture.
   */
  stepEnd(start: number, end: number, idAt: (position: number) => number): number {
    if (!this.vision.runs) return end;
    let at = start;
    for (let found = false; at < end;) {
      const id = idAt(at);
      const next = id < GIVEN_ID ? at + 1 : this.#behind(id, at);
      const alone = next > end || next - at !== this.vision.runs;
      if (id >= GIVEN_ID && (found || (alone && at > start))) return at;
      found ||= id >= GIVEN_ID;
      at = next;
    }
    return at;
  }

  /** With the model's placeholder in place of each row. */
  placeholders(ids: Uint32Array): Uint32Array {
    return ids.map((id) => (id >= GIVEN_ID ? this.vision.imageToken : id));
  }
}

/** A prompt with its images apart: parts of messages say only where they are. */
function apart(prompt: Prompt): Pick<ImagePrompt, 'images'> & { readonly plain: Exclude<Prompt, ImagePrompt> } {
  if (typeof prompt === 'object' && 'images' in prompt) return { plain: prompt.prompt, images: prompt.images };
  if (typeof prompt !== 'object' || !('messages' in prompt)) return { plain: prompt, images: [] };
  const messages = prompt.messages.map(withoutImages) as unknown as typeof prompt.messages;
  const images = prompt.messages.flatMap(imagesOf);
  return { plain: { ...prompt, messages }, images };
}
