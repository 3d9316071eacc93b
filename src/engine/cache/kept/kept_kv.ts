/**
 * Room: keys and values that outlive the ranks, kept block by block under names that follow from the model and the tokens so far.
 * KeptKv (here) checks, counts and forgets; node_folder.ts, page_folder.ts and kv_file.ts are where pieces lie.
 */

import { messageOf } from '../../../base/errors.js';
import { parsed } from '../../../base/json.js';
import { KV_BLOCK } from '../../../base/kv_units.js';
import { joinBytes, sha256 } from '../../../base/math.js';
import { VERSION } from '../../../base/version.js';
import type { LoadOptions } from '../../contracts/api.js';
import type { KvFolder } from '../../contracts/kv_folder.js';
import { KV_PARTS, type KvPart } from '../kv_layout.js';

/** Changes with whatever changes bits of keys and values, or how they are kept: what is older isn't found. */
const FORMAT = 2;
/** 'skv' and the format, then the SHA-256 of the piece's name and content, then the content. */
const MAGIC = Uint8Array.of(0x73, 0x6b, 0x76, FORMAT);
export const HEADER = MAGIC.length + 32;
const PIECE = new RegExp(`^[0-9a-f]{32}\\.(${KV_PARTS.join('|')})$`);
/** Bytes that are kept where nothing else is said. */
const DEFAULT_KEPT_BYTES = 4 * 2 ** 30;

/** Whose keys and values: all that their bits depend on beside the tokens, by its name for people. No plan and no number of ranks is among it. */
export type KvSubject = Readonly<Record<'model' | 'weight type' | 'KV type' | 'kind of adapter', unknown>>;

/** What is kept of one model's sequences. Nothing here throws: what can't be kept or read is told as a warning, once, and computed. */
export class KeptKv {
  /** Of all models, what was used longest ago first. */
  readonly #pieces = new Map<string, number>();
  #total = 0;
  #stopped = false;
  readonly #told = new Set<string>();
  readonly #bytes: number;
  readonly #subject: string;

  private constructor(
    readonly folder: KvFolder,
    subject: KvSubject,
    readonly options: { readonly bytes?: number | undefined } & Pick<LoadOptions, 'onWarning'>,
  ) {
    this.#bytes = options.bytes ?? DEFAULT_KEPT_BYTES;
    this.#subject = JSON.stringify({ format: FORMAT, version: VERSION, ...subject });
  }

  /** @param options beyond `bytes` what was used longest ago goes */
  static async open(folder: KvFolder, subject: KvSubject, options: KeptKv['options'] = {}): Promise<KeptKv> {
    const kept = new KeptKv(folder, subject, options);
    try {
      const list = await folder.list();
      const { subject: other = kept.#subject } = folder;
      if (other !== kept.#subject)
        kept.#warn(`is of another ${differenceOf(other, kept.#subject)}: all is computed anew`);
      else for (const { name, bytes } of list) if (PIECE.test(name)) kept.#count(name, bytes);
    } catch (error) {
      kept.#stopped = true;
      kept.#warn(`can't be read (${messageOf(error)}): all is computed anew`);
    }
    return kept;
  }

  /** The names of the whole blocks of some tokens: each of all tokens up to its end, and which of them were generated. */
  async keysOf(tokens: readonly number[], isGenerated: (position: number) => boolean): Promise<string[]> {
    const keys: string[] = [];
    let key = this.#subject;
    for (let start = 0; start + KV_BLOCK <= tokens.length; start += KV_BLOCK) {
      const rows = tokens.slice(start, start + KV_BLOCK).map((id, at) => (isGenerated(start + at) ? -1 - id : id));
      key = (await sha256(new TextEncoder().encode(`${key} ${rows.join()}`))).slice(0, 32);
      keys.push(key);
    }
    return keys;
  }

  has(key: string, part: KvPart): boolean {
    return this.#pieces.has(`${key}.${part}`);
  }

  /** Undefined where it isn't there any more, or isn't what was kept. */
  async read(key: string, part: KvPart, bytes: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const name = `${key}.${part}`;
    try {
      const piece = await this.folder.read(name);
      const content = piece?.subarray(HEADER);
      if (piece && content?.byteLength === bytes && sameBytes(piece, await headerOf(name, content))) return content;
      if (piece) this.#warn('has a damaged piece: it is computed anew');
      await this.#forget(name);
    } catch (error) {
      this.#warn(`can't be read (${messageOf(error)}): it is computed anew`);
      this.#uncount(name);
    }
    return undefined;
  }

  async write(key: string, part: KvPart, content: Uint8Array<ArrayBuffer>): Promise<void> {
    const name = `${key}.${part}`;
    const size = HEADER + content.byteLength;
    if (this.#stopped || this.#pieces.has(name) || size > this.#bytes) return;
    try {
      for (const oldest of this.#pieces.keys()) {
        if (this.#total + size <= this.#bytes) break;
        await this.#forget(oldest);
      }
      this.#count(name, size);
      await this.folder.write(name, joinBytes([await headerOf(name, content), content]));
    } catch (error) {
      this.#uncount(name);
      this.#stop(error);
    }
  }

  /** These were used, and all that was written is there. */
  async used(keys: readonly string[]): Promise<void> {
    try {
      // A beginning is of use without its end, not the other way.
      for (const key of keys.toReversed()) {
        for (const part of KV_PARTS) {
          const name = `${key}.${part}`;
          const bytes = this.#pieces.get(name);
          if (bytes === undefined) continue;
          this.#pieces.delete(name);
          this.#pieces.set(name, bytes);
          await this.folder.touch?.(name);
        }
      }
      if (!this.#stopped) await this.folder.flush?.(this.#subject);
    } catch (error) {
      this.#stop(error);
    }
  }

  async #forget(name: string): Promise<void> {
    this.#uncount(name);
    await this.folder.remove(name);
  }

  #count(name: string, bytes: number): void {
    this.#pieces.set(name, bytes);
    this.#total += bytes;
  }

  #uncount(name: string): void {
    this.#total -= this.#pieces.get(name) ?? 0;
    this.#pieces.delete(name);
  }

  #stop(error: unknown): void {
    this.#stopped = true;
    this.#warn(`takes nothing more (${messageOf(error)}): later sequences aren't kept`);
  }

  #warn(what: string): void {
    if (this.#told.has(what)) return;
    this.#told.add(what);
    this.options.onWarning?.(`kept keys and values: ${this.folder.name} ${what}`);
  }
}

async function headerOf(name: string, content: Uint8Array): Promise<Uint8Array<ArrayBuffer>> {
  const hashed = joinBytes([new TextEncoder().encode(name), content]);
  return joinBytes([MAGIC, new Uint8Array(await crypto.subtle.digest('SHA-256', hashed))]);
}

const sameBytes = (all: Uint8Array, begin: Uint8Array): boolean =>
  all.byteLength >= begin.byteLength && begin.every((byte, at) => byte === all[at]);

/** In what another subject differs. */
function differenceOf(other: string, own: string): string {
  const [theirs, ours] = [parsed(other), parsed(own)] as (Readonly<Record<string, unknown>> | null | undefined)[];
  const same = (name: string): boolean => JSON.stringify(theirs?.[name]) === JSON.stringify(ours?.[name]);
  return Object.keys(ours ?? {}).find((name) => !same(name)) ?? 'subject';
}
