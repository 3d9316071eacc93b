import { ROPE_SPANS } from '../../../shaders/rope/rope_append/index.js';
import { contextFullError, formatError, limitError, unsupportedError, usageError } from '../../base/errors.js';
import { GIVEN_ID } from '../../base/kv_units.js';
import { count as counted, range, sum } from '../../base/lists.js';
import { ceilDiv, joinFloats, sha256 } from '../../base/math.js';
import { decodeImage } from '../../images/decode.js';
import { IMAGE_LIMITS } from '../../images/header.js';
import { cutPicture, type CutSettings, cutSettings } from '../../images/cuts.js';
import type { Picture } from '../../images/picture.js';
import type { ModelConfig } from '../../model/config/model_config.js';
import { type Grid, rowWidth } from '../../model/config/vision_config.js';
import type { PictureSpan } from '../../model/layers/attention/rope_table.js';
import { padRows } from '../../model/layers/roles.js';
import { tilePatches } from '../../model/vision/patch_rows.js';
import { checkExtractor, SOUND_LIMITS, soundRows, soundText } from '../../sound/limits.js';
import type { ImageSource, Prompt, SoundSource, TokenizeOptions } from '../contracts/api.js';
import type { ModelFiles } from '../files/model_files.js';
import type { Runner } from '../ranks/runner.js';
import { apart, cutAtMedia } from './media.js';
import {
  chatText,
  checkTaken,
  KINDS,
  type Media,
  needTokenizer,
  type PromptReader,
  promptTokens,
} from './prompt_tokens.js';

/** Bytes of rows that are kept for pictures that come again, beside those of running requests. */
const KEPT_BYTES = 256 * 2 ** 20;
/** Pictures that are kept whatever they take: a request's, between being read and being run. */
const KEPT_LEAST = 2 * IMAGE_LIMITS.images;

type Kind = keyof Media;
const NAMES = { images: 'image', sounds: 'recording' };
const MOST = { images: IMAGE_LIMITS.images, sounds: SOUND_LIMITS.sounds };

/** Rows of a picture, or of a recording. */
interface Entry {
  /** What was made of which pixels, or samples. */
  readonly key: string;
  /** The id of its first row; those of the others follow. */
  readonly first: number;
  readonly count: number;
  /** The placeholder of its rows. */
  readonly token: number;
  /** Of its rows, where they have positions of their own. */
  readonly grid: Grid | undefined;
  /** f32 [count][`rowWidth`]. */
  readonly made: Promise<Float32Array>;
  rows: Float32Array | undefined;
  /** Running requests that have it. */
  held: number;
}

/** A picture or a recording as the model wants it. */
interface Ready extends Pick<Entry, 'key' | 'count' | 'token' | 'grid'> {
  /** What stands for it in a text. */
  readonly text: string;
  /** On one rank. */
  rows(): Promise<Float32Array>;
}

/**
 * The pictures and recordings of a model's prompts. In a prompt's ids each row of one has an id of its own, from GIVEN_ID on, equal for
 * equal ones: so all that tells prompts apart by their ids (the prefix cache above all) tells them apart, too. The rows themselves are
 * here, and go to the ranks with the steps that need them.
 */
export class Pictures {
  /** The one that was used last is the last. */
  readonly #entries = new Map<string, Entry>();
  #next = GIVEN_ID;
  /** What was given before. */
  readonly #seen = new WeakMap<object, Ready>();
  readonly #seenUrls = new Map<string, Ready>();

  readonly vision: ModelConfig['vision'];
  readonly sound: ModelConfig['sound'];
  readonly settings: CutSettings | undefined;

  /** @throws SplitkvError `unsupported` for what the model's files say of how pictures are cut, or of frames */
  static async of(
    { vision, sound }: ModelConfig,
    files: Pick<ModelFiles, 'pictures' | 'sounds'>,
    runner: () => Runner,
  ): Promise<Pictures> {
    if (sound) checkExtractor(await files.sounds(), 'frame' in sound ? sound.frame : undefined);
    return new Pictures({ vision, sound }, vision && cutSettings(await files.pictures(), vision, vision.file), runner);
  }

  private constructor(
    config: Pick<ModelConfig, 'vision' | 'sound'>,
    settings: CutSettings | undefined,
    readonly runner: () => Runner,
  ) {
    this.vision = config.vision;
    this.sound = config.sound;
    this.settings = settings;
  }

  /**
   * The ids that a prompt with images or recordings feeds: their rows are computed, where they aren't known.
   * @throws as `promptTokens`; SplitkvError `usage` where they and placeholders aren't as many, or for what the model doesn't take; as
   *   `decodeImage` and `decodeSound`
   */
  async ids(prompt: Prompt, reader: PromptReader, options: TokenizeOptions = {}): Promise<readonly number[]> {
    const { plain, ...media } = apart(prompt);
    checkTaken(media, { images: this.vision, sounds: this.sound });
    const { runs = 0 } = this.vision ?? {};
    const { promptRows } = this.runner();
    if (promptRows < Math.min(runs, reader.contextLength))
      throw limitError(`images take steps of ${runs} rows; there is room for ${promptRows}: use a larger prefillChunk`);
    const ready = await this.#allReady(media, reader.contextLength);
    const given = typeof plain === 'object' && !('messages' in plain) && !('prefix' in plain);
    const ids = given ? ([...plain] as number[]) : this.#tokens(plain, ready, reader, options);
    const rows = { images: [] as number[], sounds: [] as number[] };
    for (const [kind, token] of this.#tokenKinds()) {
      const found = ids.filter((id) => id === token).length;
      const needed = sum(ready[kind].map(({ count }) => count));
      if (found !== needed)
        throw usageError(
          `the prompt has ${found} placeholders (${token}); its ${NAMES[kind]}s have ${needed} rows: one for each`,
        );
    }
    if (ids.length > reader.contextLength) throw contextFullError(ids.length, reader.contextLength);
    for (const kind of KINDS) {
      for (const each of ready[kind]) {
        const { first, count, made } = this.#entry(each);
        await made;
        rows[kind].push(...range(first, first + count));
      }
    }
    const kinds = new Map(this.#tokenKinds().map(([kind, token]) => [token, rows[kind].values()]));
    return ids.map((id) => kinds.get(id)?.next().value ?? id);
  }

  /** By kind that the model takes, the placeholder of a row. */
  #tokenKinds(): (readonly [Kind, number])[] {
    const { vision, sound } = this;
    return [
      ...(vision ? [['images', vision.imageToken] as const] : []),
      ...(sound ? [['sounds', sound.soundToken] as const] : []),
    ];
  }

  async #allReady(media: Media, contextLength: number): Promise<Record<Kind, Ready[]>> {
    const ready: Record<Kind, Ready[]> = { images: [], sounds: [] };
    let needed = 0;
    for (const kind of KINDS) {
      const { length } = media[kind];
      if (length > MOST[kind])
        throw usageError(`${length} ${NAMES[kind]}s in a prompt; at most ${MOST[kind]} are taken`);
      for (const each of media[kind]) {
        const one = await this.#ready(kind, each);
        ready[kind].push(one);
        needed += one.count;
        // Before more is decoded.
        if (needed > contextLength) throw contextFullError(needed, contextLength, undefined, true);
      }
    }
    return ready;
  }

  /** Of a text, or of what a template makes of messages: with what stands for each in place of its placeholder. */
  #tokens(
    plain: Exclude<ReturnType<typeof apart>['plain'], readonly unknown[]>,
    ready: Readonly<Record<Kind, readonly Ready[]>>,
    reader: PromptReader,
    options: TokenizeOptions,
  ): readonly number[] {
    const tokenizer = needTokenizer(reader, 'a prompt with images');
    const isChat = typeof plain !== 'string';
    const marks = this.placeholders(reader);
    const pieces = cutAtMedia(isChat ? chatText(plain, tokenizer, options) : plain, marks);
    for (const [kind, mark] of Object.entries(marks) as [Kind, string][]) {
      const found = pieces.filter((piece) => piece.kind === kind).length;
      const { length } = ready[kind];
      if (found !== length) {
        throw usageError(
          `the prompt has ${counted(length, NAMES[kind])} and ${counted(found, 'placeholder')} ${mark}: give one for each`,
        );
      }
    }
    const next = { images: ready.images.values(), sounds: ready.sounds.values() };
    const whole = pieces.map(({ kind, text }) => (kind ? next[kind].next().value!.text : text)).join('');
    return promptTokens(whole, reader, { ...options, addSpecial: !isChat && (options.addSpecial ?? true) });
  }

  /** What stands for a picture in a text, and for a recording. */
  placeholders(reader: PromptReader): Partial<Record<Kind, string>> {
    const { vision, sound } = this;
    const textOf = (id: number): string =>
      needTokenizer(reader, 'a prompt with images').decode([id], { skipSpecial: false });
    return { ...(vision && { images: textOf(vision.mark) }), ...(sound && { sounds: textOf(sound.soundToken) }) };
  }

  /** Of what has its rows there, nothing is decoded again: where it can't have changed since. */
  async #ready(kind: Kind, source: ImageSource | SoundSource): Promise<Ready> {
    const isFixed = typeof source === 'string' && /^data:/i.test(source);
    const seen = isFixed ? this.#seenUrls : source instanceof Blob ? this.#seen : undefined;
    const before = seen?.get(source as never);
    const make = (): Promise<Ready> =>
      kind === 'images' ? this.#picture(source as ImageSource) : this.#recording(source as SoundSource);
    if (before && before.token === this.#tokenOf(kind) && this.#entries.has(before.key)) return before;
    const ready = await make();
    seen?.set(source as never, { ...ready, rows: async () => (await make()).rows() });
    let length = sum([...this.#seenUrls.keys()].map((url) => url.length));
    for (const oldest of this.#seenUrls.keys()) {
      if (this.#seenUrls.size <= KEPT_LEAST && length <= KEPT_BYTES) break;
      this.#seenUrls.delete(oldest);
      length -= oldest.length;
    }
    return ready;
  }

  #tokenOf(kind: Kind): number | undefined {
    return this.#tokenKinds().find(([own]) => own === kind)?.[1];
  }

  async #picture(image: ImageSource): Promise<Ready> {
    const vision = this.vision!;
    const picture = await decodeImage(image);
    const { tiles, ...cut } = cutPicture(picture, vision, this.settings!);
    const key = `${picture.width} x ${picture.height} ${await sha256(picture.data)}`;
    return { key, token: vision.imageToken, ...cut, rows: () => this.#compute(tiles) };
  }

  async #recording(source: SoundSource): Promise<Ready> {
    const [{ decodeSound }, { framesOf, melFrames }] = await Promise.all([
      import('../../sound/decode.js'),
      import('../../sound/mel.js'),
    ]);
    const samples = await decodeSound(source);
    const sound = this.sound!;
    const frame = 'frame' in sound ? sound.frame : undefined;
    const count = frame ? ceilDiv(samples.length, frame) : soundRows(framesOf(samples.length));
    if (count === 0) throw formatError(`a recording of ${samples.length} samples at 16 kHz: too short to be heard`);
    return {
      key: `sound ${await sha256(new Uint8Array(samples.buffer))}`,
      token: sound.soundToken,
      count,
      grid: undefined,
      text: soundText(count),
      rows: () => {
        const values = frame ? padRows(samples, samples.length, count * frame) : melFrames(samples);
        return this.runner().ranks[0]!.encode(values, undefined);
      },
    };
  }

  #entry({ key, count, token, grid, rows: compute }: Ready): Entry {
    let entry = this.#entries.get(key);
    if (!entry) {
      if (this.#next + count > 2 ** 32)
        throw unsupportedError('this model has seen 2^31 rows of images and recordings: load it again');
      const made = compute();
      const fresh: Entry = { key, first: this.#next, count, token, grid, made, rows: undefined, held: 0 };
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
    const made: Float32Array[] = [];
    for (const tile of tiles) {
      const { patches, grid } = tilePatches(tile, this.vision!, this.settings!);
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
    const runs = this.vision?.runs;
    for (const [at, id] of ids.entries()) {
      if (id < GIVEN_ID) continue;
      last = this.#find(id, last);
      if (!last?.rows)
        throw usageError(
          `token ${id} is a row of an image or a recording that isn't kept any more: give the prompt again`,
        );
      const row = id - last.first;
      const isWhole = (row === 0 || ids[at - 1] === id - 1) && (row === last.count - 1 || ids[at + 1] === id + 1);
      if (((runs && this.#isPicture(last)) || last.grid) && !isWhole)
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
    const width = rowWidth(this.vision ?? {}, this.runner().config.hiddenSize);
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
    if (!this.vision?.runs) return undefined;
    const at = ids.findIndex((id) => this.#isSeen(id));
    return at < 0 ? 0 : this.#behind(ids[at]!, start + at);
  }

  #isPicture = ({ token }: Entry): boolean => token === this.vision?.imageToken;

  /** Whether it is a row of such a picture: those of recordings see none after them. */
  #isSeen = (id: number): boolean => id >= GIVEN_ID && this.#isPicture(this.#find(id)!);

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
    const runs = this.vision?.runs;
    if (!runs) return end;
    let at = start;
    for (let found = false; at < end;) {
      const id = idAt(at);
      const isSeen = this.#isSeen(id);
      const next = isSeen ? this.#behind(id, at) : at + 1;
      const alone = next > end || next - at !== runs;
      if (isSeen && (found || (alone && at > start))) return at;
      found ||= isSeen;
      at = next;
    }
    return at;
  }

  /** With the model's placeholder in place of each row. */
  withPlaceholders(ids: Uint32Array): Uint32Array {
    let last: Entry | undefined;
    return ids.map((id) => (id >= GIVEN_ID ? (last = this.#find(id, last))!.token : id));
  }
}
